"""A fused plan computes what the loops compute one by one."""

from __future__ import annotations

import attrs
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor

from armature import config
from armature.lower.data import ExternCall, LoopGraph
from armature.lower.verify import verify as verify_loops
from armature.schedule.data import KernelPlan
from armature.schedule.schedule import schedule
from armature.schedule.show import show
from armature.schedule.verify import verify
from armature.testing.loop_evaluator import run_loops
from armature.testing.lowering_kit import context
from tests.support.loop_graphs import loop_graphs
from tests.support.plan_kit import run_plan


def plan_of(graph: LoopGraph, *, fuse: bool = True) -> KernelPlan:
    with config.patch(fuse=fuse):
        plan = schedule(graph, context(()))
    verify(plan)
    return plan


def check(graph: LoopGraph, args: list[Tensor]) -> KernelPlan:
    verify_loops(graph)
    expected_args = [a.clone() for a in args]
    expected = run_loops(graph, expected_args)
    for fuse in (False, True):
        plan = plan_of(graph, fuse=fuse)
        given_args = [a.clone() for a in args]
        text = show(plan)
        for ours, theirs in zip((*run_plan(plan, given_args), *given_args), (*expected, *expected_args), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9, equal_nan=True, msg=text)
    check_over_inputs(graph, args, expected)
    return plan


def check_over_inputs(graph: LoopGraph, args: list[Tensor], expected: tuple[object, ...]) -> None:
    """A plan that makes results in the memory of inputs computes the same."""
    written = {name for work in plan_of(graph).launches for name in work.writes}
    written.update(name for node in graph.nodes if isinstance(node, ExternCall) for name in node.mutates)
    plan = plan_of(attrs.evolve(graph, spare=frozenset(graph.inputs) - written))
    for ours, theirs in zip(run_plan(plan, [a.clone() for a in args]), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9, equal_nan=True, msg=show(plan))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(loop_graphs())
def test_random_graphs(drawn: tuple[LoopGraph, list[Tensor]]) -> None:
    graph, args = drawn
    plan = check(graph, args)
    assert len(plan.kernels) <= len(plan_of(graph, fuse=False).kernels)
