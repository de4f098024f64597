"""What is used of numpy's objects, because numpy may not be installed."""

from __future__ import annotations

from typing import Protocol, Self


class DType(Protocol):
    """A dtype."""

    name: str
    isnative: bool


class Flags(Protocol):
    """The flags of an array."""

    writeable: bool


class Elements(Protocol):
    """An array or a scalar."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def flags(self) -> Flags: ...
    def copy(self) -> Self: ...
    def tobytes(self) -> bytes: ...
    def __len__(self) -> int: ...
