"""Seam to torch's dispatch modes: runs operators on real tensors, whatever the program or a tracer has switched on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from armature.torch_abi.dispatch_mode import DispatchMode


class NotKnown(Exception):
    """A value depends on more than constants: on inputs, on random numbers, or on memory that changes."""


class OnlyConstants(DispatchMode):
    """A mode in which operators raise NotKnown if they draw random numbers, write to their arguments, or are no part of
    ATen. The latter may read anything, such as the tensors of another process."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        unknown = func.namespace not in ("aten", "prims") or func._schema.is_mutable
        if unknown or torch.Tag.nondeterministic_seeded in func.tags:
            raise NotKnown(str(func))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def on_constants() -> Iterator[None]:
    """In this context no gradients are recorded, fake tensor modes are off, and OnlyConstants is on."""
    with _disable_current_modes(), torch.inference_mode(False), torch.no_grad(), OnlyConstants():
        yield


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """In this context operators run as they are called: gradients, modes, inference mode and autocast are off."""
    with _disable_current_modes(), torch.inference_mode(False), torch.no_grad(), torch._C._DisableAutocast():
        yield
