"""`__torch_function__`: function modes as contexts, the switches that turn overriding off, and what is inherited."""

from __future__ import annotations

from typing import cast

import torch
from torch.utils._device import DeviceContext

from armature.plugin_api import (
    Call,
    ClassValue,
    OverridesOff,
    Polyfill,
    TracedTensor,
    TupleValue,
    Value,
    as_overridden,
    existing,
    handles,
)


@handles(*existing("torch._C._push_on_torch_function_stack"))
def push(call: Call, mode: Value) -> Value:
    """`with mode:` begins."""
    call.tracing.overrides.push(call.tracing, mode)
    return call.constant(None)


@handles(*existing("torch._C._pop_torch_function_stack"))
def pop(call: Call) -> Value:
    """It ends."""
    return call.tracing.overrides.pop(call.tracing)


@handles(*existing("torch._C._get_function_stack_at"))
def mode_at(call: Call, position: Value) -> Value | None:
    """A mode of the stack."""
    modes = call.tracing.overrides.modes
    at = position.as_constant()
    return modes[at] if isinstance(at, int) and 0 <= at < len(modes) else None


@handles(*existing("torch._C._len_torch_function_stack"))
def count(call: Call) -> Value:
    """How many modes are active."""
    return call.constant(len(call.tracing.overrides.modes))


@handles(*existing("torch._C._is_torch_function_mode_enabled"))
def modes_enabled(call: Call) -> Value:
    """Whether a mode is asked."""
    return call.constant(call.tracing.overrides.asks_modes)


@handles(*existing("torch._C._is_torch_function_enabled"))
def subclasses_enabled(call: Call) -> Value:
    """Whether subclasses are asked."""
    return call.constant(call.tracing.overrides.off == 0)


@handles(*existing("torch._C._is_torch_function_all_disabled"))
def all_disabled(call: Call) -> Value:
    """Whether nobody is asked."""
    return call.constant(call.tracing.overrides.off == 2)


@handles(
    *existing(
        "torch._C._has_torch_function",
        "torch._C._has_torch_function_unary",
        "torch._C._has_torch_function_variadic",
    )
)
def has_torch_function(call: Call, *args: Value) -> Value:
    """Whether somebody takes over a call with these arguments."""
    items = list(args)
    if call.fn.__name__ == "_has_torch_function":
        items = list(call.tracing.unpack(args[0]))
    state = call.tracing.overrides
    return call.constant(state.asks_modes or any(state.asks(item) for item in items))


@handles(*existing("torch._C.DisableTorchFunctionSubclass", "torch._C.DisableTorchFunction"))
def overrides_off(call: Call) -> Value:
    """A context in which subclasses, or nobody, are asked."""
    return OverridesOff(cast(type, call.fn))


@handles(vars(torch.Tensor)["__torch_function__"].__func__)
def inherited(
    call: Call, cls: Value, func: Value, types: Value, args: Value | None = None, kwargs: Value | None = None
) -> Value | None:
    """What a subclass that says nothing else makes of a call: its own kind of tensor."""
    if not isinstance(cls, ClassValue):
        return None
    nothing = call.constant(None)
    return as_overridden(call.tracing, cls, func, types, args or TupleValue([]), kwargs or nothing)


@handles(*existing("torch._C._disabled_torch_function_impl"))
def not_asked(
    call: Call, func: Value, types: Value, args: Value | None = None, kwargs: Value | None = None
) -> Value | None:
    """What classes that take over operators inherit: the call as it is, with subclasses not asked."""
    tracer = call.tracing
    none = TupleValue([])
    cls = cast(ClassValue, tracer.as_value(torch.Tensor))
    return as_overridden(tracer, cls, func, none, args or none, kwargs or call.constant(None))


@handles(torch.Tensor.__new__)
def new_of_class(call: Call, cls: Value, *data: Value) -> Value | None:
    """`Subclass(tensor)`: the tensor as one of the class."""
    kind = cls.as_object()
    if len(data) != 1 or not isinstance(data[0], TracedTensor) or kind is torch.Tensor or not isinstance(kind, type):
        return None
    return data[0].as_kind(call.tracing, kind) if data[0].python_type() is torch.Tensor else None


@handles(torch.Tensor._make_subclass)
def make_subclass(call: Call, cls: Value, data: Value, require_grad: Value | None = None) -> Value | None:
    """The same for one that is no part of autograd's graph."""
    kind = cls.as_object()
    wants = require_grad is not None and not (require_grad.is_constant and require_grad.as_constant() is False)
    if wants or not isinstance(data, TracedTensor) or not isinstance(kind, type):
        return None
    detached = call.graph_call(torch.Tensor.detach, data)
    return detached.as_kind(call.tracing, kind) if isinstance(detached, TracedTensor) else None


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
