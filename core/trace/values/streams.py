"""Steps of iterators: as in CPython, an error in one step does not end the iterator."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

if TYPE_CHECKING:
    from armature.trace.base import Tracing

T = TypeVar("T")


@attrs.define(eq=False)
class Steps(Generic[T]):
    """An iterator that calls a function for each value; the function raises StopIteration at the end."""

    step: Callable[[], T]

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.step()


@attrs.define(eq=False)
class Walk:
    """Iterates over the keys of a dict or set, `owner`, and detects changes of its size as CPython does."""

    tracer: Tracing
    owner: Any
    keys: list[Hashable]
    text: str  # the message of the error
    changes: int
    sticky: bool = True  # whether each later step raises the error again
    position: int = 0
    over: bool = False
    failed: bool = False

    def __iter__(self) -> Iterator[Hashable]:
        return self

    def __next__(self) -> Hashable:
        if self.over or (not self.sticky and self.position == len(self.keys)):
            raise StopIteration
        if self.failed or self.owner.reshaped != self.changes or len(self.owner.entries) != len(self.keys):
            self._changed()
        if self.position == len(self.keys):
            self.over = True
            raise StopIteration
        self.position += 1
        return self.keys[self.position - 1]

    def _changed(self) -> None:
        if self.sticky and not self.failed and len(self.owner.entries) == len(self.keys):
            # Which keys CPython visits then depends on their positions in its hash table.
            kind = self.owner.describe()
            self.tracer.graph_break("changed-while-iterated", type=kind)
        self.failed, self.over = self.sticky, not self.sticky
        self.tracer.raise_error(RuntimeError, self.text)
