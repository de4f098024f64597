"""A small library: tensors with a unit, which refuse to be added to tensors with another. It knows nothing of any
compiler."""

from __future__ import annotations

import threading
from typing import Any

STATE = threading.local()


def is_relaxed() -> bool:
    """Whether units may be mixed now, in this thread."""
    return getattr(STATE, "depth", 0) > 0


def enter() -> int:
    """Allow mixing units; returns the argument for `leave`."""
    before: int = getattr(STATE, "depth", 0)
    STATE.depth = before + 1
    return before


def leave(before: int) -> None:
    """Restore the previous setting."""
    STATE.depth = before


class relaxed:
    """Inside `with relaxed(): ...` units may be mixed: the left one wins."""

    def __enter__(self) -> None:
        self.before = enter()

    def __exit__(self, *error: object) -> None:
        leave(self.before)


class Quantity:
    """Numbers with a unit."""

    __slots__ = ("unit", "values")

    def __init__(self, values: Any, unit: str) -> None:
        self.values, self.unit = values, unit

    def __add__(self, other: Quantity) -> Quantity:
        if self.unit != other.unit and not is_relaxed():
            raise ValueError(f"{self.unit} and {other.unit} do not add up")
        return Quantity(self.values + other.values, self.unit)

    def __mul__(self, number: Any) -> Quantity:
        return Quantity(self.values * number, self.unit)


def is_whole(obj: object) -> bool:
    """Whether an object is a quantity whose `__init__` has run."""
    return type(obj) is Quantity and hasattr(obj, "unit")
