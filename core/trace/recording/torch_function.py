"""`__torch_function__` while tracing: which calls a tensor subclass or function mode overrides, and the call of the
override.

Modes are a stack of values that mirrors the program's; the modes that were active when the frame began are at the
bottom. The override is traced into like any function of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodWrapperType
from typing import TYPE_CHECKING, Any

import attrs
import torch

from armature.rules.data import Decision
from armature.torch_abi import overrides as abi
from armature.torch_abi.grad_modes import set_grad_enabled
from armature.torch_abi.overrides import Off
from armature.trace.base import Args, Kwargs, NotConstant, Value, is_not_implemented
from armature.trace.recording import wrapper_subclasses
from armature.trace.recording.overriding import overrides
from armature.trace.values.mapping import DictValue, namespace_of
from armature.trace.values.sequence import ListValue, TupleValue
from armature.trace.values.slices import SliceValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.trace.base import Tracing


@attrs.define(eq=False)
class StandIns:
    """Stand-in objects for values, and the mapping back."""

    tracer: Tracing
    values: dict[int, tuple[object, Value]] = attrs.field(factory=dict)

    def of(self, value: Value) -> Any:
        """The stand-in to call torch with. Raises NotConstant."""
        made = self._stand_in(value)
        self.values[id(made)] = (made, value)
        return made

    def _stand_in(self, value: Value) -> Any:
        known = next((made for made, other in self.values.values() if other is value), None)
        if known is not None:
            return known
        if isinstance(value, TensorValue) or overrides(value):
            return abi.stand_in(value.python_type())
        form = next((form for kind, form in FORMS if isinstance(value, kind)), None)
        return value.as_object() if form is None else form(self, value)

    def value_of(self, obj: Any) -> Value:
        """The value behind an object; for torch's own container of stand-ins, a container of their values."""
        held = self.values.get(id(obj))
        if held is not None and held[0] is obj:
            return held[1]
        if type(obj) is tuple:
            return TupleValue([self.value_of(item) for item in obj])
        if type(obj) is list:
            return ListValue([self.value_of(item) for item in obj])
        if type(obj) is dict:
            return namespace_of(self.tracer, {name: self.value_of(item) for name, item in obj.items()})
        return self.tracer.as_value(obj)


# Stand-ins of values that hold others or a number, by their class.
FORMS: tuple[tuple[type, Callable[[StandIns, Any], Any]], ...] = (
    (ListValue, lambda made, value: [made.of(item) for item in value.items]),
    (TupleValue, lambda made, value: tuple(map(made.of, value.items)) if value.kind is tuple else value.as_object()),
    (SliceValue, lambda made, value: slice(*map(made.of, value.parts))),
    (DictValue, lambda made, value: {str(k.as_constant()): made.of(v) for k, v in value.realise(made.tracer).values()}),
    (SymbolicValue, lambda made, value: value.fake),
)


def dispatched(tracer: Tracing, fn: Callable[..., Any] | str, args: Args, kwargs: Kwargs) -> Value | None:
    """The result of a mode's or an argument's `__torch_function__` for a call; None if nothing overrides it."""
    state = tracer.overrides
    if not state.may_be_overridden([*args, *kwargs.values()]):
        return None
    stand_ins = StandIns(tracer)
    try:
        given = [stand_ins.of(value) for value in args]
        named = {name: stand_ins.of(value) for name, value in kwargs.items()}
    except NotConstant as unknown:
        tracer.graph_break("value-not-known", type=unknown.args[0].describe())
    name = fn if isinstance(fn, str) else getattr(fn, "__name__", str(fn))
    method = getattr(type(given[0]), fn) if isinstance(fn, str) else fn
    try:
        found = abi.override_call(method, given, named, modes=state.has_modes)
    except Exception as error:
        tracer.graph_break("operator-failed", operation=name, message=f"{type(error).__name__}: {error}")
    if found is None:
        return None
    function, types, *rest = found
    asked = [tracer.as_value(function), TupleValue([tracer.as_value(kind) for kind in types])]
    asked += [stand_ins.value_of(part) for part in rest]
    return _ask(tracer, types, asked, name)


def _ask(tracer: Tracing, types: tuple[type, ...], given: list[Value], name: str) -> Value:
    """The first answer: of the innermost mode, then of the arguments' classes."""
    state = tracer.overrides
    if state.has_modes:
        mode = state.modes.pop()  # while it answers, calls go to the outer modes
        try:
            found = mode.get_attribute(tracer, "__torch_function__").call(tracer, given, {})
        finally:
            state.modes.append(mode)
        if not is_not_implemented(found):
            return found
    if state.off is Off.NOBODY:
        for kind in types:
            found = tracer.as_value(kind).get_attribute(tracer, "__torch_function__").call(tracer, given, {})
            if not is_not_implemented(found):
                return found
    tracer.graph_break("no-override-takes-it", operation=name)


def is_overridable(tracer: Tracing, fn: Any) -> bool:
    """Whether the callable is an overridable function of torch that is safe to call on stand-ins."""
    if isinstance(fn, FunctionType):
        return str(fn.__module__).startswith("torch") and abi.asks(fn)
    if isinstance(fn, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    owner = getattr(fn, "__objclass__", None)
    if owner is not None:
        return owner in abi.OWN_CLASSES and owner is not object
    if type(fn) is MethodWrapperType:
        return False
    return type(fn) is BuiltinFunctionType and (fn in SWITCHES or is_operator(tracer, fn))


SWITCHES = (set_grad_enabled,)  # not operators, but modes override them too


def is_operator(tracer: Tracing, fn: Any) -> bool:
    """Whether a C function is one of torch's that only computes, so that calling it on stand-ins has no effects."""
    named = str(fn.__module__ or "torch").startswith("torch")
    return named and tracer.calls.verdict(fn).decision is Decision.IN_GRAPH


def in_graph(tracer: Tracing, fn: Callable[..., Any] | str, args: Args, kwargs: Kwargs) -> Value | None:
    """The result of overrides for a call that is about to enter the graph; None to let it enter."""
    if not tracer.overrides.may_be_overridden([*args, *kwargs.values()]):
        return None
    if isinstance(fn, str):
        return dispatched(tracer, fn, args, kwargs)
    if wrapper_subclasses.is_atomic_call(fn, args) or (isinstance(fn, FunctionType) and abi.is_of_levels(fn)):
        return None
    if isinstance(fn, FunctionType) and not abi.asks(fn):
        if not str(fn.__module__).startswith("torch") or tracer.calls.verdict(fn).decision is not Decision.IN_GRAPH:
            tracer.graph_break("overridden-call", function=getattr(fn, "__qualname__", str(fn)))
        return tracer.calls.inline_python(fn, args, kwargs)  # the calls inside it are overridden
    if is_overridable(tracer, fn) or fn is getattr or str(getattr(fn, "__module__", "")) == "_operator":
        return dispatched(tracer, fn, args, kwargs)
    tracer.graph_break("overridden-call", function=getattr(fn, "__name__", str(fn)))
