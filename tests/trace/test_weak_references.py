"""Weak references, and dictionaries of them: which object it is matters, and that it lives as long as in eager mode."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.testing.resuming import resumes

X = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)


def one() -> tuple[torch.Tensor]:
    return (X,)


class Thing:
    @functools.singledispatchmethod
    def name(self, of: Any) -> str:
        return "other"

    @name.register
    def _(self, of: int) -> str:
        return f"number {of}"


THINGS = [Thing(), Thing()]


def test_a_table_of_other_objects() -> None:
    first, second, absent = Thing(), Thing(), Thing()
    weak = weakref.WeakKeyDictionary({first: 2, second: 3})
    plain = {weakref.ref(first): 2, weakref.ref(second): 3}

    def looks_up(x, thing):
        return x * weak.get(thing, 5) + plain.get(weakref.ref(thing), 7)

    compiled = armature.compile(looks_up, backend="eager", fullgraph=True)
    for thing in (first, second, absent, first):
        assert torch.equal(compiled(X, thing), looks_up(X, thing))


def test_an_object_made_here_is_in_no_table() -> None:
    table: Any = weakref.WeakKeyDictionary(dict.fromkeys(THINGS, 2))
    plain = dict.fromkeys(THINGS, 2)

    def looks_up(x):
        thing = Thing()
        found = plain.get(thing, 3), table.get(thing, 5), thing in table
        table[thing] = 7
        both = {thing: 1, weakref.ref(thing): 2}
        return x * table[thing], *found, len(both), both[weakref.ref(thing)], len(table)

    compiled = armature.compile(looks_up, backend="eager", fullgraph=True)
    for _ in range(2):
        result, *rest = compiled(X)
        assert torch.equal(result, X * 7) and rest == [3, 5, False, 2, 2, 3]
    assert len(table) == 2  # what was made has gone


def test_a_method_chosen_by_type() -> None:
    """Python 3.13 keeps the bound functions in a dictionary of weak references."""

    def calls(x, thing):
        return x * 2, Thing().name(1), thing.name(1), thing.name("a"), thing.name is thing.name

    compiled = armature.compile(calls, backend="eager", fullgraph=True)
    for thing in (*THINGS, *THINGS):
        assert compiled(X, thing)[1:] == calls(X, thing)[1:]


def test_what_can_not_be_referred_to() -> None:
    def refers(x):
        return x * 2, weakref.ref(5)

    with pytest.raises(TypeError, match="cannot create weak reference to 'int' object"):
        armature.compile(refers, backend="eager")(X)


def referred_to_across_a_break(t):
    thing = Thing()
    reference = weakref.ref(thing)
    t = t + 1
    print("break")
    return t * 2, reference() is None


def referred_to_across_breaks(t):
    print("first")
    thing = Thing()
    reference = weakref.ref(thing)
    for i in range(3):
        t = t + i
        print(i, reference() is None)
    return t, reference() is None


def refers_in_a_helper(t):
    def helper(t):
        thing = Thing()
        reference = weakref.ref(thing)
        print("break")
        t = t * 2
        print(reference() is None)
        return t, reference() is None

    return helper(t + 1)


@pytest.mark.parametrize(
    "fn", [referred_to_across_a_break, referred_to_across_breaks, refers_in_a_helper], ids=lambda fn: fn.__name__
)
def test_objects_live_as_long_as_the_variable(fn: Any) -> None:
    assert resumes(fn, one).eager == []


class Plain:
    pass


@pytest.mark.parametrize(
    "ask",
    [
        lambda t, held, key: t + held[key],
        lambda t, held, key: t + (key in held),
        lambda t, held, key: [t, len(held)],
        lambda t, held, key: [one is key for one in held],
    ],
)
def test_objects_that_are_keys_are_not_kept_alive(ask: Callable[..., Any]) -> None:
    key = Plain()
    held = {key: 1}
    run = armature.compile(ask, backend="eager")
    for _ in range(2):
        run(torch.ones(2), held, key)
    lives = weakref.ref(key)
    del key, held
    gc.collect()
    assert lives() is None


def test_what_stands_under_an_object_is_guarded() -> None:
    def ask(t: torch.Tensor, held: dict[object, Any], key: object) -> object:
        return held[key], t + 1

    key, other = Plain(), Plain()
    run = armature.compile(ask, backend="eager")
    held: dict[object, Any] = {key: None}
    assert run(torch.ones(2), held, key)[0] is None
    held[key] = 3
    assert run(torch.ones(2), held, key)[0] == 3
    assert run(torch.ones(2), {other: 4}, other)[0] == 4
    del held[key]
    with pytest.raises(KeyError):
        run(torch.ones(2), held, key)
    assert run(torch.ones(2), {None: 7, other: 5}, other)[0] == 5
