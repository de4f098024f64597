"""Profiler ranges, and profilers whose records are never read. A compiled graph has no ranges inside, so entering one
does nothing."""

from __future__ import annotations

from typing import NoReturn, cast

import attrs

from armature.plugin_api import (
    Call,
    GraphBreak,
    Location,
    Rebuilding,
    Source,
    Tracing,
    Value,
    ValueType,
    existing,
    handles,
    locations_of,
)
from armature_torch_handlers.contexts.nothing import NullContextValue

RANGES = existing("torch.autograd.profiler.record_function")
PROFILERS = existing("torch.profiler.profile", "torch.autograd.profiler.profile")
# Arguments that only say what is recorded. Others call functions of the program, or take effect outside.
OF_RECORDS = frozenset({
    "acc_events", "activities", "enabled", "profile_memory", "record_shapes", "use_cpu", "with_flops", "with_modules",
    "with_stack",
})  # fmt: skip


@attrs.define(eq=False)
class ProfilerValue(NullContextValue):
    """A profiler made in the frame. made_at: where, for the graph to end there if its records are read after all."""

    made_at: tuple[Location, ...]

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in ("__enter__", "__exit__"):
            return super().get_attribute(tracer, name)
        self.needed(tracer)

    def clone(self) -> Value:
        return ProfilerValue(self.kind, self.made_at)

    def rebuild(self, out: Rebuilding) -> None:
        self.needed(out.tracer)

    def needed(self, tracer: Tracing) -> NoReturn:
        """End the graph where the profiler was made: it has to see what runs from there on."""
        try:
            tracer.graph_break("profiles", function=f"{self.kind.__module__}.{self.kind.__qualname__}")
        except GraphBreak as stop:
            stop.locations = self.made_at
            raise


@handles(*RANGES)
def record_function(call: Call, name: Value, args: Value | None = None) -> Value:
    """A context that does nothing."""
    kind = cast(type, call.fn)
    return NullContextValue(kind, args=(name,) if args is None else (name, args))


@handles(*PROFILERS)
def profile(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """A profiler: it does nothing as long as it is only entered and left."""
    if args or not kwargs.keys() <= OF_RECORDS:
        return None
    kind = cast(type, call.fn)
    return ProfilerValue(kind, locations_of(call.tracing.stack.frames))


def of_program(obj: object, source: Source, tracer: Tracing) -> Value:
    """The value of a range that was made before the frame."""
    return NullContextValue(type(obj), source=source)


VALUE_TYPES = tuple(ValueType(kind, of_program) for kind in RANGES)
