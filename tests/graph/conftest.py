"""A context with the ATen lowerings, and a compiler that runs loops with no back end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
import torch

import armature
from armature import config
from armature.context import CompileContext
from armature.graph import functional
from armature.graph.data import AtenGraph
from armature.lower.data import LoopGraph
from armature.lower.lower import lower
from armature.lower.verify import verify
from armature.testing.loop_evaluator import run_loops
from armature.testing.lowering_kit import context
from armature_aten_lowerings import plugin


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    armature.reset()
    torch.manual_seed(0)
    with config.patch(strict=True):
        yield


@pytest.fixture
def compiled_graphs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the graphs for which kernels are made."""
    made: list[str] = []
    compile_one = functional._Compilation.compiled

    def noted(self: Any, graph: Any, kind: Any, ahead: bool = False) -> Any:
        made.append(kind.value)
        return compile_one(self, graph, kind, ahead)

    monkeypatch.setattr(functional._Compilation, "compiled", noted)
    return made


@pytest.fixture
def ctx(strict: None) -> CompileContext:
    return context(
        tuple(plugin.armature_lowerings()),
        decompositions=plugin.armature_decompositions(),
        passes=plugin.armature_passes(),
        operators=plugin.armature_operators(),
    )


@attrs.define(eq=False)
class Evaluator:
    """Stands for all stages after the graph stage; keeps what it was given."""

    graphs: list[AtenGraph] = attrs.field(factory=list)
    loops: list[LoopGraph] = attrs.field(factory=list)

    def __call__(self, aten: AtenGraph, ctx: CompileContext) -> Callable[[list[Any]], tuple[Any, ...]]:
        loops = lower(aten, ctx)
        verify(loops)
        self.graphs.append(aten)
        self.loops.append(loops)
        return lambda args: run_loops(loops, args)

    @property
    def kinds(self) -> list[str]:
        return [g.kind.value for g in self.graphs]


@pytest.fixture
def evaluator() -> Evaluator:
    return Evaluator()
