"""The container: columns by name, each a tensor, accessible as attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


class Frame:
    """Columns of equal length. `frame.price` is the column of that name, `frame.names` all names."""

    __slots__ = ("_columns",)

    def __init__(self, **columns: torch.Tensor) -> None:
        object.__setattr__(self, "_columns", dict(columns))

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        columns = object.__getattribute__(self, "_columns")
        if name == "names":
            return tuple(columns)
        if name in columns:
            return columns[name]
        raise AttributeError(f"there is no column {name!r}")

    def __setattr__(self, name: str, value: torch.Tensor) -> None:
        raise TypeError("a frame does not change")

    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self._columns.values())

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._columns[name]
