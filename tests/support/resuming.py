"""Runs a function with its graph breaks resumed, and in eager mode: all that can be seen must agree."""

from __future__ import annotations

import contextlib
import io
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import attrs
import torch

import armature
from armature.api.options import Options
from armature.api.public import wrap
from armature.errors import ArmatureWarning
from armature.frame.hook import FrameHook
from armature.pipeline.compiler import Compiler
from armature.pipeline.session import Compilation, Outcome, Session, session
from armature.testing.differential import difference
from armature.torch_abi.eval_frame import Key
from tests.support.tracing import chain, comparable


@attrs.frozen(eq=False)
class Run:
    """What one call has done. `trace`: the lines of an exception's traceback in the file of the function."""

    result: Any
    printed: str
    error: BaseException | None
    trace: tuple[tuple[str, int], ...]
    args: tuple[Any, ...]


@attrs.frozen(eq=False)
class Resumed:
    """What was compiled."""

    records: tuple[Compilation, ...]

    @property
    def graphs(self) -> list[list[str]]:
        """Per graph, what it calls."""
        return [
            [
                getattr(node.target, "__name__", str(node.target))
                for node in record.module.graph.nodes
                if "call" in node.op
            ]
            for record in self.records
            if record.module is not None and record.outcome is Outcome.COMPILED
        ]

    @property
    def breaks(self) -> list[str]:
        """Ids of the breaks that were resumed, in the order in which they were met."""
        return [
            event.type.id for record in self.records if record.outcome is Outcome.COMPILED for event in record.breaks
        ]

    @property
    def eager(self) -> list[str]:
        """Functions that were left to eager mode by a break."""
        return [record.function for record in self.records if record.outcome is Outcome.BREAK]

    @property
    def compilations(self) -> int:
        """How many frames were looked at."""
        return len(self.records)


def compiled(fn: Callable[..., Any], backend: Any = None) -> tuple[Callable[..., Any], Session]:
    """The function compiled with a backend that runs graphs as they are, and its records."""
    records = session().separate()
    chosen = backend or as_it_is
    return wrap(fn, FrameHook(Compiler(chosen, records=records), Key()), Options(backend=chosen)), records


def as_it_is(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """A backend that runs the graph operator by operator."""
    return module.forward


def run(fn: Callable[..., Any], file: str, args: tuple[Any, ...]) -> Run:
    """One call."""
    printed = io.StringIO()
    result: Any = None
    error: BaseException | None = None
    trace: tuple[tuple[str, int], ...] = ()
    torch.manual_seed(0)
    with contextlib.redirect_stdout(printed):
        try:
            result = fn(*args)
        except Exception as raised:
            error = raised
            found = traceback.extract_tb(raised.__traceback__)
            trace = tuple((line.name, line.lineno or 0) for line in found if line.filename == file)
    return Run(result, printed.getvalue(), error, trace, args)


def resumes(
    fn: Callable[..., Any], make: Callable[[], tuple[Any, ...]], *, calls: int = 2, backend: Any = None
) -> Resumed:
    """Call it several times, compiled and not, on fresh arguments; later calls compile nothing that is not new."""
    mine, records = compiled(fn, backend)
    file = fn.__code__.co_filename
    for _ in range(calls):
        grad = torch.is_grad_enabled()
        theirs = run(fn, file, make())
        ours = run(mine, file, make())
        assert torch.is_grad_enabled() == grad, "the grad mode is not as before"
        compare(theirs, ours)
    return Resumed(tuple(records.compilations))


def compare(theirs: Run, ours: Run) -> None:
    """Raises AssertionError where two runs differ."""
    assert type(ours.error) is type(theirs.error), f"{ours.error!r} instead of {theirs.error!r}"
    assert str(ours.error) == str(theirs.error)
    assert ours.trace == theirs.trace, f"traceback {ours.trace} instead of {theirs.trace}"
    assert list(chain(ours.error)) == list(chain(theirs.error))
    assert ours.printed == theirs.printed
    assert difference(comparable(theirs.result), comparable(ours.result)) <= 1e-6
    assert type(ours.result) is type(theirs.result)
    assert difference(comparable(theirs.args), comparable(ours.args)) <= 1e-6


def in_one_graph(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """What must run its graph: a graph that fails is a warning otherwise."""
    made = armature.compile(fn, fullgraph=True, **options)

    def call(*args: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ArmatureWarning)
            return made(*args)

    return call
