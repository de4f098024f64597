"""The current device of an accelerator, on which torch's fastest allocator takes memory, and which "cuda" stands for.

Source: `torch.accelerator`, whose own functions first ask each time which accelerator there is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ParamSpec, TypeVar

import torch

_C: Any = torch._C
P = ParamSpec("P")
T = TypeVar("T")

# `current_index()`: the index of the current device. Only where there is an accelerator.
current_index: Callable[[], int] = _C._accelerator_getDeviceIndex


@cache
def _accelerator() -> tuple[str, int]:
    """The type of this machine's accelerators, and how many there are. Neither changes while a process runs."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return ("", 0) if found is None else (found.type, torch.accelerator.device_count())


def index_of(device: torch.device) -> int | None:
    """The device's index if it can be made the current one: if it is one of this machine's accelerators. Else None."""
    return None if device.index is None or device.type != _accelerator()[0] else device.index


def with_index(device: torch.device) -> torch.device:
    """The device that one without an index stands for at present."""
    if device.index is not None or device.type != _accelerator()[0]:
        return device
    return torch.device(device.type, current_index())


def current_of_several() -> int | None:
    """The index of the current device if it could be another one. None where there are not several."""
    return current_index() if _accelerator()[1] > 1 else None


def on_device(index: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the function while that device is the current one."""
    with torch.accelerator.device_index(index):
        return function(*args, **kwargs)
