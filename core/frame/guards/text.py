"""Texts for values in guards. Making them runs no code of the program."""

from __future__ import annotations

import enum
import reprlib
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import torch


def described_tensor(tensor: Any, sizes: Sequence[int | None] = (), strides: Sequence[int | None] = ()) -> str:
    """`a tensor float32[2, any] with strides (2, 1) on cpu, requires grad`. sizes, strides: None where not guarded."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    shown = ", ".join("any" if size is None else str(size) for size in sizes or tensor.shape)
    steps = ", ".join("any" if stride is None else str(stride) for stride in strides or tensor.stride())
    grad = ", requires grad" if tensor.requires_grad else ""
    return f"a tensor {dtype}[{shown}] with strides ({steps}) on {tensor.device}{grad}"


def groups(names: Sequence[str], numbers: Sequence[int]) -> str:
    """The names grouped by equal number."""
    groups = ([name for name, number in zip(names, numbers) if number == known] for known in sorted({*numbers}))
    return ", ".join(" and ".join(group) for group in groups if len(group) > 1) or "none"


def name_of(obj: object) -> str:
    qualname = getattr(obj, "__qualname__", None)
    return qualname if isinstance(qualname, str) else short(obj)


def shown(value: object) -> str:
    """The text of a value; no code of the program runs for it."""
    own = isinstance(type(value).__repr__, FunctionType) and not issubclass(type(value), enum.Enum)
    if own:
        return object.__repr__(value)
    try:
        return repr(value)
    except ValueError:  # Python refuses to print integers of more than 4300 digits (sys.set_int_max_str_digits)
        return f"an int of {value.bit_length()} bits" if isinstance(value, int) else object.__repr__(value)


class _Short(reprlib.Repr):
    """Shortens long texts in the middle."""

    def repr_int(self, x: int, level: int) -> str:
        return self.repr_instance(x, level)

    def repr_instance(self, x: object, level: int) -> str:
        text = shown(x)
        keep = (self.maxother - 3) // 2
        return text if len(text) <= self.maxother else f"{text[:keep]}...{text[-keep:]}"


short = _Short().repr
"""The text of a value, shortened; nothing of the program is run for it."""


def shown_now(found: Any) -> str:
    """The text of a guard's current value, shortened."""
    return described_tensor(found) if issubclass(type(found), torch.Tensor) else short(found)
