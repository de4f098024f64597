"""Contexts of torch that do not affect a graph."""

from __future__ import annotations

import contextlib

import attrs

from armature.plugin_api import ContextValue, Rebuilding, Tracing, Value


@attrs.define(eq=False)
class NullContextValue(ContextValue):
    """A context manager that does nothing while tracing."""

    def enter(self, tracer: Tracing) -> Value:
        return self

    def leave(self, tracer: Tracing) -> None:
        return None

    def clone(self) -> Value:
        return NullContextValue(self.kind)

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(contextlib.nullcontext)
        out.call(0)
