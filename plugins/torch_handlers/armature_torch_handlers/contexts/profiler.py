"""Profiler ranges: a compiled graph has no ranges inside, so entering one does nothing."""

from __future__ import annotations

from typing import Any

from armature.plugin_api import (
    Call,
    Source,
    Tracing,
    Value,
    ValueType,
    existing,
    handles,
)
from armature_torch_handlers.contexts.nothing import NullContextValue

RANGES = existing("torch.autograd.profiler.record_function")


@handles(*RANGES)
def record_function(call: Call, name: Value, args: Value | None = None) -> Value:
    """A context that does nothing."""
    kind: Any = call.fn
    return NullContextValue(kind)


def of_program(obj: Any, source: Source, tracer: Tracing) -> Value:
    """The value of a range that was made before the frame."""
    return NullContextValue(type(obj), source=source)


VALUE_TYPES = tuple(ValueType(kind, of_program) for kind in RANGES)
