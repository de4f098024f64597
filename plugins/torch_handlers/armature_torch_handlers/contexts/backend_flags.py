"""Contexts that choose how torch's libraries compute: `torch.backends.cudnn.flags`, `torch.backends.mkldnn.flags` and
their kind.

A kernel reads such a flag when it runs, so the flags are set between the pieces of a compiled graph. Those of libraries
for GPUs need no pieces where torch finds no GPU, nor does the order in which `einsum` multiplies, which the graph has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from armature.plugin_api import UNCOMPILED, Call, Value, handles
from armature_torch_handlers.contexts.generators import MODULES, context_value, leave_entered

Flags = Callable[..., AbstractContextManager[object]]
Settings = tuple[tuple[str, object], ...]
OF_GPUS = ("torch.backends.cudnn", "torch.backends.miopen")
OF_TRACING = ("torch.backends.opt_einsum",)
BY_MODULE: dict[str, Flags] = {
    fn.__module__: fn for backend in MODULES if (fn := getattr(backend, "flags", None)) is not None
}


def enter_flags(module: str, settings: Settings) -> AbstractContextManager[object]:
    """Set flags of a library; returns the entered context manager."""
    entered = BY_MODULE[module](**dict(settings))
    entered.__enter__()
    return entered


def enter_flags_of_kernels(module: str, settings: Settings) -> AbstractContextManager[object]:
    """The same, for kernels of the graph."""
    return enter_flags(module, settings)


def leave_flags_of_kernels(entered: AbstractContextManager[object]) -> None:
    """Set the flags back."""
    leave_entered(entered)


for each in (enter_flags_of_kernels, leave_flags_of_kernels):
    setattr(each, UNCOMPILED, frozenset())


@handles(*BY_MODULE.values())
def flags(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """The context manager, for flags known while tracing."""
    if not all(value.is_constant for value in (*args, *kwargs.values())):
        return None
    plain, named = [value.as_constant() for value in args], {name: kwargs[name].as_constant() for name in kwargs}
    try:
        settings = tuple(inspect.signature(call.fn).bind(*plain, **named).arguments.items())
    except TypeError:  # eager mode says it in its words
        return None
    module = call.fn.__module__
    if module in OF_TRACING or (module in OF_GPUS and not torch.cuda.is_available()):
        return context_value(enter_flags, (module, settings), leave_entered)
    return context_value(enter_flags_of_kernels, (module, settings), leave_flags_of_kernels)
