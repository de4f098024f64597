"""`armature.explain`: run a function once with its graphs captured and not compiled, and tell what was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx, nn

from armature.api_errors import NotCallable
from armature.breaks.report import ExplainedFrame, ExplainOutput
from armature.frame.hook import FrameHook
from armature.options import Key
from armature.pipeline import Compiler
from armature.session import Compilation, Session
from armature.torch_abi.eval_frame import set_eval_frame


def explain(fn: Callable[..., Any], *, dynamic: bool | None = None) -> Callable[..., ExplainOutput]:
    """`explain(fn)(*args)` calls `fn` and gives its graphs, graph breaks and guards, not its result."""
    if not callable(fn):
        raise NotCallable(what=repr(fn), suggestion="")
    target = fn.__dict__.get("__armature_original__", fn) if isinstance(fn, nn.Module) else fn
    target = getattr(target, "__armature_original__", target)

    def run(*args: Any, **kwargs: Any) -> ExplainOutput:
        records = Session()
        hook = FrameHook(Compiler(as_captured, dynamic=dynamic, records=records), Key())
        prior = set_eval_frame(hook)
        try:
            target(*args, **kwargs)
        finally:
            set_eval_frame(prior)
        return output_of(records)

    return run


def as_captured(module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """The backend of `explain`: the graph runs operator by operator."""
    return module.forward


def output_of(records: Session) -> ExplainOutput:
    """What the records say."""
    return ExplainOutput(tuple(_frame(record) for record in records.compilations))


def _frame(record: Compilation) -> ExplainedFrame:
    return ExplainedFrame(
        function=record.function,
        file=record.file,
        line=record.line,
        outcome=record.outcome.value,
        reason=record.reason,
        graph=record.module,
        guards=record.guards,
        breaks=record.breaks,
    )
