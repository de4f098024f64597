"""Sums across the rows of a kernel that reduces each row: made by that kernel, in parts."""

from __future__ import annotations

import attrs
import pytest
import torch

from armature.lower.data import LoopGraph
from armature.lower.features import AcrossRows
from armature.lower.values import TensorValue
from armature.schedule.data import FusionRule, Kernel, KernelPlan
from armature.schedule.schedule import schedule
from armature.schedule.show import show
from armature.schedule.verify import verify
from armature.testing.loop_evaluator import run_loops
from armature.testing.lowering_kit import ReferenceBackend, context
from tests.support.loop_graphs import LoopWriter
from tests.support.plan_kit import run_plan

ROWS, WIDTH = 64, 24
ANY = AcrossRows(most=WIDTH, parts=4, shortest=2, least=0)


def planned(writer: LoopWriter, graph: LoopGraph, across: AcrossRows | None = ANY) -> KernelPlan:
    """The plan for a back end with this feature, verified and compared with the loops one by one."""
    plain = ReferenceBackend()
    backend = attrs.evolve(plain, features=attrs.evolve(plain.features, across=across))
    plan = schedule(graph, context((), backend))
    verify(plan)
    args, same = writer.arguments(graph), writer.arguments(graph)
    for ours, theirs in zip((*run_plan(plan, args), *args), (*run_loops(graph, same), *same), strict=True):
        torch.testing.assert_close(ours, theirs, msg=show(plan))
    return plan


def centred(w: LoopWriter, x: TensorValue) -> TensorValue:
    """Each row less its sum."""
    return w.op("sub", x, w.reduce("sum", x, (len(x.shape) - 1,), keepdim=True))


def loaders(plan: KernelPlan, name: str) -> list[Kernel]:
    return [kernel for kernel in plan.kernels if name in kernel.reads]


def test_what_is_read_for_each_row_is_summed_across_rows_too() -> None:
    w = LoopWriter()
    x, y = w.input(ROWS, WIDTH), w.input(ROWS, WIDTH)
    plan = planned(w, w.graph(centred(w, w.op("mul", x, y)), w.reduce("sum", w.op("mul", x, w.op("tanh", y)), (0,))))
    (rows, total) = plan.kernels
    assert len(rows.sums) == 1 and total.reads == rows.sums
    assert plan.buffers[rows.sums[0]].shape == (4, WIDTH)
    assert [v.extent for v in rows.outer] == [4, 16]


def test_what_the_kernel_makes_is_summed_across_rows_too() -> None:
    """The gradient of a bias before a norm."""
    w = LoopWriter()
    x = w.input(ROWS, WIDTH)
    made = centred(w, x)
    plan = planned(w, w.graph(made, w.reduce("sum", made, (0,)), w.op("exp", w.reduce("sum", x, (0,)))))
    assert len(loaders(plan, "in_0")) == 1
    assert not loaders(plan, made.buffer)
    assert sum(len(kernel.sums) for kernel in plan.kernels) == 2


@pytest.mark.parametrize("shape", [(3, 32), (32, 3)])
def test_of_several_axes_of_rows_a_long_one_is_divided(shape: tuple[int, int]) -> None:
    w = LoopWriter()
    x = w.input(*shape, WIDTH)
    plan = planned(w, w.graph(centred(w, x), w.reduce("sum", x, (0, 1))))
    rows, total = plan.kernels
    assert plan.buffers[rows.sums[0]].shape == (3, 2, WIDTH)
    assert total.reads == rows.sums


def test_operators_between_keep_their_order() -> None:
    """What the sums read besides is made by a kernel that has to run first, and a product reads the sums."""
    w = LoopWriter()
    x, a, b = w.input(ROWS, WIDTH), w.input(ROWS, 8), w.input(8, WIDTH)
    made = w.extern(torch.ops.aten.mm.default, a, b, shape=(ROWS, WIDTH))
    out = centred(w, x)
    total = w.reduce("sum", w.op("mul", x, made), (0,), keepdim=True)
    after = w.extern(torch.ops.aten.mm.default, total, w.input(WIDTH, 8), shape=(1, 8))
    plan = planned(w, w.graph(out, after))
    assert any(kernel.sums for kernel in plan.kernels)


@pytest.mark.parametrize(
    "across",
    [
        None,
        attrs.evolve(ANY, most=WIDTH - 1),
        attrs.evolve(ANY, least=8 * ROWS * WIDTH + 1),
        attrs.evolve(ANY, parts=ROWS),
    ],
    ids=["not a feature", "too long", "too small to matter", "parts of one row"],
)
def test_limits_of_the_back_end(across: AcrossRows | None) -> None:
    w = LoopWriter()
    x = w.input(ROWS, WIDTH)
    plan = planned(w, w.graph(centred(w, x), w.reduce("sum", x, (0,))), across)
    assert not any(kernel.sums for kernel in plan.kernels)


def test_a_sum_that_the_rows_need_is_made_before() -> None:
    w = LoopWriter()
    x = w.input(ROWS, WIDTH)
    total = w.reduce("sum", x, (0,), keepdim=True)
    plan = planned(w, w.graph(centred(w, w.op("mul", x, total)), total))
    assert not any(kernel.sums for kernel in plan.kernels)


def test_only_sums_are_made_in_parts() -> None:
    w = LoopWriter()
    x = w.input(ROWS, WIDTH)
    plan = planned(w, w.graph(centred(w, x), w.reduce("max", x, (0,))))
    assert not any(kernel.sums for kernel in plan.kernels)


@pytest.mark.parametrize("before", [True, False])
def test_a_sum_of_what_is_written_over_is_that_before_or_after(before: bool) -> None:
    w = LoopWriter()
    x = w.input(ROWS, WIDTH)
    value = centred(w, x)
    if before:
        total = w.reduce("sum", x, (0,))
    w.write(x, value)
    if not before:
        total = w.reduce("sum", x, (0,))
    planned(w, w.graph(value, total))


def test_users_rules_of_fusion_keep_them_apart() -> None:
    w = LoopWriter()
    x = w.input(ROWS, WIDTH)
    graph = w.graph(centred(w, x), w.reduce("sum", x, (0,)))
    apart = FusionRule("apart", allows=lambda pair: min(pair.one.inner, pair.other.inner) == 1)
    ctx = context((), ReferenceBackend())
    assert any(kernel.sums for kernel in schedule(graph, ctx).kernels)
    tables = attrs.evolve(ctx.tables, fusion_rules=(apart,))
    assert not any(kernel.sums for kernel in schedule(graph, attrs.evolve(ctx, tables=tables)).kernels)
