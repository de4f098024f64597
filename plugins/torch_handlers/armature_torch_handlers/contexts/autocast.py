"""Autocast: entered and left by a pair of nodes, and active while its body is traced."""

from __future__ import annotations

from typing import cast

import torch

from armature.plugin_api import (
    AttrSource,
    Call,
    PairedContextValue,
    Source,
    Tracing,
    Value,
    ValueType,
    existing,
    grad_modes,
    handles,
)

OF_DEVICE = existing("torch.cpu.amp.autocast_mode.autocast", "torch.cuda.amp.autocast_mode.autocast")
FIELDS = ("device", "fast_dtype", "_enabled", "_cache_enabled")


@handles(torch.autocast)
def autocast(call: Call, *args: Value, **kwargs: Value) -> Value:
    """The context manager. Non-constant arguments break the graph."""
    plain = [value.as_constant() for value in args]
    named = {name: value.as_constant() for name, value in kwargs.items()}
    try:
        real = torch.autocast(*plain, **named)
    except (RuntimeError, TypeError, ValueError) as error:
        call.tracing.raise_real(error)
    if (plain[1] if len(plain) > 1 else named.get("dtype")) is None:
        call.tracing.guards.autocast_dtype(real.device)
    return of(real)


@handles(*OF_DEVICE)
def autocast_of_device(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """The older spelling, with the device in the name. Making it warns, which happens once, here."""
    plain, named = constants(args), {name: value.as_constant() for name, value in kwargs.items() if value.is_constant}
    if plain is None or len(named) != len(kwargs):
        return None
    return of(cast(torch.autocast, call.fn(*plain, **named)))


def constants(args: tuple[Value, ...]) -> list[object] | None:
    """The arguments as objects, None where one is not a constant."""
    return [value.as_constant() for value in args] if all(value.is_constant for value in args) else None


def of(real: torch.autocast) -> Value:
    """The value of an autocast object."""
    enter, leave = grad_modes.enter_autocast, grad_modes.exit_autocast
    return PairedContextValue(type(real), enter, tuple(getattr(real, name) for name in FIELDS), leave, torch.autocast)


def of_program(obj: torch.autocast, source: Source, tracer: Tracing) -> Value:
    """The value of an autocast object that the program made before; its settings are guarded."""
    for name in FIELDS:
        tracer.objects.wrap(getattr(obj, name), AttrSource(source, name)).as_constant()  # a text is guarded once read
    made = of(obj)
    made.source = source
    return made


VALUE_TYPES = tuple(ValueType(kind, of_program) for kind in (torch.autocast, *OF_DEVICE))
