"""`__torch_function__`: function modes as contexts, switches that disable overrides, and inherited implementations."""

from __future__ import annotations

from typing import ClassVar, cast

import attrs
import torch
from torch.utils._device import DeviceContext

from armature.plugin_api import (
    Args,
    Call,
    ClassValue,
    ContextValue,
    DictValue,
    Kwargs,
    ListValue,
    Off,
    Polyfill,
    Rebuilding,
    TracedTensor,
    Tracing,
    TupleValue,
    Value,
    existing,
    handles,
    tensor_of_class,
)


@handles(*existing("torch._C._push_on_torch_function_stack"))
def push(call: Call, mode: Value) -> Value:
    """Enter a mode, for `with mode:`."""
    call.tracing.overrides.push(mode)
    return call.constant(None)


@handles(*existing("torch._C._pop_torch_function_stack"))
def pop(call: Call) -> Value:
    """Leave the innermost mode."""
    return call.tracing.overrides.pop()


@handles(*existing("torch._C._get_function_stack_at"))
def mode_at(call: Call, position: Value) -> Value | None:
    """The mode at a position of the stack."""
    modes = call.tracing.overrides.modes
    at = position.as_constant()
    return modes[at] if isinstance(at, int) and 0 <= at < len(modes) else None


@handles(*existing("torch._C._len_torch_function_stack"))
def count(call: Call) -> Value:
    """The number of active modes."""
    return call.constant(len(call.tracing.overrides.modes))


@handles(*existing("torch._C._is_torch_function_mode_enabled"))
def modes_enabled(call: Call) -> Value:
    """Whether function modes are enabled."""
    return call.constant(call.tracing.overrides.has_modes)


@handles(*existing("torch._C._is_torch_function_enabled"))
def subclasses_enabled(call: Call) -> Value:
    """Whether overrides by subclasses are enabled."""
    return call.constant(call.tracing.overrides.off is Off.NOBODY)


@handles(*existing("torch._C._is_torch_function_all_disabled"))
def all_disabled(call: Call) -> Value:
    """Whether all overrides are disabled."""
    return call.constant(call.tracing.overrides.off is Off.ALL)


@handles(
    *existing(
        "torch._C._has_torch_function",
        "torch._C._has_torch_function_unary",
        "torch._C._has_torch_function_variadic",
    )
)
def has_torch_function(call: Call, *args: Value) -> Value:
    """Whether a call with these arguments is overridden."""
    items = list(args)
    if call.fn.__name__ == "_has_torch_function":
        items = list(call.tracing.unpack(args[0]))
    state = call.tracing.overrides
    return call.constant(state.has_modes or any(state.is_overriding(item) for item in items))


@attrs.define(eq=False)
class OffValue(ContextValue):
    """`torch._C.DisableTorchFunctionSubclass()` and `torch._C.DisableTorchFunction()`."""

    before: list[Off] = attrs.field(factory=list)

    LEVELS: ClassVar[dict[object, Off]] = {
        torch._C.DisableTorchFunctionSubclass: Off.SUBCLASSES,
        torch._C.DisableTorchFunction: Off.ALL,
    }

    def enter(self, tracer: Tracing) -> Value:
        state = tracer.overrides
        self.before.append(state.off)
        state.off = max(state.off, self.LEVELS[self.kind])
        return tracer.constant(None)

    def leave(self, tracer: Tracing) -> None:
        tracer.overrides.off = self.before.pop()

    def clone(self) -> Value:
        return OffValue(self.kind)

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(self.kind)
        out.call(0)


@handles(*existing("torch._C.DisableTorchFunctionSubclass", "torch._C.DisableTorchFunction"))
def overrides_off(call: Call) -> Value:
    """A context that disables overrides by subclasses, or all overrides."""
    return OffValue(cast(type, call.fn))


@handles(vars(torch.Tensor)["__torch_function__"].__func__)
def inherited(
    call: Call, cls: Value, func: Value, types: Value, args: Value | None = None, kwargs: Value | None = None
) -> Value | None:
    """The default implementation for subclasses: converts results to the subclass."""
    if not isinstance(cls, ClassValue):
        return None
    if not all(issubclass(cls.cls, kind.as_object()) for kind in call.tracing.unpack(types)):
        return call.constant(NotImplemented)
    found = without_subclasses(call, func, args, kwargs)
    if func.as_object() in torch.overrides.get_default_nowrap_functions():
        return found
    return found if cls.cls is torch.Tensor else converted(call.tracing, found, cls.cls)


def without_subclasses(call: Call, func: Value, args: Value | None, kwargs: Value | None) -> Value:
    """Make a call with overrides by subclasses disabled."""
    named = kwargs.realise(call.tracing).values() if isinstance(kwargs, DictValue) else ()
    state = call.tracing.overrides
    before, state.off = state.off, max(state.off, Off.SUBCLASSES)
    try:
        given: Args = () if args is None else call.tracing.unpack(args)
        keywords: Kwargs = {str(name.as_constant()): value for name, value in named}
        return func.call(call.tracing, given, keywords)
    finally:
        state.off = before


def converted(tracer: Tracing, value: Value, kind: type) -> Value:
    """A result with tensors converted to the subclass."""
    if isinstance(value, TracedTensor) and not issubclass(value.python_type(), kind):
        return tensor_of_class(tracer, value, kind)
    if isinstance(value, TupleValue):
        return TupleValue([converted(tracer, item, kind) for item in value.items], value.kind)
    if isinstance(value, ListValue):
        return ListValue([converted(tracer, item, kind) for item in value.items])
    return value


@handles(*existing("torch._C._disabled_torch_function_impl"))
def not_asked(
    call: Call, func: Value, types: Value, args: Value | None = None, kwargs: Value | None = None
) -> Value | None:
    """The `__torch_function__` inherited by classes that override operators: the plain call, with overrides by
    subclasses disabled."""
    return without_subclasses(call, func, args, kwargs)


@handles(torch.Tensor.__new__)
def new_of_class(call: Call, cls: Value, *data: Value) -> Value | None:
    """`Subclass(tensor)`: the tensor as one of the class."""
    kind = cls.as_object()
    if len(data) != 1 or not isinstance(data[0], TracedTensor) or kind is torch.Tensor or not isinstance(kind, type):
        return None
    return tensor_of_class(call.tracing, data[0], kind) if data[0].python_type() is torch.Tensor else None


@handles(torch.Tensor._make_subclass)
def make_subclass(call: Call, cls: Value, data: Value, require_grad: Value | None = None) -> Value | None:
    """`Tensor._make_subclass`: like `new_of_class`, but detached from autograd's graph."""
    kind = cls.as_object()
    wants = require_grad is not None and not (require_grad.is_constant and require_grad.as_constant() is False)
    if wants or not isinstance(data, TracedTensor) or not isinstance(kind, type):
        return None
    detached = call.graph_call(torch.Tensor.detach, data)
    return tensor_of_class(call.tracing, detached, kind) if isinstance(detached, TracedTensor) else None


def enter_device(device: torch.device) -> torch.device:
    """`torch.device.__enter__`; traced."""
    torch._C._push_on_torch_function_stack(DeviceContext(device))
    return device


def leave_device(device: torch.device, *error: object) -> None:
    """`torch.device.__exit__`; traced."""
    torch._C._pop_torch_function_stack()


POLYFILLS = (
    Polyfill(torch.device.__enter__, enter_device),
    Polyfill(torch.device.__exit__, leave_device),
)
