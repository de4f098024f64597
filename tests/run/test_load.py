"""A program loaded: numbers as eager, kernels built aside, tracebacks that show the wrapper."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor, fx

from armature.codegen.data import KernelSource
from armature.codegen.program import generate
from armature.context import CompileContext
from armature.errors import BackendError
from armature.graph.data import AtenGraph, GraphKind
from armature.lower.data import LoopGraph
from armature.run.compiled import load
from armature.run.data import CompiledGraph
from armature.run.show import show
from armature.run.verify import verify
from armature.run.workers import Workers
from armature.schedule.schedule import schedule
from armature.testing.loop_evaluator import run_loops
from armature.testing.lowering_kit import context
from armature.torch_abi.aot import flat
from tests.support.loop_graphs import LoopWriter, loop_graphs
from tests.support.plan_kit import PlanBackend


def compiled(graph: LoopGraph, backend: Any = None, boxed: bool = True) -> CompiledGraph:
    ctx = attrs.evolve(context((), backend or PlanBackend()), workers=Workers(2))
    plan = schedule(graph, ctx)
    holder = fx.Graph()
    for name in graph.inputs:
        holder.placeholder(name)
    holder.output(())
    aten = AtenGraph(graph.name, GraphKind.INFERENCE, fx.GraphModule({}, holder), ())
    found = load(generate(plan, ctx, boxed), aten, graph, plan, ctx)
    verify(found)
    return found


def simple() -> tuple[LoopWriter, LoopGraph]:
    w = LoopWriter()
    return w, w.graph(w.op("tanh", w.input(4, 4)))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(loop_graphs(steps=8))
def test_loaded_program_computes_the_loops(drawn: tuple[LoopGraph, list[Tensor]]) -> None:
    graph, args = drawn
    mine, theirs = [a.clone() for a in args], [a.clone() for a in args]
    call = compiled(graph).call
    found = call(cast(list[object], list(mine)))
    expected = run_loops(graph, theirs)
    for a, b in zip((*found, *mine), (*expected, *theirs), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)


def test_call_empties_its_list() -> None:
    w, graph = simple()
    args: list[object] = list(w.arguments(graph))
    compiled(graph).call(args)
    assert args == []


def test_a_graph_that_takes_its_inputs_one_by_one_is_called_as_it_is() -> None:
    w, graph = simple()
    found = compiled(graph, boxed=False)
    (x,) = w.arguments(graph)
    run = flat(found.call, 1)
    assert cast(Any, run).__code__.co_varnames[:1] == ("in_0",)
    for outputs in (run(x), found.call([x])):
        torch.testing.assert_close(outputs[0], torch.tanh(x))


def test_kernels_are_built_beside_the_caller_and_bound_once() -> None:
    w, graph = simple()
    release = threading.Event()

    class Slow(PlanBackend):
        def build(self, source: KernelSource, ctx: CompileContext) -> Mapping[str, Callable[..., None]]:
            release.wait(10)
            return super().build(source, ctx)

    backend = Slow()
    found = compiled(graph, backend)
    assert backend.builds == 0  # load came back while the build waits
    release.set()
    found.ready()
    (x,) = w.arguments(graph)
    for _ in range(2):
        (out,) = found.call([x])
        torch.testing.assert_close(out, torch.tanh(x))
    assert backend.builds == 1
    assert "call_when_built" not in repr(cast(Any, found.call).__globals__["tanh_0"])


def test_failed_build_is_raised_when_asked_for() -> None:
    error = BackendError(backend="reference", what="graph", message="no compiler", fix="Install one.")
    _, graph = simple()
    found = compiled(graph, PlanBackend(failing=error))
    with pytest.raises(BackendError, match="no compiler"):
        found.ready()


def test_traceback_shows_the_wrapper() -> None:
    w, graph = simple()
    found = compiled(graph)
    with pytest.raises(ValueError) as caught:
        found.call([])
    text = "".join(traceback.format_exception(caught.value))
    assert "(in_0,) = args" in text and "<armature graph" in text


def test_show_names_the_kernels() -> None:
    _, graph = simple()
    text = show(compiled(graph))
    assert "1 kernels" in text and "tanh_0(in_0, tanh_1)" in text
