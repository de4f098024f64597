"""Every change of order that a plan of memory may choose keeps what the work computes, wherever the peak may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import attrs
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor

from armature.lower.data import Buffer, LoopGraph
from armature.schedule import late
from armature.schedule import schedule as scheduling
from armature.schedule.data import Step
from armature.schedule.late import Unit, apart, begun, delayed, divided, postponed, recomputed
from armature.schedule.memory import plan_memory
from armature.schedule.swaps import swapped
from armature.schedule.verify import verify
from armature.testing.loop_evaluator import run_loops
from armature.testing.lowering_kit import context
from tests.support.loop_graphs import loop_graphs
from tests.support.plan_kit import run_plan

Change: TypeAlias = Callable[[Sequence[Unit], LoopGraph, Mapping[str, Buffer], int], list[Unit]]


@pytest.mark.parametrize("change", [postponed, apart, delayed, divided, recomputed, begun, swapped])
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(drawn=loop_graphs(16))
def test_a_change_of_order_keeps_the_results(change: Change, drawn: tuple[LoopGraph, list[Tensor]]) -> None:
    graph, args = drawn
    expected = run_loops(graph, [arg.clone() for arg in args])
    seen: list[tuple[Sequence[Unit], LoopGraph, Mapping[str, Buffer]]] = []

    def planning(work: Sequence[Unit], loops: LoopGraph, buffers: Mapping[str, Buffer]) -> tuple[Step, ...]:
        seen.append((work, loops, buffers))
        return plan_memory(work, loops, buffers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling, "plan_memory", planning)
        plan = scheduling.schedule(graph, context(()))
    [(work, loops, buffers)] = seen
    for peak in range(len(work)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(late, "BEGUN", 0)  # whatever it saves
            order = change(work, loops, buffers, peak)
        changed = attrs.evolve(plan, steps=plan_memory(order, loops, buffers))
        verify(changed)
        for got, wanted in zip(run_plan(changed, [arg.clone() for arg in args]), expected, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9, equal_nan=True)
