"""Kernels of one structure become one launch, where nothing that matters changes by it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from armature import config
from armature.errors import InvariantError
from armature.lower import layout
from armature.lower.data import ExternCall, LoopGraph
from armature.lower.values import TensorValue
from armature.schedule.batch import Binding, batched, body_of
from armature.schedule.data import Allocate, Batch, Kernel, KernelPlan, Launch
from armature.schedule.schedule import schedule
from armature.schedule.show import show
from armature.schedule.verify import verify
from armature.testing.loop_evaluator import run_loops
from armature.testing.lowering_kit import context
from tests.support.loop_graphs import LoopWriter
from tests.support.plan_kit import run_plan

aten = torch.ops.aten
SHAPES = ((4, 5), (7,), (3, 2, 2), (6,))


def planned(writer: LoopWriter, graph: LoopGraph, **changes: object) -> KernelPlan:
    """The plan, verified and compared with the loops one by one."""
    with config.patch(**changes):
        plan = schedule(graph, context(()))
    verify(plan)
    args = writer.arguments(graph)
    expected_args = [a.clone() for a in args]
    expected = run_loops(graph, expected_args)
    for ours, theirs in zip((*run_plan(plan, args), *args), (*expected, *expected_args), strict=True):
        torch.testing.assert_close(ours, theirs, msg=show(plan))
    return plan


def batches_of(plan: KernelPlan) -> list[Batch]:
    return [work for work in plan.launches if isinstance(work, Batch)]


def momentum(w: LoopWriter, shapes: Sequence[tuple[int, ...]]) -> list[tuple[TensorValue, TensorValue]]:
    """A step of an optimizer, operator by operator over all tensors."""
    held = [(w.input(*s), w.input(*s), w.input(*s)) for s in shapes]
    moved = [w.op("add", w.op("mul", m, 0.9), g) for _, g, m in held]
    stepped = [w.op("sub", p, w.op("mul", m, 0.1)) for (p, _, _), m in zip(held, moved, strict=True)]
    for (p, _, m), new_p, new_m in zip(held, stepped, moved, strict=True):
        w.write(p, new_p)
        w.write(m, new_m)
    return [(p, m) for p, _, m in held]


def test_a_step_over_a_list_is_one_launch() -> None:
    w = LoopWriter()
    momentum(w, SHAPES)
    plan = planned(w, w.graph())
    (batch,) = plan.launches
    assert isinstance(batch, Batch) and len(batch.members) == len(SHAPES) == len(plan.kernels)
    body = body_of(batch, plan.buffers)
    assert [row.points for row in body.rows] == [20, 7, 12, 6]
    assert len(body.slots) == 3 and len(body.kernel.writes) == 2
    assert [s.name for s in body.kernel.sizes] == ["points"]
    assert batch.operators == sum(k.operators for k in plan.kernels) and not batch.sizes


def test_equal_sizes_stay_numbers() -> None:
    w = LoopWriter()
    momentum(w, [(4, 4), (16,), (2, 8)])
    plan = planned(w, w.graph())
    (batch,) = batches_of(plan)
    assert body_of(batch, plan.buffers).kernel.outer[0].extent == 16


def test_without_fusion_each_kernel_is_launched_by_itself() -> None:
    w = LoopWriter()
    momentum(w, SHAPES)
    assert not batches_of(planned(w, w.graph(), fuse=False))


def test_numbers_at_other_places_of_one_buffer() -> None:
    """Bias corrections: each tensor has its own element of a vector."""
    w = LoopWriter()
    numbers = w.input(6)
    outs = [w.op("mul", w.input(*shape), layout.select(numbers, 0, k)) for k, shape in enumerate(SHAPES)]
    plan = planned(w, w.graph(*outs))
    (batch,) = batches_of(plan)
    rows = body_of(batch, plan.buffers).rows
    assert [row.bindings[1] for row in rows] == [Binding("in_0", k) for k in range(len(SHAPES))]


def test_what_needs_another_is_no_member() -> None:
    w = LoopWriter()
    x = w.input(8)
    steps = [x]
    for _ in range(3):
        steps.append(w.extern(aten.relu.default, w.op("tanh", steps[-1]), shape=(8,)))
    plan = planned(w, w.graph(steps[-1]))
    assert len(plan.kernels) == 3 and not batches_of(plan)


def test_kernels_do_not_pass_an_operator_that_is_called() -> None:
    """All casts of weights at the start would hold all of them at once."""
    w = LoopWriter()
    inputs = [w.input(8) for _ in range(3)]
    outs = [w.extern(aten.relu.default, w.op("tanh", x), shape=(8,)) for x in inputs]
    plan = planned(w, w.graph(*outs))
    assert [isinstance(s, ExternCall) for s in plan.steps if isinstance(s, (ExternCall, Launch))] == [False, True] * 3


def test_other_structure_is_another_batch() -> None:
    w = LoopWriter()
    outs = []
    for k, shape in enumerate((*SHAPES, *SHAPES)):
        outs.append(w.op("tanh" if k < len(SHAPES) else "sigmoid", w.input(*shape)))
    for shape in SHAPES:
        outs.append(w.op("mul", w.input(*shape), w.input(*shape)))
    shared = w.input(7)
    outs.append(w.op("mul", shared, shared))  # one buffer in place of two
    plan = planned(w, w.graph(*outs))
    assert sorted(len(b.members) for b in batches_of(plan)) == [4, 4, 4]
    assert len(plan.launches) == 4


def test_results_take_the_place_of_operands_in_all_members_or_in_none() -> None:
    def plan(keep: bool) -> KernelPlan:
        w = LoopWriter()
        made = [w.op("exp", w.input(*shape)) for shape in SHAPES]
        outs = [w.op("tanh", x) for x in made]
        return planned(w, w.graph(*outs, *([made[0]] if keep else [])), max_kernel_nodes=2)

    freed, kept = plan(False), plan(True)
    assert [len(b.members) for b in (*batches_of(freed), *batches_of(kept))] == [len(SHAPES)] * 4
    assert sum(isinstance(s, Allocate) and s.reuse is not None for s in freed.steps) == len(SHAPES)
    assert not batches_of(freed)[1].reads
    assert all(s.reuse is None for s in kept.steps if isinstance(s, Allocate))


def test_batches_are_bounded() -> None:
    """By arguments, and by new memory that is needed at once."""
    w = LoopWriter()
    outs = [w.op("tanh", w.input(n)) for n in range(2, 42)]
    plan = planned(w, w.graph(*outs))
    kernels = plan.kernels
    for most in (0, 1, 8, 20, 80):
        found = batched(kernels, plan.buffers, lambda device, most=most: most)
        flat = [k for work in found for k in (work.members if isinstance(work, Batch) else (work,))]
        assert sorted(k.name for k in flat if isinstance(k, Kernel)) == sorted(k.name for k in kernels)
        assert all(len(b.arguments) <= most for b in found if isinstance(b, Batch))
        assert len(found) == {0: 40, 1: 40, 8: 10, 20: 4, 80: 1}[most]
    w = LoopWriter(dtype=torch.float32)
    big = [w.op("tanh", w.input(6 << 20)) for _ in range(6)]  # 24 MiB each
    outs = [w.extern(aten.sum.default, x, shape=()) for x in big]
    alone = schedule(w.graph(*outs), context(()))
    assert not batches_of(alone)  # one after the other they need less memory
    found = batched([s.kernel for s in alone.steps if isinstance(s, Launch)], alone.buffers, lambda device: 80)
    assert [len(b.members) for b in found if isinstance(b, Batch)] == [2, 2, 2]


def test_verification_refuses_members_that_meet() -> None:
    w = LoopWriter()
    momentum(w, SHAPES[:2])
    plan = planned(w, w.graph())
    (batch,) = batches_of(plan)
    twice = Batch.of([batch.members[0], batch.members[0]])
    steps = tuple(Launch(twice) if isinstance(s, Launch) else s for s in plan.steps)
    with pytest.raises(InvariantError, match="touch one buffer"):
        verify(KernelPlan(plan.name, plan.inputs, {}, plan.buffers, steps, plan.outputs, {}))


def test_a_batch_is_shown_with_its_members() -> None:
    w = LoopWriter()
    momentum(w, SHAPES)
    text = show(planned(w, w.graph()))
    assert "4 times, slot0, slot1, slot2 being" in text and "points 20" in text
    assert text.count("= mul ") == 2  # the body stands once


def test_time_is_near_linear() -> None:
    """Steps of work, counted by what is compared: ten times the list takes about ten times as many."""
    sizes = []
    for count in (20, 200):
        w = LoopWriter()
        momentum(w, [(n + 2,) for n in range(count)])
        plan = schedule(w.graph(), context(()))
        sizes.append(len(plan.launches))
        assert len(plan.kernels) == count
    assert sizes[1] <= 10 * sizes[0]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_random_lists(data: st.DataObject) -> None:
    """Random chains over random members, which read their own tensors, a common one, or another's before it changes."""
    w = LoopWriter()
    shapes = data.draw(st.lists(st.sampled_from([(6,), (2, 3), (4,), (1,), ()]), min_size=2, max_size=5))
    values = [w.input(*s) for s in shapes]
    inputs = list(values)
    common = w.input()
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["tanh", "add", "mul", "extern"]))
        for k, value in enumerate(values):
            other = data.draw(st.sampled_from([value, inputs[k], common]))
            if kind == "tanh":
                values[k] = w.op("tanh", value)
            elif kind == "extern":
                values[k] = w.extern(aten.sigmoid.default, value, shape=value.shape)
            else:
                values[k] = w.op(kind, value, other)
    kept = [v for k, v in enumerate(values) if data.draw(st.booleans())]
    for k, value in enumerate(values):
        if data.draw(st.booleans()):
            w.write(inputs[k], value)
    planned(w, w.graph(*kept))
