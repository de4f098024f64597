"""Remembers a frame's inputs from earlier compilations; what has changed becomes a symbol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs


class _Changed:
    """Marks a number that had different values."""


CHANGED: Final = _Changed()
MANY_WAITS = 8  # calls that run eagerly while a parameter has no shape yet; usually one is enough
MANY_FLOATS = 3  # values of a float that get code of their own; then code is compiled for any value


@attrs.define(eq=False)
class History:
    """Sizes and strides of tensors, by their source's expression and number of axes, which may alternate; values of
    ints, by their source's expression."""

    _sizes: dict[tuple[str, int], list[int | _Changed]] = attrs.field(factory=dict)
    _strides: dict[tuple[str, int], list[int | _Changed | None]] = attrs.field(factory=dict)
    _numbers: dict[str, object] = attrs.field(factory=dict)
    _floats: dict[str, list[float]] = attrs.field(factory=dict)
    _waits: int = 0

    def may_wait(self) -> bool:
        """Whether this call may run eagerly to initialise parameters; it is counted."""
        self._waits += 1
        return self._waits <= MANY_WAITS

    def changed_axes(self, name: str, sizes: Sequence[int]) -> frozenset[int]:
        """The axes of a tensor whose size differs from an earlier one; the sizes are remembered."""
        held = self._sizes.setdefault((name, len(sizes)), list(sizes))
        for axis, size in enumerate(sizes):
            if held[axis] != size:
                held[axis] = CHANGED
        return frozenset(axis for axis, size in enumerate(held) if size is CHANGED)

    def changed_strides(self, name: str, strides: Sequence[int | None]) -> frozenset[int]:
        """The axes of a tensor whose stride differs from an earlier one; the strides are remembered. None: a stride
        that follows from the sizes, or is 0 or 1; it differs from none."""
        held = self._strides.setdefault((name, len(strides)), list(strides))
        for axis, stride in enumerate(strides):
            if stride is not None and held[axis] != stride:
                held[axis] = stride if held[axis] is None else CHANGED
        return frozenset(axis for axis, stride in enumerate(strides) if stride is not None and held[axis] is CHANGED)

    def mark_changed(self, name: str, rank: int, axes: Iterable[int]) -> None:
        """Treat these axes as changed from now on, because calls that hit compiled code are not recorded here."""
        for axis in axes:
            self._sizes[name, rank][axis] = CHANGED

    def changes_often(self, name: str, number: float) -> bool:
        """Whether three values of a float were seen; this one is remembered."""
        held = self._floats.setdefault(name, [])
        if number not in held and len(held) < MANY_FLOATS:
            held.append(number)
        return len(held) >= MANY_FLOATS

    def changed_number(self, name: str, number: object) -> bool:
        """Whether a number (or tuple of numbers) differs from an earlier one; it is remembered."""
        held = self._numbers.setdefault(name, number)
        if held != number:
            self._numbers[name] = CHANGED
        return held != number
