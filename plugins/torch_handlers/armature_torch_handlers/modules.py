"""Methods of torch's modules whose Python code is not suitable for tracing: traced in a simpler form."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from armature.plugin_api import (
    Call,
    NumberedSource,
    Polyfill,
    SymbolicNumber,
    TracedTensor,
    Value,
    existing,
    handles,
    number_now,
)
from armature_torch_handlers.module_values import ModuleValue, registries_of

NUMBERED = {nn.ModuleList: "_modules", nn.ParameterList: "_parameters"}  # lists, and where they hold their items
DENSE = ("cpu", "cuda")  # devices between which a tensor's memory may move


@handles(*existing("torch._C._nn._parse_to"))
def parse_to(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """The arguments of `Module.to`: constants, or a tensor first, whose device and dtype are then meant."""
    if args and isinstance(args[0], TracedTensor) and not call.tracing.overrides.present:
        args = (call.constant(args[0].device), call.constant(args[0].dtype), *args[1:])
    if not all(value.is_constant for value in (*args, *kwargs.values())):
        return None
    named = {name: value.as_constant() for name, value in kwargs.items()}
    try:
        return call.new_value(call.fn(*(value.as_constant() for value in args), **named))
    except (TypeError, RuntimeError) as error:
        call.tracing.raise_real(error)


@handles(
    *existing(
        "torch.__future__.get_overwrite_module_params_on_conversion",
        "torch.__future__.get_swap_module_params_on_conversion",
    )
)
def conversion_setting(call: Call) -> Value:
    """A setting for converting modules' parameters; guarded by calling it again."""
    setting = call.fn()
    call.tracing.guards.answers(call.fn, (), {}, setting)
    return call.constant(setting)


@handles(*existing("torch._has_compatible_shallow_copy_type"))
def may_take_memory(call: Call, input: Value, source: Value) -> Value | None:
    """Whether `input.data = source` is possible: between plain tensors on a CPU or a CUDA device."""
    for value in (input, source):
        plain = isinstance(value, TracedTensor) and value.python_type() in (torch.Tensor, nn.Parameter)
        if not isinstance(value, TracedTensor) or not plain or value.device.type not in DENSE:
            return None
    return call.constant(True)


@handles(nn.Module.__getattr__)
def look_up(call: Call, module: Value, name: Value) -> Value:
    """Look up a parameter, buffer or module by name, if the object has no such attribute."""
    if not isinstance(module, ModuleValue):  # made in the frame
        return call.polyfill(nn.Module.__getattr__, module, name)
    return module.fallback(call.tracing, str(name.as_constant()))


@handles(nn.ModuleList.__getitem__, nn.ParameterList.__getitem__)
def item_by_number(call: Call, items: Value, idx: Value) -> Value | None:
    """A module or parameter that a list has under a number that varies (`self.norms[i]` in a broken loop), found by
    that number in each call: no round of the loop needs code of its own."""
    if not isinstance(items, ModuleValue) or not isinstance(idx, SymbolicNumber) or idx.source is None:
        return None
    if items.cls not in NUMBERED or items.obj is None:
        return None
    held, changed = items.registry(call.tracing, NUMBERED[items.cls]), call.tracing.effects.changed
    item = registries_of(items.obj)[NUMBERED[items.cls]].get(str(number_now(idx)))  # none under a negative number
    if item is None or held.source is None or held in changed or items in changed:
        return None
    return call.tracing.objects.wrap(item, NumberedSource(held.source, idx.source))


@handles(nn.Module.__setattr__)
def assign(call: Call, module: Value, name: Value, value: Value) -> Value:
    """Store a parameter, buffer or module in the module's registries."""
    if not isinstance(module, ModuleValue):
        return call.polyfill(nn.Module.__setattr__, module, name, value)
    module.assign(call.tracing, str(name.as_constant()), value)
    return call.constant(None)


def weights_have_changed(self: torch.nn.RNNBase) -> bool:
    """Whether a recurrent module's weights differ from those in its flat list; the original uses weak references."""
    for name, held in zip(self._flat_weights_names, self._flat_weights):
        weight = getattr(self, name, None)
        if weight is not None and held is not None and held is not weight:
            return True
    return False


def polyfills() -> Iterable[Polyfill]:
    """The methods and their polyfills."""
    changed = getattr(nn.RNNBase, "_weights_have_changed", None)
    if changed is not None:
        yield Polyfill(changed, weights_have_changed)
