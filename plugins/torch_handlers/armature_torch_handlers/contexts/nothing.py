"""Contexts of torch that do not affect a graph."""

from __future__ import annotations

import attrs

from armature.plugin_api import Args, ContextValue, Kwargs, Rebuilding, Tracing, Value


@attrs.define(eq=False)
class NullContextValue(ContextValue):
    """A context manager that does nothing while tracing. args, kwargs: what its class was called with."""

    args: Args = attrs.field(default=(), kw_only=True)
    kwargs: Kwargs = attrs.field(factory=dict, kw_only=True)

    def enter(self, tracer: Tracing) -> Value:
        return self

    def leave(self, tracer: Tracing) -> None:
        return None

    def clone(self) -> Value:
        return NullContextValue(self.kind, args=self.args, kwargs=self.kwargs)

    def rebuild(self, out: Rebuilding) -> None:
        out.spread(self.kind, tuple(self.args), dict(self.kwargs))
