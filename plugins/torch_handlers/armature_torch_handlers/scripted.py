"""Functions in TorchScript: a call of one is its operators in the graph, or a node for the function."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import torch

from armature.plugin_api import (
    UNCOMPILED,
    Args,
    BuiltinValue,
    Decision,
    Kwargs,
    ListValue,
    Source,
    Tracing,
    TupleValue,
    Value,
    ValueType,
    scripts,
)


@attrs.define(eq=False)
class ScriptedValue(BuiltinValue):
    """A function made by `torch.jit.script` or `torch.jit.trace`."""

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        fn = self.fn
        if tracer.calls.goes_first(fn) or tracer.calls.verdict(fn).decision is not Decision.IN_GRAPH:
            return super().call(tracer, args, kwargs)
        if tracer.overrides.present:  # it checks its arguments for overrides itself
            tracer.graph_break("overridden-call", function=getattr(fn, "__name__", str(fn)))
        makers: dict[str, Callable[[list[Value]], Value]] = {scripts.LIST: ListValue, scripts.TUPLE: TupleValue}
        found = scripts.as_operators(fn, args, kwargs, tracer.as_value, makers, tracer.graph.call)
        whole = scripts.scripted(fn, **{UNCOMPILED: scripts.written_by(fn)})
        return tracer.graph.call(whole, args, kwargs) if found is None else found


def of_program(fn: Callable[..., object], source: Source, tracer: Tracing) -> Value:
    """A function in TorchScript, guarded by identity."""
    tracer.guards.same(source, fn)
    return ScriptedValue(fn, source=source)


VALUE_TYPES = (ValueType(torch.jit.ScriptFunction, of_program),)
