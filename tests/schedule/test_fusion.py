"""What becomes one kernel, and what must not."""

from __future__ import annotations

import functools

import attrs
import pytest
import torch

from armature import config
from armature.lower import layout
from armature.lower.data import ExternCall, LoopGraph
from armature.schedule.data import Allocate, KernelPlan, Launch, Release
from armature.schedule.schedule import schedule
from armature.schedule.show import show
from armature.schedule.verify import verify
from armature.testing.loop_evaluator import run_loops
from armature.testing.lowering_kit import ReferenceBackend, context
from tests.support.counted_calls import calls_of
from tests.support.loop_graphs import LoopWriter
from tests.support.plan_kit import run_plan

aten = torch.ops.aten


def planned(writer: LoopWriter, graph: LoopGraph, *, across: bool = True, **changes: object) -> KernelPlan:
    """The plan, verified and compared with the loops one by one. across: whether kernels over rows can make sums across
    them."""
    backend = ReferenceBackend()
    if not across:
        backend = attrs.evolve(backend, features=attrs.evolve(backend.features, across=None))
    with config.patch(**changes):
        plan = schedule(graph, context((), backend))
    verify(plan)
    args = writer.arguments(graph)
    expected_args = [a.clone() for a in args]
    expected = run_loops(graph, expected_args)
    for ours, theirs in zip((*run_plan(plan, args), *args), (*expected, *expected_args), strict=True):
        torch.testing.assert_close(ours, theirs, msg=show(plan))
    return plan


def test_pointwise_chain_is_one_kernel_without_temporaries() -> None:
    w = LoopWriter()
    x, y = w.input(4, 5), w.input(5)
    out = w.op("mul", w.op("tanh", w.op("add", x, y)), 2.0)
    plan = planned(w, w.graph(out))
    (kernel,) = plan.kernels
    assert kernel.reads == ("in_0", "in_1") and len(kernel.writes) == 1
    assert kernel.operators == 3
    assert sum(isinstance(s, Allocate) for s in plan.steps) == 1


def test_two_outputs_share_one_kernel() -> None:
    w = LoopWriter()
    x = w.input(4, 5)
    a = w.op("tanh", x)
    plan = planned(w, w.graph(w.op("neg", a), w.op("sigmoid", a)))
    assert len(plan.kernels) == 1 and len(plan.kernels[0].writes) == 2


def test_softmax_is_one_kernel_of_three_passes() -> None:
    w = LoopWriter()
    x = w.input(6, 8)
    shifted = w.op("sub", x, w.reduce("max", x, [1], keepdim=True))
    power = w.op("exp", shifted)
    plan = planned(w, w.graph(w.op("div", power, w.reduce("sum", power, [1], keepdim=True))))
    (kernel,) = plan.kernels
    assert [len(p.reductions) for p in kernel.passes] == [1, 1, 0]
    assert kernel.reads == ("in_0",) and len(kernel.writes) == 1
    assert [v.extent for v in kernel.outer] == [6] and [v.extent for v in kernel.inner] == [8]


def test_statistics_over_rows_columns_and_images_keep_their_loops_apart() -> None:
    w = LoopWriter()
    x = w.input(4, 3, 5, 5)
    mean = w.reduce("sum", x, [0, 2, 3], keepdim=True)
    plan = planned(w, w.graph(w.op("mul", w.op("sub", x, mean), 0.5), mean))
    (kernel,) = plan.kernels
    assert [v.extent for v in kernel.outer] == [3]
    assert [v.extent for v in kernel.inner] == [4, 25]  # rows and columns of an image are one loop, images another


def test_flat_and_shaped_loops_line_up() -> None:
    w = LoopWriter()
    x, y = w.input(2, 3, 4), w.input(3, 1)
    a = w.op("add", x, y)
    plan = planned(w, w.graph(a, w.op("tanh", layout.reshape(a, (24,)))))
    assert len(plan.kernels) == 1


def test_transposed_reader_shares_the_loop() -> None:
    w = LoopWriter()
    x = w.input(6, 8)
    a = w.op("tanh", x)
    plan = planned(w, w.graph(a, w.op("neg", layout.permute(a, (1, 0)))))
    assert len(plan.kernels) == 1


def test_neighbours_along_memory_are_one_loop() -> None:
    w = LoopWriter()
    x = w.input(4, 5, 6)
    (kernel,) = planned(w, w.graph(w.op("tanh", x))).kernels
    assert [v.extent for v in kernel.outer] == [120]


def test_channels_last_runs_in_the_order_of_memory() -> None:
    w = LoopWriter()
    x = w.input(2, 3, 4, 5, strides=(60, 1, 15, 3))
    w.begin("tanh", x.shape)
    spec = w.builder.spec()
    out = w.builder.pointwise("tanh", x, spec=type(spec)(spec.shape, spec.dtype, spec.device, (60, 1, 15, 3)))
    (kernel,) = planned(w, w.graph(out)).kernels
    assert [v.extent for v in kernel.outer] == [120]


def test_extern_between_keeps_the_order() -> None:
    w = LoopWriter()
    x = w.input(4, 4)
    a = w.op("tanh", x)
    b = w.extern(aten.mm.default, a, a, shape=(4, 4))
    c = w.op("add", b, a)  # needs `a` again: it is stored once and read by both
    plan = planned(w, w.graph(c))
    kinds = [type(s).__name__ for s in plan.steps if isinstance(s, (Launch, ExternCall))]
    assert kinds == ["Launch", "ExternCall", "Launch"]


def test_independent_work_waits_for_its_reader() -> None:
    """`a` does not need the product; it runs after it, in one kernel with the sum of both."""
    w = LoopWriter()
    x, y = w.input(4, 4), w.input(4, 4)
    a = w.op("exp", w.op("exp", w.op("add", x, y)))
    b = w.extern(aten.mm.default, x, y, shape=(4, 4))
    plan = planned(w, w.graph(w.op("add", a, b)))
    assert len(plan.kernels) == 1


def test_no_cycle_through_an_operator() -> None:
    w = LoopWriter()
    x = w.input(4, 4)
    a = w.op("exp", x)
    b = w.extern(aten.mm.default, a, a, shape=(4, 4))
    c = w.op("exp", w.op("add", a, b))
    plan = planned(w, w.graph(a, c))
    assert len(plan.kernels) == 2


def test_input_written_at_the_end_is_read_before() -> None:
    w = LoopWriter()
    x, y = w.input(4, 4), w.input(4, 4)
    new = w.op("add", x, y)
    flipped = w.op("mul", layout.permute(x, (1, 0)), y)  # reads x where another point writes it
    w.write(x, new)
    planned(w, w.graph(flipped))


def test_broadcast_producer_is_computed_in_the_reader() -> None:
    w = LoopWriter()
    x, scale = w.input(8, 6, 10), w.input(6, 1)
    plan = planned(w, w.graph(w.op("mul", x, w.op("rsqrt", w.op("abs", scale)))))
    assert len(plan.kernels) == 1


def test_broadcast_producer_is_stored_where_memory_has_it_change_at_each_point() -> None:
    """With channels last the channels are the innermost loop: nothing of it can be taken out."""
    shape, rows, turned = (2, 6, 40, 40), (9600, 1600, 40, 1), (9600, 1, 240, 6)
    for strides, kernels in ((rows, 1), (turned, 2)):
        w = LoopWriter()
        x, scale = w.input(*shape, strides=strides), w.input(6, 1, 1)
        root = w.op("rsqrt", w.op("abs", scale))
        w.begin("mul", shape)
        spec = attrs.evolve(w.builder.spec(), strides=strides)
        plan = planned(w, w.graph(w.builder.pointwise("mul", x, root, spec=spec)))
        assert len(plan.kernels) == kernels


def test_padding_reads_its_producer_under_the_condition() -> None:
    w = LoopWriter()
    x = w.input(4, 5)
    plan = planned(w, w.graph(w.op("neg", w.pad(w.op("tanh", x), 1))))
    assert len(plan.kernels) == 1


def test_full_reduction_does_not_carry_a_large_store() -> None:
    """A kernel with one outer point would leave the device idle while it writes the large result."""
    w = LoopWriter()
    x = w.input(300, 300)
    a = w.op("tanh", x)
    plan = planned(w, w.graph(a, w.reduce("sum", a, [0, 1])))
    assert len(plan.kernels) == 2
    small = LoopWriter()
    b = small.op("tanh", small.input(10, 10))
    assert len(planned(small, small.graph(b, small.reduce("sum", b, [0, 1]))).kernels) == 1


def test_positions_are_counted_in_their_own_order() -> None:
    w = LoopWriter()
    x = w.input(5, 6, 7)
    first = w.reduce("argmax", layout.permute(layout.reshape(x, (5, 42)), (1, 0)), [0])
    planned(w, w.graph(first, w.reduce("max", x, [1, 2])))


def test_kernels_stay_below_the_limit_of_nodes() -> None:
    w = LoopWriter()
    x = w.input(4, 4)
    for _ in range(30):
        x = w.op("tanh", w.op("add", x, x))
    plan = planned(w, w.graph(x), max_kernel_nodes=20)
    assert 3 <= len(plan.kernels) <= 8


def test_dead_loops_are_dropped() -> None:
    w = LoopWriter()
    x = w.input(4, 4)
    w.op("exp", x)
    assert len(planned(w, w.graph(w.op("tanh", x))).kernels) == 1


@pytest.mark.parametrize("across", [False, True])
def test_what_one_hands_over_comes_before_what_two_read(across: bool) -> None:
    """As in the backward graph of a norm: sums over the columns for the weight, over the rows for the input."""
    w = LoopWriter()
    one, other, x, weight = w.input(64, 32), w.input(64, 32), w.input(64, 32), w.input(32)
    gradient = w.op("add", one, other)
    columns = w.reduce("sum", w.op("mul", gradient, x), [0])
    scaled = w.op("mul", gradient, weight)
    rows = w.reduce("sum", w.op("mul", scaled, x), [1], keepdim=True)
    plan = planned(w, w.graph(columns, w.op("sub", scaled, w.op("mul", x, rows))), across=across)
    assert len(plan.kernels) == 2
    full = [s.buffer for s in plan.steps if isinstance(s, Allocate) and plan.buffers[s.buffer].shape == (64, 32)]
    assert len(full) == (1 if across else 2)  # the result, and one if both kernels need it


def test_halves_of_a_product_read_at_other_places_are_computed_there() -> None:
    """As in the backward graph of a rotary embedding: its factors are no more bytes than the product."""
    w = LoopWriter()
    x, angle, scale = w.input(4, 64, 32), w.input(64, 32), w.input(32)
    product = w.op("mul", w.op("mul", x, angle), scale)
    turned = layout.slice_axis(product, 2, 16, 16), layout.slice_axis(product, 2, 0, 16)
    plan = planned(w, w.graph(*(w.pad(w.op("neg", part), 1) for part in turned)))
    assert all(set(kernel.reads) == {"in_0", "in_1", "in_2"} for kernel in plan.kernels)


@pytest.mark.parametrize(("part", "gathered"), [(16, True), (24, False)])
def test_parts_of_gathered_rows_are_gathered_where_each_is_read(part: int, gathered: bool) -> None:
    """As with embeddings in two halves. The rows' numbers, in 8 bytes, are read once for a whole row."""
    w = LoopWriter(torch.float32)
    table, numbers = w.input(50, 32), w.input(300, dtype=torch.int64)
    rows = w.gather(table, numbers)
    parts = [layout.slice_axis(rows, 1, 32 - part, part), layout.slice_axis(rows, 1, 0, part)]
    plan = planned(w, w.graph(*(w.reduce("max", w.op("tanh", one), [1]) for one in parts)))
    assert any(rows.buffer in kernel.reads for kernel in plan.kernels) is not gathered


@pytest.mark.parametrize("written_later", [False, True])
def test_products_of_what_was_joined_are_computed_where_they_are_summed(written_later: bool) -> None:
    """A join is written part by part, all of them before it is read; other writes may come between."""
    w = LoopWriter()
    joined = w.join([w.op("tanh", w.input(2, 16)), w.op("exp", w.input(2, 16))])
    read = w.extern(torch.ops.aten.mm.default, w.input(8, 4), joined, shape=(8, 16))
    products = w.op("mul", layout.reshape(joined, (4, 16, 1)), layout.reshape(w.input(4, 32), (4, 1, 32)))
    if written_later:
        w.write(joined, w.input(4, 16))
    first, *others = (layout.select(products, 0, k) for k in range(4))
    total = functools.reduce(lambda x, y: w.op("add", x, y), others, first)
    plan = planned(w, w.graph(read, total, *([joined] if written_later else [])))
    stored = {step.buffer for step in plan.steps if isinstance(step, Allocate)}
    assert (products.buffer in stored) is written_later


def test_what_many_start_before_one_value_is_finished_behind_it() -> None:
    """As in the step of an optimizer, whose last operations wait for numbers that come in one copy."""
    w = LoopWriter()
    started = []
    for _ in range(60):
        x = w.input(3)
        for name in ("tanh", "exp", "neg", "sin", "cos", "abs", "sqrt", "sigmoid"):
            x = w.op(name, x)
        started.append(x)
    number = w.extern(aten.neg.default, w.input(1), shape=(1,))
    plan = planned(w, w.graph(*(w.op("mul", x, number) for x in started)))
    assert len(plan.kernels) <= 4 and all(number.buffer in kernel.reads for kernel in plan.kernels)


def test_dead_loops_keep_nothing_apart() -> None:
    """As the loss is, where its gradient alone is asked for: it shares a loop with the weight that the gradient needs."""
    w = LoopWriter()
    x, t = w.input(6, 8), w.input(6, 8)
    shifted = w.op("sub", x, w.reduce("max", x, [1], keepdim=True))
    w.reduce("sum", w.op("mul", shifted, t), [0, 1])
    weight = w.reduce("sum", t, [0, 1])
    plan = planned(w, w.graph(w.op("mul", shifted, weight)))
    assert len(plan.kernels) == 2
    assert sum(isinstance(s, Allocate) for s in plan.steps) == 2


def test_result_takes_over_the_memory_of_what_ends() -> None:
    w = LoopWriter()
    x = w.input(4, 4)
    a = w.extern(aten.mm.default, x, x, shape=(4, 4))
    plan = planned(w, w.graph(w.op("tanh", a)))
    (made,) = [s for s in plan.steps if isinstance(s, Allocate)]
    assert made.reuse is not None and plan.kernels[0].reads == ()
    assert not any(isinstance(s, Release) and s.buffer == made.reuse for s in plan.steps)


def test_inputs_and_outputs_are_never_taken_over() -> None:
    w = LoopWriter()
    x = w.input(4, 4)
    a = w.extern(aten.mm.default, x, x, shape=(4, 4))
    plan = planned(w, w.graph(a, w.op("tanh", a), w.op("neg", x)))
    assert all(s.reuse is None for s in plan.steps if isinstance(s, Allocate))


def test_parts_of_one_buffer_are_written_by_one_kernel() -> None:
    """A concatenation of equal parts is one kernel; a reader of the whole waits for it."""
    w = LoopWriter()
    parts = [w.op("tanh", w.input(4, 3)) for _ in range(3)]
    w.begin("cat", (4, 9))
    whole = w.builder.whole(w.builder.new_buffer(w.builder.spec()))
    for number, part in enumerate(parts):
        w.write(layout.slice_axis(whole, 1, 3 * number, 3), part)
    plan = planned(w, w.graph(w.reduce("sum", whole, [1])))
    assert [k.operators for k in plan.kernels] == [6, 1]


def test_overlapping_parts_keep_their_order() -> None:
    w = LoopWriter()
    x, y, z = w.input(4, 6), w.input(4, 3), w.input(4, 3)
    w.write(layout.slice_axis(x, 1, 1, 3), y)
    w.write(layout.slice_axis(x, 1, 2, 3), z)
    planned(w, w.graph(w.op("neg", y)))


def test_copies_into_inputs_join_what_computes_them() -> None:
    w = LoopWriter()
    x, running = w.input(8, 3, 5), w.input(3)
    mean = w.reduce("sum", x, [0, 2])
    w.write(running, w.op("add", w.op("mul", running, 0.9), w.op("mul", mean, 0.1)))
    plan = planned(w, w.graph(mean))
    assert len(plan.kernels) == 1 and "in_1" in plan.kernels[0].writes


def test_what_is_overwritten_is_read_in_every_pass_before() -> None:
    w = LoopWriter()
    x = w.input(3, 4)
    turned = w.op("neg", x)
    centred = w.op("sub", x, w.reduce("max", x, [1], keepdim=True))
    scaled = w.op("mul", centred, w.reduce("sum", w.op("tanh", centred), [1], keepdim=True))
    w.write(x, turned)
    (kernel,) = planned(w, w.graph(turned, scaled)).kernels
    stored = [[s.buffer for s in (*p.inner_stores, *p.outer_stores)] for p in kernel.passes]
    assert [x.buffer in names for names in stored] == [False] * (len(stored) - 1) + [True]


def test_loops_of_one_point_share_a_kernel() -> None:
    w = LoopWriter()
    x, y = w.input(), w.input()
    plan = planned(w, w.graph(w.op("tanh", x), w.op("neg", y)))
    assert len(plan.kernels) == 1


def chain(length: int) -> tuple[LoopWriter, LoopGraph]:
    w = LoopWriter()
    x = w.input(16, 16)
    for step in range(length):
        x = w.op("mul", x, x) if step % 3 == 0 else w.op("tanh" if step % 3 == 1 else "neg", x)
    return w, w.graph(x)


def pairs(length: int) -> tuple[LoopWriter, LoopGraph]:
    w = LoopWriter()
    line = [w.input(16, 16), w.input(16, 16)]
    for _ in range(length // 2):
        line += [w.op("add", line[-1], line[-2]), w.op("mul", line[-1], line[-2])]
    return w, w.graph(line[-1])


def mixed(length: int) -> tuple[LoopWriter, LoopGraph]:
    w = LoopWriter()
    x = w.input(16, 16)
    for _ in range(length // 5):
        x = w.op("sub", x, w.reduce("max", x, [1], keepdim=True))
        x = w.op("add", w.extern(aten.mm.default, w.op("tanh", x), x, shape=(16, 16)), x)
    return w, w.graph(x)


@pytest.mark.parametrize("small", [100, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("build", [chain, pairs, mixed])
def test_time_and_size_are_linear(build: object, small: int) -> None:
    """Ten times the operators take at most 11 times the calls; seconds would depend on the machine."""
    counts = []
    for length in (small, 10 * small):
        _, graph = build(length)  # type: ignore[operator]
        plan = schedule(graph, context(()))
        counts.append((calls_of(lambda graph=graph: schedule(graph, context(()))), len(show(plan))))  # type: ignore[misc]
    assert counts[1][0] <= 11 * counts[0][0]
    assert counts[1][1] <= 11 * counts[0][1]


def test_a_small_value_that_is_read_often_is_turned_once() -> None:
    w = LoopWriter()
    weight = w.copy(layout.permute(w.input(8, 9), (1, 0)))  # rows of the result are columns of the input
    out = w.op("mul", w.input(64, 9, 8), weight)
    assert len(planned(w, w.graph(out)).kernels) == 2
    w = LoopWriter()
    once = w.op("mul", w.input(9, 8), w.copy(layout.permute(w.input(8, 9), (1, 0))))
    assert len(planned(w, w.graph(once)).kernels) == 1
