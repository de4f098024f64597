"""TorchScript. A call of a function is its operators in the graph, or a node for it; modules break the graph."""

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
    ObjectValue,
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

        def python(function: object, given: Args, named: Kwargs) -> Value:
            return tracer.as_value(function).call(tracer, given, named)

        found = scripts.as_operators(fn, args, kwargs, tracer.as_value, makers, tracer.graph.call, python)
        whole = scripts.scripted(fn, **{UNCOMPILED: scripts.written_by(fn)})
        return tracer.graph.call(whole, args, kwargs) if found is None else found


def of_program(fn: Callable[..., object], source: Source, tracer: Tracing) -> Value:
    """A function in TorchScript, guarded by identity."""
    tracer.guards.same(source, fn)
    return ScriptedValue(fn, source=source)


class CompiledObject(ObjectValue):
    """A module in TorchScript, or a method of one: the graph ends before a call of it."""

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        method = isinstance(self.obj, torch.ScriptMethod)
        tracer.graph_break("torch-script", function=f"method {self.obj.name}" if method else self.describe())


def of_compiled_object(obj: object, source: Source, tracer: Tracing) -> Value:
    """The value of such a module or method."""
    tracer.guards.type_is(source, type(obj))
    return tracer.objects.remember(obj, CompiledObject(type(obj), obj, source=source))


VALUE_TYPES = (
    ValueType(torch.jit.ScriptFunction, of_program),
    ValueType(torch.ScriptMethod, of_compiled_object),
    ValueType(torch.jit.ScriptModule, of_compiled_object, derived=True),
)
