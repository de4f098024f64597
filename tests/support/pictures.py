"""Pictures of values: all that can be seen of them, types and shared objects too, as nests of what can be compared."""

from __future__ import annotations

import enum
import functools
import itertools
import types
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import torch

PLAIN = (int, float, complex, str, bytes, bool, type(None), enum.Enum)
LONGEST = 40  # values taken of an iterator


@attrs.define
class Camera:
    """Takes pictures. Objects met before are numbers: two pictures agree in what is the same object."""

    numbers: dict[tuple[str, int], int] = attrs.field(factory=dict)
    kept: list[Any] = attrs.field(factory=list)

    def take(self, value: Any) -> Any:
        if type(value) in PLAIN or isinstance(value, enum.Enum):
            return value
        if isinstance(value, type):
            return f"class {value.__name__}"
        if type(value) is tuple:  # which of two equal ones it is does not count
            return ["tuple", *map(self.take, value)]
        if (seen := self.numbers.get(("object", id(value)))) is not None:
            return f"object {seen}"
        self.number("object", value)
        if isinstance(value, torch.Tensor):
            return {
                "type": type(value).__name__,
                "tensor": value.detach().clone(),
                "requires_grad": value.requires_grad,
                "leaf": value.is_leaf,
                "storage": self.number("storage", value.untyped_storage()),
                "offset": value.storage_offset(),
                "strides": str(value.stride()) if value.numel() > 1 else "",
                "held": self.take(value.__dict__),
            }
        return {"type": type(value).__name__, **{name: self.take(part) for name, part in parts_of(value)}}

    def tensors(self) -> list[torch.Tensor]:
        """The tensors of all pictures."""
        return [value for value in self.kept if isinstance(value, torch.Tensor)]

    def number(self, kind: str, value: Any) -> int:
        """The number of an object; it is kept, so that no other can have its id."""
        self.kept.append(value)
        key = value._cdata if kind == "storage" else id(value)
        return self.numbers.setdefault((kind, key), len(self.numbers))


def parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object consists of, with names."""
    if isinstance(value, torch.nn.Module):
        yield from value.state_dict(keep_vars=True).items()
        yield from ((name, held) for name, held in vars(value).items() if not name.startswith("_"))
        return
    if isinstance(value, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
        yield from parts_of_function(value)
        return
    if isinstance(value, types.CellType):
        yield from parts_of_cell(value)
    elif isinstance(value, functools.partial):
        yield from (("calls", value.func), ("with", value.args), ("and", value.keywords))
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r}]", held) for key, held in value.items())
    elif isinstance(value, (set, frozenset)):
        yield "set", str(sorted(map(repr, value)))
    elif isinstance(value, range | slice):
        yield "is", repr(value)
    elif hasattr(value, "__next__"):
        yield from rest_of(value)
        return
    elif isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        yield from ((f"[{position}]", held) for position, held in enumerate(value))
    for name in getattr(type(value), "__slots__", ()):
        if hasattr(value, name):
            yield name, getattr(value, name)
    yield from getattr(value, "__dict__", {}).items()


def parts_of_function(value: Any) -> Iterator[tuple[str, Any]]:
    """A function's name, defaults, attributes and the values of its closure."""
    yield "name", getattr(value, "__qualname__", "")
    yield "bound", None if isinstance(bound := getattr(value, "__self__", None), types.ModuleType) else bound
    yield "defaults", getattr(value, "__defaults__", None)
    yield "named defaults", getattr(value, "__kwdefaults__", None)
    yield "attributes", getattr(value, "__dict__", None)
    if isinstance(value, types.FunctionType):
        yield from zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)


def parts_of_cell(cell: types.CellType) -> Iterator[tuple[str, Any]]:
    """What a variable of a closure holds."""
    try:
        yield "holds", cell.cell_contents
    except ValueError:
        yield "holds", "nothing"


def rest_of(iterator: Any) -> Iterator[tuple[str, Any]]:
    """What an iterator goes on to give, and how it ends."""
    try:
        for position, held in enumerate(itertools.islice(iterator, LONGEST)):
            yield f"next {position}", held
    except Exception as error:
        yield "raises", repr(error)
