"""What CPython checks of the results of special methods holds wherever the method is found: in the class of an object, in
a metaclass, in a subclass of tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature

METHODS: dict[str, Callable[[Any], object]] = {
    "length below 0": lambda self: -1,
    "length as text": lambda self: "3",
    "length": lambda self: 3,
    "no iterator": lambda self: [1, 2],
    "iterator": lambda self: iter([1, 2]),
    "number as bool": lambda self: 1,
    "tensor as bool": lambda self: torch.ones(()),
    "bool": lambda self: False,
}
NAMES = {"length": "__len__", "iterator": "__iter__", "bool": "__bool__"}
USES: dict[str, dict[str, Callable[[Any, torch.Tensor], object]]] = {
    "__len__": {
        "len": lambda obj, x: x + len(obj),
        "if": lambda obj, x: x + 1 if obj else x - 1,
        "not": lambda obj, x: x + (not obj),
    },
    "__iter__": {
        "for": lambda obj, x: [x + item for item in obj],
        "iter": lambda obj, x: x + next(iter(obj)),
        "unpack": lambda obj, x: [x + item for item in (lambda a, b: (a, b))(*obj)],
        "in": lambda obj, x: x + (2 in obj),
    },
    "__bool__": {"if": lambda obj, x: x + 1 if obj else x - 1, "bool": lambda obj, x: x + bool(obj)},
}
OF_TENSORS = ("len", "for", "iter", "unpack")  # the others are by other methods of tensors
CASES = [
    (method, use, owner)
    for method in METHODS
    for kind, name in NAMES.items()
    if kind in method
    for use in USES[name]
    for owner in ("object", "class", "tensor")
    if owner != "tensor" or use in OF_TENSORS
]


def outcome(program: Callable[..., Any], *args: Any) -> Any:
    try:
        return program(*args)
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@functools.cache  # so that the classes live on
def owned(owner: str, name: str, method: Callable[[Any], object]) -> Any:
    """An object for which the method is found: in its class, metaclass, or class derived from Tensor."""
    if owner == "tensor":
        return torch.ones(2).as_subclass(type("Sub", (torch.Tensor,), {name: method}))
    made = type("Meta", (type,), {name: method})("Made", (), {}) if owner == "class" else None
    return type("Own", (), {name: method})() if made is None else made


@pytest.mark.parametrize(("method", "use", "owner"), CASES)
def test_results_of_special_methods_are_checked(method: str, use: str, owner: str) -> None:
    name = next(name for kind, name in NAMES.items() if kind in method)
    obj, program = owned(owner, name, METHODS[method]), USES[name][use]
    expected = outcome(program, obj, torch.ones(2))
    found = outcome(armature.compile(program), obj, torch.ones(2))
    if isinstance(expected, tuple):
        assert found == expected
    else:
        torch.testing.assert_close(found, expected)


class FailsOnce:
    """Read by index; position 1 raises KeyError the first time."""

    def __init__(self) -> None:
        self.failed = False

    def __getitem__(self, position: int) -> int:
        if position == 1 and not self.failed:
            self.failed = True
            raise KeyError(position)
        if position > 3:
            raise IndexError(position)
        return position


@pytest.mark.parametrize("begin", [iter, reversed])
def test_an_error_while_iterating_by_index(begin: Callable[[Any], Any]) -> None:
    def program(x: torch.Tensor) -> list[torch.Tensor]:
        made, found = begin(items()), []
        for _ in range(6):
            try:
                found.append(x + next(made))
            except KeyError:
                found.append(x * 100)
            except StopIteration:
                found.append(-x)
        return found

    items = type("Sized", (FailsOnce,), {"__len__": lambda self: 4})
    torch.testing.assert_close(armature.compile(program)(torch.ones(2)), program(torch.ones(2)))
