"""Views of dicts that come from outside: `k = d.keys()` before the call."""

from __future__ import annotations

import collections
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
import torch

import armature

PROGRAMS: dict[str, Callable[..., Any]] = {
    "length": lambda x, d, view: x * len(view),
    "truth": lambda x, d, view: x * 2 if view else x - 1,
    "iteration": lambda x, d, view: [x + n for n, _ in enumerate(view)] + list(view),
    "membership": lambda x, d, view: (x, "a" in view, 1 in view, ("a", 1) in view, ("b", 5) in view),
    "reversed": lambda x, d, view: (x * 2, list(reversed(view))),
    "class": lambda x, d, view: (x * 2, type(view).__name__, isinstance(view, collections.abc.KeysView)),
    "mapping": lambda x, d, view: (x * 2, view == d.keys(), view == d.items()),
    "added before": lambda x, d, view: (d.update(b=2), x * len(view), list(view))[1:],
    "removed and returned": lambda x, d, view: (d.pop("a", None), x * len(view), view)[1:],
    "given back": lambda x, d, view: (x * 2, view),
}


def given(which: str, kind: Any, more: int) -> tuple[Any, Any]:
    held = kind(a=1)
    view = getattr(held, which)()
    held.update({f"k{n}": n for n in range(more)})
    return held, view


class Ordered(collections.OrderedDict[Any, Any]):
    """Its views are those of an ordered dict."""


KINDS = [
    dict,
    collections.Counter,
    lambda **items: collections.defaultdict(int, **items),
    collections.OrderedDict,
    Ordered,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("which", ["keys", "values", "items"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager_mode(program: str, which: str, kind: Any) -> None:
    armature.reset()
    function = PROGRAMS[program]
    compiled = armature.compile(function, backend="eager", fullgraph=True)
    for more in (0, 2, 0, 1):
        (mine, ours), (theirs, view) = given(which, kind, more), given(which, kind, more)
        found, expected = compiled(torch.ones(2), mine, ours), function(torch.ones(2), theirs, view)
        assert str(found) == str(expected)
        assert mine == theirs and list(ours) == list(view)
        if program.endswith(("returned", "back")):
            assert found[-1] is ours


def test_set_operations_of_a_view() -> None:
    def program(x: torch.Tensor, view: Any) -> Any:
        return x * len(view & {"a", "b"}), sorted(view | {"z"}), view <= {"a", "b", "c"}, view.isdisjoint({"q"})

    held = {"a": 1, "c": 2}
    found = armature.compile(program, backend="eager", fullgraph=True)(torch.ones(2), held.keys())
    assert str(found) == str(program(torch.ones(2), held.keys()))


def test_values_are_inputs_of_the_graph() -> None:
    compiled = armature.compile(lambda view: sum(view), fullgraph=True)
    for number in (1.0, 2.0):
        held = {"a": torch.full((2,), number), "b": torch.ones(2)}
        torch.testing.assert_close(compiled(held.values()), sum(held.values()))


def test_the_kind_of_view_and_its_dict_are_guarded() -> None:
    held, other = {"a": 1, "b": 2}, {"a": 3, "b": 2}
    compiled = armature.compile(lambda x, view: (x * len(view), list(view)), backend="eager", fullgraph=True)
    for view in (held.keys(), held.values(), held.items(), other.values(), other.keys(), {"c": 1}.keys()):
        assert compiled(torch.ones(2), view)[1] == list(view)


def written(table: dict[str, int], name: str) -> None:
    table[name] = len(table) + 5


class Shared:
    number = 1


SHOWN: dict[str, Callable[..., Any]] = {
    "read": lambda x, d, p: (d.update(b=2), x * len(p), list(p), dict(p), "b" in p, p.get("b"), p == d, p.copy())[1:],
    "by a function": lambda x, d, p: (written(d, "c"), x * p["c"], written(d, "a"), list(p.items()))[1:],
    "over a break": lambda x, d, p: (
        written(d, "c"), x * len(p), armature.graph_break(), written(d, "e"), x * p["e"], list(p)
    )[1:],
    "removed": lambda x, d, p: (d.pop("a", 0), x * len(p), list(reversed(p)), p | {"z": 1}, p)[1:],
    "views": lambda x, d, p: (p.keys(), d.update(b=2), x * len(p.values()), list(p.keys()), p.keys() | {"q"})[:1],
    "mapping of a view": lambda x, d, p: (d.keys().mapping, d.update(b=2), x * len(d.keys().mapping))[::2],
}  # fmt: skip


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, lambda **items: collections.defaultdict(int, **items)])
@pytest.mark.parametrize("program", SHOWN)
def test_proxies_show_what_the_frame_changes(program: str, kind: Any) -> None:
    armature.reset()
    compiled = armature.compile(SHOWN[program], backend="eager")
    for _ in range(2):
        mine, theirs = kind(a=1), kind(a=1)
        found = compiled(torch.ones(2), mine, MappingProxyType(mine))
        assert str(found) == str(SHOWN[program](torch.ones(2), theirs, MappingProxyType(theirs)))
        assert mine == theirs


def test_a_proxy_that_is_made_shows_its_dict() -> None:
    def program(x: torch.Tensor, table: dict[str, int]) -> Any:
        proxy = MappingProxyType(table)
        table["b"] = 2
        armature.graph_break()
        table["c"] = 3
        return x * len(proxy), proxy

    table = {"a": 1}
    found, proxy = armature.compile(program, backend="eager")(torch.ones(2), table)
    table["d"] = 4
    assert torch.equal(found, torch.full((2,), 3.0))
    assert proxy == table


def test_the_attributes_of_a_class_as_a_dict() -> None:
    def program(x: torch.Tensor, attributes: Any) -> Any:
        Shared.number = Shared.number % 5 + 1
        return x * attributes["number"], Shared.__dict__["number"], vars(Shared).get("number")

    compiled = armature.compile(program, backend="eager")
    for _ in range(3):
        found, *numbers = compiled(torch.ones(2), Shared.__dict__)
        assert numbers == [Shared.number, Shared.number]
        assert torch.equal(found, torch.ones(2) * Shared.number)


@pytest.mark.parametrize("shown", [dict, collections.OrderedDict])
@pytest.mark.parametrize("made", [dict, collections.Counter, collections.OrderedDict, Ordered])
def test_the_class_of_a_view_that_is_made(made: Any, shown: Any) -> None:
    def program(x: torch.Tensor, proxy: Any) -> Any:
        views = [view for d in (made(a=1), proxy) for view in (d.keys(), d.values(), d.items())]
        return x * 2, [type(view) for view in views], [type(view).__name__ for view in views]

    proxy = MappingProxyType(shown(a=1))
    found = armature.compile(program, backend="eager", fullgraph=True)(torch.ones(2), proxy)
    assert found[1:] == program(torch.ones(2), proxy)[1:]
