"""Methods written in C of the program's objects, passed on their own: they change what they are bound to, once a call."""

from __future__ import annotations

import collections
import io
from contextlib import redirect_stdout
from typing import Any

import pytest
import torch

import armature


class Items(list):  # type: ignore[type-arg]
    pass


class Members(set):  # type: ignore[type-arg]
    pass


class Entries(dict):  # type: ignore[type-arg]
    pass


KINDS = [
    (Items, "append", ()),
    (Members, "add", ()),
    (Entries, "setdefault", ("key",)),
    (collections.defaultdict, "setdefault", ("key",)),
    (collections.Counter, "setdefault", ("key",)),
    (collections.OrderedDict, "setdefault", ("key",)),
    (collections.deque, "append", ()),
    (list, "append", ()),
]


def held(obj: Any) -> list[Any]:
    return [*obj.values()] if isinstance(obj, dict) else [*obj]


@pytest.mark.parametrize("kind, name, before", KINDS)
def test_a_method_of_an_object_is_not_called_while_tracing(kind: type, name: str, before: tuple[str, ...]) -> None:
    def fn(x: torch.Tensor, method: Any) -> torch.Tensor:
        y = x + 1
        method(*before, y)
        return y * 2

    quick = armature.compile(fn, backend="eager")
    for k in range(3):
        x, obj = torch.full((2,), float(k)), kind()
        assert quick(x, getattr(obj, name)).tolist() == [2 * k + 2.0] * 2
        assert [(type(item), item.tolist()) for item in held(obj)] == [(torch.Tensor, [k + 1.0] * 2)]


class Told(list):  # type: ignore[type-arg]
    def append(self, item: Any) -> None:
        print("told")
        super().append(item)
        armature.graph_break()


def test_a_method_of_super_after_a_break() -> None:
    def fn(x: torch.Tensor, items: list[Any]) -> int:
        items.append(x + 1)
        return len(items)

    quick = armature.compile(fn, backend="eager")
    for k in range(3):
        items, out = Told([torch.ones(1)]), io.StringIO()
        with redirect_stdout(out):
            assert quick(torch.full((1,), float(k)), items) == 2
        assert [(type(item), item.item()) for item in items] == [(torch.Tensor, 1.0), (torch.Tensor, k + 1.0)]
        assert out.getvalue() == "told\n"


@pytest.mark.parametrize("kind", [list, Items, set, Members, collections.deque])
def test_special_methods_see_changes(kind: Any) -> None:
    def program(x: Any, held: Any, length: Any, put: Any, contains: Any) -> Any:
        put(7)
        return x * length(), contains(7)

    compiled = armature.compile(program, backend="eager")
    for _ in range(2):
        held = kind([1, 2])
        put = held.add if issubclass(kind, set) else held.append
        found, contained = compiled(torch.ones(2), held, held.__len__, put, held.__contains__)
        assert torch.equal(found, torch.full((2,), 3.0)) and contained
