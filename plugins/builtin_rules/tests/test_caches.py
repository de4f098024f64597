"""Functions under functools.lru_cache: the program gets what they have kept, as it is by now."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from tests.support.resuming import compiled

SCALE = [1]
WEIGHT = torch.nn.Parameter(torch.ones(2))


@functools.lru_cache
def zeros(n: int) -> torch.Tensor:
    return torch.zeros(n)


@functools.lru_cache
def listed(n: Any, *more: Any, **named: Any) -> list[Any]:
    return [n, *more, named]


@functools.lru_cache
def nested(n: int) -> tuple[list[Any], dict[str, Any]]:
    return [torch.ones(n)], {"n": n}


@functools.lru_cache
def doubled(t: torch.Tensor) -> torch.Tensor:
    return t * 2


@functools.lru_cache
def scaled(n: int) -> int:
    return n * SCALE[0]


@functools.lru_cache
def weighed(n: int, scale: int = 1) -> torch.Tensor:
    return WEIGHT * n * scale


@functools.lru_cache
def outer(n: int) -> torch.Tensor:
    return zeros(n) + 1


@functools.lru_cache(maxsize=1)
def last(n: int) -> list[int]:
    return [n]


@functools.lru_cache
def decides(t: torch.Tensor) -> torch.Tensor:
    print("decides")
    return t * 2 if t.sum() > 1 else t * 3


@functools.lru_cache
def bumps(n: int) -> int:
    WEIGHT.data.add_(1)
    return n


@functools.lru_cache
def counts(n: int) -> Callable[[int], int]:
    calls = 0

    def count(m: int) -> int:
        nonlocal calls
        calls += 1
        return n + m + calls

    return count


class Thing:
    def __init__(self, n: int) -> None:
        self.n = n


@functools.lru_cache
def thing(n: int) -> Thing:
    return Thing(n)


class Scales(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.calls = 0

    @functools.lru_cache  # noqa: B019  what is tested
    def by(self, n: int) -> torch.Tensor:
        return self.weight * n

    @functools.lru_cache  # noqa: B019  what is tested
    def number(self, n: int) -> int:
        return n + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by(2) + self.number(3)


class Counts(Scales):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x)


SCALES, COUNTS = Scales(), Counts()


class Recipe:
    def __init__(self, axes: list[list[int]], names: dict[str, int], pair: tuple[int, ...]) -> None:
        self.axes, self.names, self.pair = axes, names, pair


@functools.lru_cache
def recipe(pattern: str, names: tuple[str, ...] = ()) -> Recipe:
    axes = [[len(word)] for word in pattern.split()]
    return Recipe(axes, {name: k for k, name in enumerate(names)}, (len(axes), 1))


CACHED = (
    zeros, listed, nested, doubled, scaled, weighed, outer, last, decides, bumps, counts, thing, Scales.by, Scales.number, recipe,
)  # fmt: skip


def changes_a_list(x: torch.Tensor) -> Any:
    listed(3).append(1)
    return x + len(listed(3)), list(listed(3))


def gives_a_list(x: torch.Tensor) -> Any:
    kept = listed(4, 2.0, z=1)
    return x + len(kept), kept


def given_tuples(x: torch.Tensor) -> Any:
    listed((1, (2, "a")), x.dtype).append(1)
    return x + len(listed((1, (2, "a")), x.dtype))


def changes_a_tensor(x: torch.Tensor) -> Any:
    zeros(2).add_(1)
    return x + zeros(2), zeros(2) is zeros(2)


def changes_parts(x: torch.Tensor) -> Any:
    tensors, facts = nested(2)
    tensors.append(1)
    facts["more"] = len(tensors)
    tensors[0].add_(1)
    return x + tensors[0], dict(facts)


def changes_an_object(x: torch.Tensor) -> Any:
    kept = thing(1)
    kept.n += 1
    return x + kept.n


def of_a_tensor(x: torch.Tensor) -> Any:
    doubled(x).add_(1)
    return doubled(x) + 0


def of_a_new_tensor(x: torch.Tensor) -> Any:
    y = x + 1
    first = doubled(y).clone()
    y.add_(1)
    return first, doubled(y), doubled(y) is doubled(y)


def within_another(x: torch.Tensor) -> Any:
    outer(2).add_(1)
    return x + outer(2) + zeros(2)


def of_a_module(x: torch.Tensor) -> Any:
    SCALES.by(2).data.add_(1)
    return SCALES(x)


def counted_calls(x: torch.Tensor) -> Any:
    return x + counts(2)(3)


def constants(x: torch.Tensor) -> Any:
    return x * scaled(3) + scaled(4)


def of_sizes(x: torch.Tensor) -> Any:
    return x + zeros(x.shape[0]) + scaled(x.shape[0])


def after_a_write(x: torch.Tensor) -> Any:
    x.add_(1)
    return x + doubled(x)


def after_a_change(x: torch.Tensor) -> Any:
    SCALE[0] += 1
    return x * scaled(3)


def counting_module(x: torch.Tensor) -> Any:
    return COUNTS(x), COUNTS.calls


def in_no_grad(x: torch.Tensor) -> Any:
    with torch.no_grad():
        first = x * weighed(3, scale=2)
    return first, weighed(3, scale=2).requires_grad


def in_grad_mode(x: torch.Tensor) -> Any:
    with torch.no_grad(), torch.enable_grad():
        first = weighed(3)
    return first * x, first.requires_grad, weighed(2).requires_grad


def keeps_one(x: torch.Tensor) -> Any:
    first = last(1)
    first.append(2)
    return x + len(last(2)), list(first), list(last(1)), last(1) is first


def goes_on_in_the_function(x: torch.Tensor) -> Any:
    return decides(x), decides(x) is decides(x)


def writes_once(x: torch.Tensor) -> Any:
    return x + bumps(2), WEIGHT.sum().item()


def by_a_recipe(x: torch.Tensor) -> Any:
    made = recipe("ab c", names=("a", "b"))
    return x * made.axes[0][0] + made.names["b"] + made.pair[0], made is recipe("ab c", names=("a", "b"))


def in_autocast(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", enabled=False):
        return by_a_recipe(x)


def after_another_change(x: torch.Tensor) -> Any:
    COUNTS.calls += 1
    return by_a_recipe(x)


ONE_GRAPH = (
    changes_a_list, gives_a_list, given_tuples, changes_a_tensor, changes_parts, changes_an_object, of_a_tensor, of_a_new_tensor,
    within_another, of_a_module, counted_calls, constants, of_sizes, in_no_grad, in_grad_mode,
    by_a_recipe, in_autocast, after_another_change,
)  # fmt: skip
WITH_BREAKS = (
    after_a_write, after_a_change, counting_module, keeps_one, goes_on_in_the_function, writes_once,
)  # fmt: skip


def begin() -> None:
    for cached in CACHED:
        cached.cache_clear()
    SCALE[0] = COUNTS.calls = 1
    WEIGHT.data.fill_(1)
    armature.reset()


def outside(number: int) -> None:
    """What others do between the calls."""
    zeros(2).mul_(2)
    listed(3).append(number)
    SCALE[0] = (1, 5, 1, 5, 1)[number]
    if number % 2:
        scaled.cache_clear()
        scaled(3)


def answers(run: Callable[[torch.Tensor], Any]) -> list[str]:
    begin()
    again, found = torch.ones(2), []
    for number in range(5):
        found.append(str(run(again if number < 2 else torch.ones(2))))
        outside(number)
    return found


@pytest.mark.parametrize("program", [*ONE_GRAPH, *WITH_BREAKS], ids=lambda program: program.__name__)
def test_like_eager(program: Callable[[torch.Tensor], Any]) -> None:
    mine, _ = compiled(program)
    assert answers(mine) == answers(program)


@pytest.mark.parametrize("program", ONE_GRAPH, ids=lambda program: program.__name__)
def test_in_one_graph(program: Callable[[torch.Tensor], Any]) -> None:
    begin()
    whole = armature.compile(program, backend="eager", fullgraph=True)
    assert str(whole(torch.ones(2))) == str((begin(), program(torch.ones(2)))[1])


@functools.lru_cache
def axes_of(shape: tuple[int, ...]) -> tuple[list[int], dict[str, int]]:
    return [size * 2 for size in shape], {"first": shape[0] + 1}


def test_sizes_that_changed_after_a_change_in_the_frame() -> None:
    def program(x: torch.Tensor) -> Any:
        COUNTS.calls += 1
        sizes, names = axes_of((x.shape[0], 3))
        return x + sizes[0] + names["first"], sizes is axes_of((x.shape[0], 3))[0]

    begin()
    whole = armature.compile(program, backend="eager", fullgraph=True)
    for size in (2, 3, 4, 5):
        assert str(whole(torch.ones(size))) == str(program(torch.ones(size)))


def test_gradients_reach_what_was_kept() -> None:
    begin()
    whole = armature.compile(SCALES, backend="eager", fullgraph=True)
    whole(torch.ones(2)).sum().backward()
    assert SCALES.weight.grad is not None and SCALES.weight.grad.tolist() == [2, 2]
    SCALES.weight.grad = None


def test_an_argument_can_be_freed() -> None:
    """The guards ask for it where it stands."""
    begin()
    whole = armature.compile(of_a_tensor, backend="eager", fullgraph=True)
    given = torch.ones(2)
    whole(given)
    gone = weakref.ref(given)
    del given
    assert gone() is not None and doubled.cache_info().currsize == 1
    doubled.cache_clear()
    gc.collect()
    assert gone() is None


def test_a_list_can_not_be_looked_up() -> None:
    begin()
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        armature.compile(lambda x: x + len(listed([1])), backend="eager")(torch.ones(2))  # type: ignore[arg-type]
