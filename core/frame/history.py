"""What the inputs of a frame were when it was compiled before: what was seen to change becomes a symbol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs


class _Changed:
    """Stands where different numbers were seen."""


CHANGED: Final = _Changed()
MANY_WAITS = 8  # calls that run in eager mode since a parameter has no shape yet; usually one is enough
MANY_FLOATS = 3  # values of a float for which code is compiled; then it is compiled for any


@attrs.define(eq=False)
class History:
    """Sizes of tensors and values of ints, by the expression of their source."""

    _sizes: dict[str, list[int | _Changed]] = attrs.field(factory=dict)
    _numbers: dict[str, object] = attrs.field(factory=dict)
    _floats: dict[str, list[float]] = attrs.field(factory=dict)
    _waits: int = 0

    def may_wait(self) -> bool:
        """Whether this call may run in eager mode to give parameters a shape; it is counted."""
        self._waits += 1
        return self._waits <= MANY_WAITS

    def changed_axes(self, name: str, sizes: Sequence[int]) -> frozenset[int]:
        """The axes of a tensor whose size is another one than it was once; the sizes are remembered."""
        held = self._sizes.get(name)
        if held is None or len(held) != len(sizes):
            self._sizes[name] = list(sizes)
            return frozenset()
        for axis, size in enumerate(sizes):
            if held[axis] != size:
                held[axis] = CHANGED
        return frozenset(axis for axis, size in enumerate(held) if size is CHANGED)

    def keep(self, name: str, axes: Iterable[int]) -> None:
        """Take these axes for changed from now on: calls that find compiled code are not seen here."""
        for axis in axes:
            self._sizes[name][axis] = CHANGED

    def changes_often(self, name: str, number: float) -> bool:
        """Whether three values of a float were seen; this one is remembered."""
        held = self._floats.setdefault(name, [])
        if number not in held and len(held) < MANY_FLOATS:
            held.append(number)
        return len(held) >= MANY_FLOATS

    def changed_number(self, name: str, number: object) -> bool:
        """Whether a number (or tuple of them) is another one than it was once; it is remembered."""
        held = self._numbers.setdefault(name, number)
        if held != number:
            self._numbers[name] = CHANGED
        return held != number
