"""`armature.explain`: runs a function once with its graphs captured but not compiled, and reports the findings."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from torch import fx

from armature.api.options import Options
from armature.api.public import wrap
from armature.breaks.report import ExplainedFrame, ExplainOutput, SkippedFrame
from armature.errors import NotCallable, WrongArgument
from armature.events import EventKind
from armature.frame import skip
from armature.frame.hook import FrameHook
from armature.introspection import describe
from armature.pipeline.compiler import Compiler
from armature.pipeline.session import Compilation, Session, Skip, session
from armature.reports.html import page
from armature.reports.recorder import Recorder
from armature.torch_abi.eval_frame import Key


def explain(fn: Callable[..., Any], *, dynamic: bool | None = None) -> Callable[..., ExplainOutput]:
    """`explain(fn)(*args)` calls `fn` and returns its graphs, graph breaks and guards instead of its result.

    dynamic: as for `armature.compile`. Errors: NotCallable, WrongArgument.
    """
    call = "armature.explain"
    if isinstance(fn, type):
        raise NotCallable(call=call, what=f"the class {fn.__qualname__}", suggestion=": an instance, or a method")
    if not callable(fn):
        raise NotCallable(call=call, what=f"{fn!r:.80} of type {type(fn).__qualname__}")
    if dynamic is not None and not isinstance(dynamic, bool):
        raise WrongArgument(call=call, name="dynamic", value=dynamic, expected="True, False or None")

    def run(*args: Any, **kwargs: Any) -> ExplainOutput:
        records = session().separate()
        recorder = Recorder(name_of(fn), of=records)
        with recorder, session().showing_skipped():
            capturing(fn, records, dynamic)(*args, **kwargs)
        return output_of(records, recorder)

    return run


def capturing(fn: Callable[..., Any], records: Session, dynamic: bool | None = None) -> Callable[..., Any]:
    """Wrap the function or module so that its graphs are added to the records and run operator by operator."""
    options = Options(dynamic=dynamic, backend=as_captured)
    hook = FrameHook(Compiler(as_captured, dynamic=dynamic, records=records), Key())
    wrapped: Callable[..., Any] = wrap(fn, hook, options)
    return wrapped


def as_captured(module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """The backend of `explain`: runs the graph operator by operator."""
    return module.forward


def name_of(fn: object) -> str:
    """The name of a function or module in the report."""
    return describe(fn if isinstance(fn, FunctionType) else type(fn)).name


def output_of(records: Session, recorder: Recorder) -> ExplainOutput:
    """The explanation made from the records."""
    skipped = (_skipped(found) for found in records.skips if found.reason != skip.OWN)
    frames = tuple(_frame(record) for record in records.compilations)
    return ExplainOutput(frames, tuple(skipped), lambda: page(recorder.recording()))


def _skipped(found: Skip) -> SkippedFrame:
    return SkippedFrame(found.function, found.file, found.line, found.reason)


def _frame(record: Compilation) -> ExplainedFrame:
    seconds = {
        event.detail: event.seconds for event in record.events if event.kind is EventKind.STAGE and event.seconds
    }
    return ExplainedFrame(
        function=record.function,
        file=record.file,
        line=record.line,
        outcome=record.outcome.value,
        reason=record.reason,
        graph=record.module,
        guards=record.guards,
        breaks=record.breaks,
        seconds={**seconds, "whole": record.seconds},
    )
