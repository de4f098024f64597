"""The current device of an accelerator, on which torch's fastest allocator takes memory.

Source: `torch.accelerator`, whose own functions first ask each time which accelerator there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

_C: Any = torch._C
P = ParamSpec("P")
T = TypeVar("T")

# `current_index()`: the index of the current device. Only where there is an accelerator.
current_index: Callable[[], int] = _C._accelerator_getDeviceIndex


def index_of(device: torch.device) -> int | None:
    """The device's index if it can be made the current one: if it is one of this machine's accelerators. Else None."""
    accelerator = torch.accelerator.current_accelerator()
    return device.index if accelerator is not None and accelerator.type == device.type else None


def on_device(index: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the function while that device is the current one."""
    with torch.accelerator.device_index(index):
        return function(*args, **kwargs)
