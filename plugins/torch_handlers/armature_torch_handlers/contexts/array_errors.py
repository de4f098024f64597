"""`numpy.errstate`: what numpy does at a division by zero, an overflow or an invalid operation.

Arrays in a graph are computed by torch, which reports none of these: a graph needs no setting, and is not made where an
error is to be raised. While tracing the setting is made, for what numpy computes then.
"""

from __future__ import annotations

import attrs

from armature.plugin_api import (
    Call,
    ContextValue,
    Location,
    Rebuilding,
    Tracing,
    Value,
    existing,
    handles,
    locations_of,
)
from armature.plugin_api import numpy_layer as layer

ERRORS = ("all", "divide", "over", "under", "invalid")
QUIET = ("ignore", "warn")
ERRSTATE = existing("numpy.errstate")


@attrs.define(eq=False)
class ErrorStateValue(ContextValue):
    """An `errstate` that is entered once, as numpy demands, and left in the same graph. ways: what to do at which
    error. made_at: where it was made, for the graph to end there if it would end inside."""

    ways: dict[str, str]
    made_at: tuple[Location, ...]
    before: dict[str, str] | None = None  # what numpy did before it was entered

    reenters = False

    def enter(self, tracer: Tracing) -> Value:
        if self.before is not None:
            tracer.graph_break("library-without-tensors", function="numpy.errstate.__enter__")  # numpy may raise
        self.before = layer.set_errors(self.ways)
        tracer.ending.undo.append((layer.set_errors, self.before))
        tracer.effects.entered[self] = None
        return tracer.constant(None)

    def leave(self, tracer: Tracing) -> None:
        if self.before is None or self not in tracer.effects.entered:
            tracer.graph_break("exit-without-enter", type=self.describe())
        tracer.effects.entered.pop(self)
        tracer.ending.undo.remove((layer.set_errors, self.before))
        layer.set_errors(self.before)

    def rebuild(self, out: Rebuilding) -> None:
        if self.before is not None:
            out.cannot(self)
        out.spread(self.kind, (), {name: out.tracer.constant(way) for name, way in self.ways.items()})


@handles(*ERRSTATE)
def errstate(call: Call, **kwargs: Value) -> Value | None:
    """The context manager, for known settings that raise nothing and call nothing."""
    if not kwargs.keys() <= set(ERRORS) or not all(value.is_constant for value in kwargs.values()):
        return None
    known = {name: value.as_constant() for name, value in kwargs.items()}
    ways = {name: way for name, way in known.items() if way is not None}
    if not all(way in QUIET for way in ways.values()):
        return None
    return ErrorStateValue(ERRSTATE[0], ways, locations_of(call.tracing.stack.frames))


def set_inside(tracing: Tracing) -> tuple[tuple[str, str], ...]:
    """What the contexts that are open now have set, over what numpy did before the frame."""
    opened = [context for context in tracing.effects.entered if isinstance(context, ErrorStateValue)]
    return tuple({name: way for context in opened for name, way in layer.errors_of(context.ways).items()}.items())
