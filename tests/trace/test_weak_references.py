"""Weak references, and dictionaries of them: which object it is matters, and that it lives as long as in eager mode."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature import errors
from tests.support.resuming import resumes

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


def let_go(t):
    thing = Thing()
    reference = weakref.ref(thing)
    del thing
    return t + 1, reference() is None


def replaced(t):
    thing = Thing()
    reference = weakref.ref(thing)
    thing = None
    return t + 1, reference() is None


def taken_from_keys(t):
    table = {Thing(): 1}
    keys = [*table]
    reference = weakref.ref(keys[0])
    table.clear()
    held = reference() is None
    del keys
    return t + 1, held, reference() is None


def taken_from_items(t):
    table = {Thing(): Thing()}
    pairs = [*table.items()]
    references = [weakref.ref(one) for one in pairs[0]]
    table.clear()
    pairs.clear()
    return t + 1, [reference() is None for reference in references]


def held_twice(t):
    thing = Thing()
    reference = weakref.ref(thing)
    things = [thing]
    del thing
    held = reference() is None
    things.pop()
    return t + 1, held, reference() is None


def left_in_a_helper(t):
    def make():
        thing = Thing()
        return weakref.ref(thing)

    return t + 1, make()() is None


def a_tensor(t):
    made = t + 1
    reference = weakref.ref(made)
    del made
    return t + 2, reference() is None


def in_an_attribute(t):
    thing = Thing()
    thing.parts = [Thing()]
    reference = weakref.ref(thing.parts[0])
    thing.parts.pop()
    return t + 1, reference() is None


def in_a_cycle(t):
    thing = Thing()
    thing.own = thing
    reference = weakref.ref(thing)
    del thing
    return t + 1, reference() is None


def called_back(t):
    told = []
    thing = Thing()
    reference = weakref.ref(thing, told.append)
    del thing
    return t + 1, len(told), reference() is None


def called_back_after_a_break(t):
    told = []
    thing = Thing()
    reference = weakref.ref(thing, told.append)
    print("break")
    del thing
    return t + 1, len(told), reference() is None


def weak_values(t):
    thing = Thing()
    table = weakref.WeakValueDictionary()
    table["a"] = thing
    before = len(table)
    del thing
    return t + 1, before, len(table)


def weak_members(t):
    thing = Thing()
    members = weakref.WeakSet([thing])
    before = len(members)
    del thing
    return t + 1, before, len(members)


def by_proxy(t):
    thing = Thing()
    proxy = weakref.proxy(thing)
    proxy.scale = 3
    before = proxy.scale, proxy is thing, type(proxy).__name__, isinstance(proxy, Thing)
    del thing
    try:
        return t * proxy.scale, before
    except ReferenceError as error:
        return t, before, str(error)


def finalized(t):
    told = []
    thing = Thing()
    weakref.finalize(thing, told.append, 2)
    del thing
    return t + 1, told


def let_go_after_a_break(t):
    print("first")
    thing = Thing()
    reference = weakref.ref(thing)
    print("break")
    del thing
    return t + 1, reference() is None


def emptied_after_a_break(t):
    things = [Thing()]
    reference = weakref.ref(things[0])
    print("break")
    things.clear()
    return t + 1, reference() is None


def replaced_between_breaks(t):
    for number in range(2):
        thing = Thing()
        reference = weakref.ref(thing)
        print("break", number)
        thing = None
        print(reference() is None)
    return t + 1


def of_the_caller(t):
    reference = weakref.ref(HELD[0])
    before = reference() is None
    HELD.clear()
    return t + 1, before, reference() is None


HELD: list[Thing] = []
ENDS = (
    let_go, replaced, taken_from_keys, taken_from_items, held_twice, left_in_a_helper, a_tensor, in_an_attribute,
    in_a_cycle, called_back, called_back_after_a_break, weak_values, weak_members, by_proxy, finalized,
    let_go_after_a_break, emptied_after_a_break, replaced_between_breaks, of_the_caller,
)  # fmt: skip


@pytest.mark.parametrize("fn", ENDS, ids=lambda fn: fn.__name__)
def test_objects_end_as_in_eager_mode(fn: Callable[..., Any]) -> None:
    def answers(run: Callable[..., Any]) -> list[str]:
        found = []
        for _ in range(3):
            HELD[:] = [Thing()]
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                found.append(str(run(torch.ones(2))) + said.getvalue())
        return found

    assert answers(armature.compile(fn, backend="eager")) == answers(fn)


@pytest.mark.parametrize("fn", [let_go, called_back, of_the_caller], ids=lambda fn: fn.__name__)
def test_one_graph_is_not_promised_where_objects_may_end(fn: Callable[..., Any]) -> None:
    HELD[:] = [Thing()]
    with pytest.raises(errors.Unsupported, match="a weak reference"):
        armature.compile(fn, backend="eager", fullgraph=True)(torch.ones(2))


class Counter:
    def __init__(self) -> None:
        self.calls = 0


def asks_what_is_held(t):
    first, inner = Thing(), Thing()
    first.inner = [inner]
    del inner
    COUNTER.calls += 1
    reference = weakref.ref(first.inner[0])
    return t + 1, reference() is first.inner[0], PARENT() is HELD_BY


COUNTER, HELD_BY = Counter(), Thing()
PARENT = weakref.ref(HELD_BY)


def test_what_is_surely_held_is_asked_in_the_graph() -> None:
    result, *rest = armature.compile(asks_what_is_held, backend=held_to_graph, fullgraph=True)(X)
    assert torch.equal(result, X + 1) and rest == [True, True]
    assert GRAPHS


GRAPHS: list[torch.fx.GraphModule] = []


def held_to_graph(graph: torch.fx.GraphModule, example_inputs: Any) -> Any:
    GRAPHS.append(graph)
    return graph


class Slotted:
    __slots__ = ("a",)


SLOTTED = Slotted()


@pytest.mark.parametrize("made", [lambda: SLOTTED, Slotted, lambda: 3, lambda: (1, 2), lambda: []], ids=range(5))
@pytest.mark.parametrize(
    "use",
    [
        weakref.ref,
        weakref.proxy,
        lambda obj: weakref.WeakSet().add(obj),
        lambda obj: weakref.WeakKeyDictionary({obj: 1}),
    ],
    ids=["ref", "proxy", "set", "dict"],
)
def test_what_has_no_weak_references_raises_as_in_eager_mode(made: Callable[[], Any], use: Callable[..., Any]) -> None:
    def fn(x):
        try:
            use(made())
        except TypeError as error:
            return x + 1, str(error)
        return x, ""

    (mine, said), (wanted, told) = armature.compile(fn, backend="eager")(X), fn(X)
    assert torch.equal(mine, wanted) and said == told


def test_reading_a_table_of_weak_values() -> None:
    table: Any = weakref.WeakValueDictionary()
    things = [Thing(), Thing()]
    for number, thing in enumerate(things):
        thing.scale = number + 2  # type: ignore[attr-defined]
        table[number] = thing

    def fn(x, key):
        try:
            found = x * table[key].scale
        except KeyError as error:
            return x, error.args
        return found, key in table, table.get(key) is things[key], table.get("none"), len(table), list(table)

    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    for key in (0, 1, 2):
        assert str(compiled(X, key)) == str(fn(X, key))
    things.pop()
    del thing
    gc.collect()
    assert str(compiled(X, 1)) == str(fn(X, 1))
    table[1] = things[0]
    assert str(armature.compile(fn, backend="eager")(X, 0)) == str(fn(X, 0))
