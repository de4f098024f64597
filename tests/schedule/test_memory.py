"""Memory of buffers that nobody reads any more: held for a later buffer, or given back."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch

from armature.lower import layout
from armature.lower.data import ExternCall, LoopGraph
from armature.lower.values import TensorValue
from armature.reports.graphs import memory_steps
from armature.schedule import late
from armature.schedule import schedule as scheduling
from armature.schedule.data import Allocate, Batch, KernelPlan, Release
from armature.schedule.memory import plan_memory, usage
from armature.schedule.schedule import schedule
from armature.schedule.verify import verify
from armature.testing.loop_evaluator import run_loops
from armature.testing.lowering_kit import context
from tests.support.loop_graphs import LoopWriter
from tests.support.plan_kit import run_plan

aten = torch.ops.aten


def chain(device: str, between: bool, columns: int = 4) -> tuple[KernelPlan, str, str]:
    """The plan, a buffer that is read last early on, and the next buffer of its size. between: others are made before
    that one, of another size. columns: of the result."""
    w = LoopWriter()
    x, wide, narrow, last = w.input(4, 4), w.input(4, 6), w.input(6, 4), w.input(4, columns)
    early = w.op("tanh", x)
    if between:
        rows = w.extern(aten.mm.default, early, wide, shape=(4, 6))
        value = w.extern(aten.mm.default, rows, narrow, shape=(4, 4))
    else:
        value = w.extern(aten.mm.default, early, early, shape=(4, 4))
    late = w.op("exp", value)
    both = w.extern(aten.mm.default, late, value, shape=(4, 4))
    graph = w.graph(w.extern(aten.mm.default, both, last, shape=(4, columns)))
    there = {name: attrs.evolve(buffer, device=torch.device(device)) for name, buffer in graph.buffers.items()}
    return schedule(attrs.evolve(graph, buffers=there), context(())), early.buffer, late.buffer


def taken_over(plan: KernelPlan, name: str) -> str | None:
    (made,) = [step for step in plan.steps if isinstance(step, Allocate) and step.buffer == name]
    return made.reuse


def peak(plan: KernelPlan) -> int:
    """Bytes that the graph has allocated at most."""
    return max(step.bytes for step in memory_steps(plan))


@pytest.mark.parametrize("between", [False, True])
def test_a_cpus_memory_is_held_for_a_later_buffer(between: bool) -> None:
    """To ask for it again takes a page fault for every 4 KiB."""
    plan, early, late = chain("cpu", between, columns=32)
    assert taken_over(plan, late) == early
    assert peak(plan) == 8 * (16 + 128)  # at the end


def test_memory_is_given_back_where_holding_it_would_raise_the_peak() -> None:
    plan, early, late = chain("cpu", between=True)
    assert taken_over(plan, late) is None
    assert peak(plan) == 8 * 3 * 16  # at the end: the operands of a product, and its result


def test_products_of_elements_are_summed_where_they_are_made() -> None:
    """Two narrow layers written out as loops. The kernel of the first could make the products of the second too, but
    would have to store them: more bytes than all others together."""
    w = LoopWriter()
    x, first, second = w.input(8, 1, 16), w.input(32, 16), w.input(16, 32)
    hidden = w.op("tanh", w.reduce("sum", w.op("mul", x, first), [2]))
    graph = w.graph(w.reduce("sum", w.op("mul", layout.reshape(hidden, (8, 1, 32)), second), [2]), hidden)
    plan = schedule(graph, context(()))
    assert len(plan.launches) == 2
    assert peak(plan) == 8 * (8 * 32 + 8 * 16)
    args = w.arguments(graph)
    torch.testing.assert_close(run_plan(plan, args), run_loops(graph, args))


def test_memory_of_other_devices_is_given_back_before_something_else_is_allocated() -> None:
    """As in a network of convolutions, whose results would else come on top of what nobody reads."""
    plan, early, late = chain("meta", between=True)
    assert taken_over(plan, late) is None
    assert any(isinstance(step, Release) and step.buffer == early for step in plan.steps)


def test_memory_of_other_devices_is_taken_over_where_nothing_is_allocated_between() -> None:
    plan, early, late = chain("meta", between=False)
    assert taken_over(plan, late) == early


@pytest.mark.parametrize(
    ("order", "in_place"), [((0, 1, 2), True), ((1, 0, 2), False)], ids=["as it lies", "other places"]
)
def test_a_product_is_overwritten_by_what_is_computed_of_a_view_of_it(order: tuple[int, ...], in_place: bool) -> None:
    """The activation between two linear layers: the product has two axes, the program's tensor three."""
    w = LoopWriter()
    x, y = w.input(6, 4), w.input(4, 8)
    product = w.extern(aten.mm.default, x, y, shape=(6, 8))
    rows = w.op("tanh", layout.permute(layout.reshape(product, (2, 3, 8)), order))
    graph = w.graph(w.extern(aten.mm.default, layout.reshape(rows, (6, 8)), w.input(8, 4), shape=(6, 4)))
    plan = schedule(graph, context(()))
    assert taken_over(plan, rows.buffer) == (product.buffer if in_place else None)
    args = w.arguments(graph)
    torch.testing.assert_close(run_plan(plan, args), run_loops(graph, args))


def overlaid(graph: LoopGraph, *spare: TensorValue) -> list[str | None]:
    """For each buffer that is made, the input in whose memory that is. Results are those of the loops."""
    plan = schedule(attrs.evolve(graph, spare=frozenset(each.buffer for each in spare)), context(()))
    args = LoopWriter().arguments(graph)
    expected = run_loops(graph, args)
    torch.testing.assert_close(run_plan(plan, [arg.clone() for arg in args]), expected)
    verify(plan)
    return [step.over for step in plan.steps if isinstance(step, Allocate)]


def test_a_result_is_made_in_the_memory_of_a_spare_input() -> None:
    w = LoopWriter()
    x, y = w.input(4, 8), w.input(4, 8)
    graph = w.graph(w.op("mul", w.op("tanh", x), y))
    assert overlaid(graph) == [None]
    assert overlaid(graph, y) == [y.buffer]


def test_a_spare_input_that_is_read_later_or_elsewhere_keeps_its_memory() -> None:
    w = LoopWriter()
    x, y = w.input(4, 4), w.input(4, 4)
    early = w.extern(aten.mm.default, w.op("tanh", x), x, shape=(4, 4))
    turned = w.op("exp", layout.permute(y, (1, 0)))
    graph = w.graph(w.extern(aten.mm.default, early, turned, shape=(4, 4)))
    assert overlaid(graph, x, y) == [None, None]


def test_a_value_made_while_rows_are_summed_is_stored_once_the_sums_are_known() -> None:
    """As in backward of attention: a softmax that backward reads, and what dropout made of it."""
    w = LoopWriter()
    scores, came = w.input(4, 64), w.input(4, 64)
    dropped = w.op("mul", scores, scores)
    total = w.reduce("sum", w.op("mul", scores, came), [1], keepdim=True)
    back = w.op("mul", scores, w.op("sub", came, total))
    graph = w.graph(dropped, back)
    assert sorted(map(str, overlaid(graph, scores, came))) == sorted((scores.buffer, came.buffer))


def gradients(rows: int, *, later: bool = False) -> tuple[LoopGraph, list[str]]:
    """Backward of two linear layers on so many rows, and its products of matrices in the order of the graph. later:
    whether something else reads the first gradient of a weight."""
    w = LoopWriter()
    came, inner, outer = w.input(rows, 32), w.input(rows, 32), w.input(rows, 32)
    weight, second = w.input(32, 32), w.input(32, 32)
    first = w.extern(aten.mm.default, layout.permute(came, (1, 0)), inner, shape=(32, 32))
    through = w.extern(aten.mm.default, came, weight, shape=(rows, 32))
    back = w.op("mul", through, inner)
    last = w.extern(aten.mm.default, layout.permute(back, (1, 0)), outer, shape=(32, 32))
    wide = w.extern(aten.mm.default, back, second, shape=(rows, 32))
    returned = [first, last, w.op("exp", wide)]
    graph = w.graph(*returned, *([w.op("sin", first)] if later else []))
    return graph, [first.buffer, through.buffer, last.buffer, wide.buffer]


def products(plan: KernelPlan) -> list[str | None]:
    return [step.outputs[0] for step in plan.steps if isinstance(step, ExternCall)]


@pytest.mark.parametrize(("rows", "waits"), [(2, True), (256, False)], ids=["few rows", "many rows"])
def test_a_large_gradient_of_a_weight_is_made_last(rows: int, waits: bool) -> None:
    graph, (first, through, last, wide) = gradients(rows)
    plan = schedule(graph, context(()))
    assert products(plan) == ([through, wide, first, last] if waits else [first, through, last, wide])
    args = LoopWriter().arguments(graph)
    torch.testing.assert_close(run_plan(plan, args), run_loops(graph, args))


def test_what_is_read_again_is_not_postponed() -> None:
    graph, (first, through, last, wide) = gradients(2, later=True)
    assert products(schedule(graph, context(()))) == [through, first, wide, last]  # `last` is, `first` only gives way


def test_what_would_hold_its_operand_over_the_peak_is_not_postponed() -> None:
    """Another product reads the operand last, and lets it go before the peak; a larger gradient waits."""
    w = LoopWriter()
    large = w.extern(aten.mm.default, w.input(128, 1), w.input(1, 128), shape=(128, 128))
    came, inner = w.input(32, 64), w.input(32, 32)
    first = w.extern(aten.mm.default, layout.permute(inner, (1, 0)), came, shape=(32, 64))
    narrow = w.extern(aten.mm.default, layout.permute(came, (1, 0)), w.input(32, 1), shape=(64, 1))
    wide = w.extern(aten.mm.default, narrow, w.input(1, 512), shape=(64, 512))
    last = w.extern(aten.mm.default, wide, w.input(512, 1), shape=(64, 1))
    graph = w.graph(first, last, large)
    plan = schedule(graph, context(()))
    assert products(plan) == [value.buffer for value in (first, narrow, wide, last, large)]
    args = LoopWriter().arguments(graph)
    torch.testing.assert_close(run_plan(plan, args), run_loops(graph, args))


def test_inputs_in_one_memory_count_once_until_the_last_of_them_is_read() -> None:
    w = LoopWriter()
    one, other = w.input(32, 32), w.input(32, 32)
    rows = w.extern(aten.mm.default, one, w.input(32, 1), shape=(32, 1))
    graph = w.graph(w.extern(aten.mm.default, layout.permute(rows, (1, 0)), other, shape=(1, 32)))
    alone = usage(schedule(graph, context(())).steps, graph.buffers, graph)
    views = attrs.evolve(graph, shared_inputs=(frozenset((one.buffer, other.buffer)),))
    found = usage(schedule(views, context(())).steps, graph.buffers, views)
    assert [a[1] - f[1] for a, f in zip(alone, found, strict=True)] == [8 * 32 * 32, 0]
    assert [a[0] for a in alone] == [f[0] for f in found]


@pytest.mark.parametrize(("workspace", "waits"), [(0, False), (1 << 14, True)], ids=["no memory", "much memory"])
def test_a_copy_is_made_once_a_call_that_takes_memory_has_run(workspace: int, waits: bool) -> None:
    """As in backward of a convolution, where the gradient of the image needs another layout than that of the weight."""
    w = LoopWriter()
    came = w.op("exp", w.input(64, 32))
    turned = w.copy(layout.permute(came, (1, 0)))
    first = w.extern(aten.mm.default, came, w.input(32, 4), shape=(64, 4), workspace=workspace)
    second = w.extern(aten.mm.default, turned, w.input(64, 64), shape=(32, 64))
    graph = w.graph(first, second)
    plan = schedule(graph, context(()))
    call = next(number for number, step in enumerate(plan.steps) if isinstance(step, ExternCall))
    made = next(n for n, step in enumerate(plan.steps) if isinstance(step, Allocate) and step.buffer == turned.buffer)
    assert (made > call) is waits
    assert max(step.bytes for step in memory_steps(plan)) >= workspace + 4 * 64 * 32
    args = w.arguments(graph)
    torch.testing.assert_close(run_plan(plan, args), run_loops(graph, args))


@pytest.mark.parametrize("read_again", [False, True], ids=["once", "with a loss"])
def test_what_is_returned_is_made_in_the_memory_of_a_product(read_again: bool) -> None:
    """The end of a language model: logits with three axes are a product of two with a bias, and a loss reads the rows
    more than once."""
    w = LoopWriter()
    rows = w.extern(aten.mm.default, w.input(6, 4), w.input(4, 40), shape=(6, 40))
    logits = w.op("add", layout.reshape(rows, (2, 3, 40)), w.input(40))
    flat = layout.reshape(logits, (6, 40))
    most = w.reduce("max", flat, [1], keepdim=True)
    sums = w.reduce("sum", w.op("exp", w.op("sub", flat, most)), [1], keepdim=True)
    graph = w.graph(logits, *([most, sums] if read_again else []))
    plan = schedule(graph, context(()))
    assert len(plan.launches) == 1
    assert taken_over(plan, logits.buffer) == rows.buffer
    args = w.arguments(graph)
    torch.testing.assert_close(run_plan(plan, args), run_loops(graph, args))


def interactions(rows: int) -> tuple[LoopGraph, str, str]:
    """As in a recommender: a value is part of a join, products of that are joined with the value again. The graph, and
    the joins."""
    w = LoopWriter()
    bottom = w.op("tanh", w.input(rows, 4))
    tables = [w.extern(aten.mm.default, w.input(rows, 8), w.input(8, 4), shape=(rows, 4)) for _ in range(3)]
    early = w.join([bottom, *tables])
    products = w.extern(aten.mm.default, w.input(rows, 4 * rows), early, shape=(rows, 4))
    late = w.join([bottom, w.op("exp", products)])
    graph = w.graph(w.extern(aten.mm.default, w.input(2, 2 * rows), late, shape=(2, 4)))
    return graph, early.buffer, late.buffer


def test_a_part_of_a_join_is_stored_once_its_other_parts_are_known() -> None:
    graph, early, late = interactions(64)
    plan = schedule(graph, context(()))
    allocated = [step.buffer for step in plan.steps if isinstance(step, Allocate)]
    calls = [number for number, step in enumerate(plan.steps) if isinstance(step, ExternCall)]
    (made,) = [n for n, step in enumerate(plan.steps) if isinstance(step, Allocate) and step.buffer == late]
    assert allocated.index(early) < allocated.index(late)
    assert made > calls[3]  # after the products
    assert peak(plan) == 8 * 4 * 64 * 7  # three tables and what they are joined to
    verify(plan)
    args = LoopWriter().arguments(graph)
    torch.testing.assert_close(run_plan(plan, args), run_loops(graph, args))


@pytest.mark.parametrize("copies", [2, 3, 4])
def test_of_stores_that_wait_for_the_same_value_one_is_made_where_the_value_is(copies: int) -> None:
    w = LoopWriter()
    bottom = w.op("sin", w.input(64, 4))
    early = w.op("tanh", bottom)  # of the same kernel, which is why it does not wait itself
    tables = [w.extern(aten.mm.default, w.input(64, 64), early, shape=(64, 4)) for _ in range(20)]
    rows = w.extern(aten.mm.default, w.input(64, 20 * 64), w.join(tables), shape=(64, 4))
    ends = []
    for _ in range(copies):
        rows = w.extern(aten.mm.default, rows, w.input(4, 4), shape=(64, 4))
        ends.append(w.extern(aten.mm.default, layout.permute(rows, (1, 0)), w.copy(bottom), shape=(4, 4)))
    graph = w.graph(*ends)
    plan = schedule(graph, context(()))
    verify(plan)
    args = w.arguments(graph)
    for got, expected in zip(run_plan(plan, args), run_loops(graph, args), strict=True):
        torch.testing.assert_close(got, expected)


def test_a_part_is_stored_with_its_value_where_that_costs_no_memory() -> None:
    """The tables are given, so that the peak is at the end."""
    w = LoopWriter()
    bottom = w.op("tanh", w.input(8, 4))
    early = w.join([bottom, w.input(8, 4)])
    products = w.extern(aten.mm.default, w.input(8, 16), early, shape=(8, 4))
    late = w.join([bottom, w.op("exp", products)])
    graph = w.graph(w.extern(aten.mm.default, w.input(64, 16), late, shape=(64, 4)))
    plan = schedule(graph, context(()))
    assert late.buffer in plan.kernels[0].writes


def test_what_lets_go_more_goes_first() -> None:
    """Backward of the second of two layers: the gradient of its weight lets go what the first layer made, and the
    gradient of that finds room there."""
    w = LoopWriter()
    came, turned, inner, outer = w.input(64, 8), w.input(8, 64), w.input(64, 32), w.input(8, 64)
    through = w.extern(aten.mm.default, came, w.input(8, 32), shape=(64, 32))
    gradient = w.extern(aten.mm.default, turned, inner, shape=(8, 32))
    first = w.extern(aten.mm.default, outer, through, shape=(8, 32))
    graph = w.graph(gradient, first)
    plan = schedule(graph, context(()))
    assert products(plan)[:2] == [gradient.buffer, through.buffer]
    args = LoopWriter().arguments(graph)
    torch.testing.assert_close(run_plan(plan, args), run_loops(graph, args))


def test_draws_of_random_numbers_keep_their_order() -> None:
    w = LoopWriter()
    small, large = w.input(4, 4), w.input(64, 64)
    wide = w.extern(aten.rand_like.default, large, shape=(64, 64))
    narrow = w.extern(aten.rand_like.default, small, shape=(4, 4))
    graph = w.graph(narrow, w.reduce("sum", wide, [0, 1]))
    assert products(schedule(graph, context(())))[:2] == [wide.buffer, narrow.buffer]


def modulated(device: str = "cpu") -> tuple[LoopGraph, str, str]:
    """As in a transformer for diffusion: a wide product of a small value, needed behind the peak. The graph, that
    product, and the widest value."""
    w = LoopWriter()
    small, weight, x = w.input(2, 4), w.input(4, 64), w.input(32, 64)
    shift = w.extern(aten.mm.default, small, weight, shape=(2, 64))
    wide = w.extern(aten.mm.default, x, w.input(64, 128), shape=(32, 128))
    narrow = w.extern(aten.mm.default, wide, w.input(128, 64), shape=(32, 64))
    moved = w.op("add", layout.reshape(narrow, (16, 2, 64)), shift)
    return w.graph(moved), shift.buffer, wide.buffer


def test_what_is_read_behind_the_peak_is_made_there() -> None:
    """The caller holds the weight, so that nothing is let go when the product is made."""
    graph, shift, wide = modulated()
    held = attrs.evolve(graph, lasting=frozenset(graph.inputs))
    plan = schedule(held, context(()))
    assert products(plan).index(shift) > products(plan).index(wide)
    assert peak(plan) == 8 * 32 * (128 + 64)
    args = LoopWriter().arguments(graph)
    torch.testing.assert_close(run_plan(plan, args), run_loops(graph, args))


def test_a_product_that_lets_go_its_operand_is_made_at_once() -> None:
    graph, shift, wide = modulated()
    plan = schedule(graph, context(()))
    assert products(plan).index(shift) < products(plan).index(wide)


def layers(sizes: tuple[int, ...]) -> LoopGraph:
    """Products of matrices, each with a value computed of a weight with so many columns."""
    w = LoopWriter()
    changed = [layout.reshape(w.op("exp", w.input(32 * n)), (32, n)) for n in sizes]
    value = w.input(32, 32)
    for matrix in changed:
        rows = w.extern(aten.mm.default, value, matrix, shape=(32, matrix.shape[1]))
        value = w.extern(aten.mm.default, rows, w.input(matrix.shape[1], 32), shape=(32, 32))
    graph = w.graph(value)
    return attrs.evolve(graph, lasting=frozenset(graph.inputs))


@pytest.mark.parametrize(("sizes", "largest"), [((32, 32, 32), 1), ((512, 1, 1), 3)], ids=["alike", "small ones"])
def test_a_batch_is_divided_where_its_results_would_wait_for_much_longer(sizes: tuple[int, ...], largest: int) -> None:
    graph = layers(sizes)
    plan = schedule(graph, context(()))
    members = [len(work.members) if isinstance(work, Batch) else 1 for work in plan.launches]
    assert max(members) == largest and sum(members) == 3
    if largest == 1:
        assert peak(plan) == 3 * 8 * 32 * 32
    args = LoopWriter().arguments(graph)
    torch.testing.assert_close(run_plan(plan, args), run_loops(graph, args))


def summed(of: str = "neg") -> tuple[LoopGraph, str, str]:
    """As in a factorisation machine: what a product reads is summed, too, and the sums are needed behind the products.
    The graph, the sums, and the second product."""
    w = LoopWriter()
    value = w.op(of, w.input(32, 12, 16))
    sums = w.reduce("sum", value, [1])
    wide = w.extern(aten.mm.default, layout.reshape(value, (32, 192)), w.input(192, 64), shape=(32, 64))
    narrow = w.extern(aten.mm.default, wide, w.input(64, 16), shape=(32, 16))
    return w.graph(w.op("add", narrow, sums)), sums.buffer, narrow.buffer


def test_sums_that_are_read_behind_the_peak_are_computed_there_of_the_inputs() -> None:
    graph, sums, narrow = summed()
    plan = schedule(attrs.evolve(graph, lasting=frozenset(graph.inputs)), context(()))
    verify(plan)
    assert peak(plan) == 8 * 32 * (192 + 64)
    first, second, _ = plan.kernels
    assert second.writes == (sums,)
    assert not first.inner  # what is left reduces nothing
    made = [step.outputs[0] if isinstance(step, ExternCall) else getattr(step, "buffer", None) for step in plan.steps]
    assert made.index(sums) > made.index(narrow)
    args = LoopWriter().arguments(graph)
    torch.testing.assert_close(run_plan(plan, args), run_loops(graph, args))


@pytest.mark.parametrize(("of", "held"), [("tan", True), ("neg", False)], ids=["costly", "input let go"])
def test_other_sums_are_computed_with_what_they_sum(of: str, held: bool) -> None:
    """Those that cost much, and those of an input that would be held for them."""
    graph, sums, _ = summed(of)
    plan = schedule(attrs.evolve(graph, lasting=frozenset(graph.inputs if held else ())), context(()))
    assert sums in plan.kernels[0].writes


def layered(count: int, padded: bool = False) -> LoopGraph:
    """As in a network whose result is the sum of what each layer puts aside: a part of its product. padded: each with
    the part before, and zeros around them."""
    w = LoopWriter()
    before: list[TensorValue] = []
    x, total = w.input(8, 16), w.op("neg", w.input(10, 16) if padded else w.input(8, 16))
    for _ in range(count):
        wide = w.extern(aten.mm.default, x, w.input(16, 64), shape=(8, 64))
        x = w.op("tanh", layout.slice_axis(wide, 1, 0, 16))
        part = w.op("exp", layout.slice_axis(wide, 1, 32, 16))
        if padded:
            before.append(part)
            part = w.pad(w.op("add", *before[-2:]) if before[1:] else part, 0)
        total = w.op("add", total, part)
    return w.graph(total)


def test_a_sum_of_what_layers_put_aside_is_begun_before_the_last_one() -> None:
    graph = layered(6)
    plan = schedule(attrs.evolve(graph, lasting=frozenset(graph.inputs)), context(()))
    verify(plan)
    assert peak(plan) < 8 * 8 * (4 * 64)  # of 6 * 64 columns
    args = LoopWriter().arguments(graph)
    torch.testing.assert_close(run_plan(plan, args), run_loops(graph, args))


def test_a_sum_that_would_let_go_little_is_one_kernel() -> None:
    """As of gradients: another kernel would move half as much again."""
    w = LoopWriter()
    x = w.input(8, 16)
    parts = [w.extern(aten.mm.default, x, w.input(16, 16), shape=(8, 16)) for _ in range(2)]
    wide = w.extern(aten.mm.default, x, w.input(16, 32), shape=(8, 32))
    narrow = w.extern(aten.mm.default, wide, w.input(32, 16), shape=(8, 16))
    total = w.op("add", w.op("add", *parts), narrow)
    assert len(schedule(w.graph(total), context(())).kernels) == 1


@pytest.mark.parametrize("padded", [False, True])
def test_a_sum_may_be_begun_anywhere(padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the peak is, both parts together compute the sum."""
    graph = layered(4, padded)
    args = LoopWriter().arguments(graph)
    expected = run_loops(graph, [arg.clone() for arg in args])
    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr(scheduling, "plan_memory", lambda *given: seen.append(given) or plan_memory(*given))
    plan = schedule(graph, context(()))
    [(work, loops, buffers)] = seen
    begun = [late.begun(work, loops, buffers, place) for place in range(len(work))]
    assert max(map(len, begun)) == len(work) + 1
    for order in begun:
        changed = attrs.evolve(plan, steps=plan_memory(order, loops, buffers))
        verify(changed)
        torch.testing.assert_close(run_plan(changed, [arg.clone() for arg in args]), expected)
