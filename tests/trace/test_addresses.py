"""`id(obj)`, hashes that depend on it, and `threading.get_ident()`: numbers that tracing does not know, as keys, results
and in comparisons."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import pytest
import torch

import armature


class Thing:
    """Known by its address."""


class Hashed:
    """Its hash depends on its address."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __hash__(self) -> int:
        return hash((id(self), self.size))

    def __eq__(self, other: object) -> bool:
        return hash(self) == hash(other)


class Pair(NamedTuple):
    first: int
    second: str


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return armature.compile(function, backend="eager")


def test_a_cache_by_id_is_kept_across_calls() -> None:
    cache: dict[Any, int] = {}

    def number(x: torch.Tensor, thing: Thing) -> torch.Tensor:
        if id(thing) not in cache:
            cache[id(thing)] = len(cache)
        return x + cache[id(thing)]

    run, x, first, second = compiled(number), torch.zeros(2), Thing(), Thing()
    found = [int(run(x, thing)[0]) for thing in (first, second, first, second)]
    assert found == [0, 1, 0, 1]
    assert list(cache) == [id(first), id(second)]


def test_ids_that_the_caller_put_in_containers_are_found() -> None:
    first, second = Thing(), Thing()
    known, pairs, seen = {id(first): 5}, {(id(first), 1): 7}, {id(first)}

    def look(x: torch.Tensor, thing: Thing) -> tuple[Any, ...]:
        pair = pairs.get((id(thing), 1), 0)
        seen.add(id(thing))
        return x + known.get(id(thing), 1), pair, len(seen)

    run, x = compiled(look), torch.zeros(2)
    assert [(int(t[0]), *rest) for t, *rest in (run(x, thing) for thing in (first, second, first))] == [
        (5, 7, 1),
        (1, 0, 2),
        (5, 7, 2),
    ]


def test_a_known_id_is_set_and_removed() -> None:
    first, second = Thing(), Thing()
    known, seen = {id(first): 5}, {id(first)}

    def change(x: torch.Tensor, thing: Thing) -> tuple[Any, ...]:
        known[id(thing)] = 6
        count = len(known)
        del known[id(thing)]
        seen.discard(id(thing))
        return x + count, len(known), len(seen)

    run, x = compiled(change), torch.zeros(2)
    assert [(int(t[0]), *rest) for t, *rest in (run(x, thing) for thing in (second, first))] == [(2, 1, 1), (1, 0, 0)]


def test_an_id_among_numbers_is_the_number_that_it_is() -> None:
    """A dict by `id(p)` that a call before left, as optimizers keep for state beside that of torch."""
    first, second = torch.zeros(1), torch.zeros(1)
    counts: dict[Any, Any] = {id(first): 5}
    left_out = {id(second), 1 << 40}

    def count(x: torch.Tensor, things: list[Any]) -> tuple[Any, ...]:
        for thing in things:
            if id(thing) not in counts:
                counts[id(thing)] = 0
            counts[id(thing)] += 1
            pairs = {(1 << 40, "a"): 3, (id(thing), "a"): 4}
            left_out.discard(id(thing))
            x = x + counts[id(thing)] + pairs[(id(thing), "a")]
        return x, [id(thing) in left_out for thing in things]

    run, thing = armature.compile(count, fullgraph=True, backend="eager"), Thing()
    for things, sums in (([first, second], 15), ([first, second], 17), ([first, thing], 17), ([first, second], 20)):
        x, known = run(torch.zeros(1), things)
        assert (int(x), known) == (sums, [False, False])
    assert counts == {id(first): 9, id(second): 3, id(thing): 1}
    assert left_out == {1 << 40}


def test_the_id_of_an_object_made_in_the_frame_is_no_number() -> None:
    numbers = {1 << 40: 1}

    def look(x: torch.Tensor) -> Any:
        made = Thing()
        return x + (id(made) in numbers), 1 << 40 in {id(made): 1}

    found = armature.explain(look)(torch.zeros(1))
    codes = [str(b.reason).partition("[")[2].partition("]")[0] for b in found.break_reasons]
    assert codes == ["address-among-numbers"] * 2
    assert compiled(look)(torch.zeros(1)) == (0, False)


def test_the_number_of_the_thread() -> None:
    by_thread = {threading.get_ident(): 3}
    main = threading.get_ident()

    def tell(x: torch.Tensor) -> tuple[Any, ...]:
        here = threading.get_ident()
        return here, x + by_thread.get(here, 7), here == main, threading.current_thread().name

    run, x, found = compiled(tell), torch.zeros(1), []

    def call() -> None:
        here, y, is_main, name = run(x)
        found.append((here == threading.get_ident(), int(y[0]), is_main, name == threading.current_thread().name))

    call()
    other = threading.Thread(target=call)
    other.start()
    other.join()
    call()
    assert found == [(True, 3, True, True), (True, 7, False, True), (True, 3, True, True)]


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_a_tuple_with_ids_given_to_a_cache(backend: str) -> None:
    """Such as a callee of a frame that breaks gets."""
    cache: dict[Any, Any] = {}

    def memoized(x: torch.Tensor, key: Hashable) -> Any:
        if key in cache:
            return x + cache[key]
        cache[key] = len(cache)
        return x - 1

    run, x, first, second = armature.compile(memoized, backend=backend), torch.zeros(2), Thing(), Thing()
    keys = [("f", (id(first), id(second))), ("f", (id(second), id(first)))]
    found = [int(run(x, key)[0]) for key in (*keys, *keys)]
    assert found == [-1, -1, 0, 1]
    assert list(cache) == keys


def test_objects_whose_hash_depends_on_their_address_are_keys() -> None:
    first, second = Hashed(1), Hashed(2)
    known = {first: 5, second: 6}

    def look(x: torch.Tensor, given: Hashed) -> tuple[Any, ...]:
        made = Hashed(3)
        sizes = {made: 1, given: 2}
        sizes[made] += len({made, given, first})
        known[given] += 1
        return x + known[given], sizes[made], given in sizes, hash(given), {hash(given): 4}[hash(given)]

    run, x = armature.compile(look, fullgraph=True, backend="eager"), torch.zeros(2)
    for given in (first, second, first):
        count = known[given] + 1
        y, *rest = run(x, given)
        assert (int(y[0]), *rest) == (count, 3 if given is first else 4, True, hash(given), 4)
    assert known == {first: 7, second: 7}


@pytest.mark.parametrize("use", [lambda h: h % 2, lambda h: h == hash(("other", 1)), lambda h: h and 1])
def test_a_hash_that_depends_on_an_address_is_no_number(use: Callable[[int], Any]) -> None:
    thing = Thing()

    def look(x: torch.Tensor) -> Any:
        return x + 1, use(hash((thing, 1)))

    found = armature.explain(look)(torch.zeros(1))
    assert [str(b.reason).partition("[")[2].partition("]")[0] for b in found.break_reasons] == ["hash-by-address"]
    assert compiled(look)(torch.zeros(1)) == (1, use(hash((thing, 1))))


@pytest.mark.parametrize(
    "key", [("a", 1), (), (1, (2.5, None)), Pair(1, "b"), torch.Size([2]), frozenset((1, 2)), (frozenset((1,)), "a")]
)
def test_a_given_key_is_guarded_by_its_members(key: Hashable) -> None:
    run, x = compiled(lambda x, held, key: x + held[key] if key in held else x - 1), torch.zeros(2)
    again = copy.deepcopy((key, 0))[0]
    assert [int(run(x, {key: 5}, k)[0]) for k in (key, again, ("other",))] == [5, 5, -1]
