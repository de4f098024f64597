"""Tensors that share memory: compiled code is used again only where they share it in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.frame.guards.memory import are_disjoint, extent, sharing
from armature.pipeline.session import session

Pair = tuple[torch.Tensor, torch.Tensor]


def separate() -> Pair:
    return torch.arange(4.0), torch.arange(4.0) + 1


def one_tensor() -> Pair:
    x = torch.arange(4.0)
    return x, x


def view_of_the_other() -> Pair:
    x = torch.arange(4.0)
    return x, x.view(4)


def slices(second: int) -> Callable[[], Pair]:
    def make() -> Pair:
        base = torch.arange(20.0)
        return base[:4], base[second : second + 4]

    return make


def in_place(x: Any, y: Any) -> Any:
    x.add_(1)
    return x * y


def set_item(x: Any, y: Any) -> Any:
    x[1] = 9.0
    return x * y


def through_data(x: Any, y: Any) -> Any:
    x.data.mul_(2)
    return x * y


def through_a_view(x: Any, y: Any) -> Any:
    x[1:].zero_()
    return y + x


def out(x: Any, y: Any) -> Any:
    torch.add(y, 1, out=x)
    return x * y


def foreach(x: Any, y: Any) -> Any:
    torch._foreach_add_([x], 1)
    return x * y


def operator_of_aten(x: Any, y: Any) -> Any:
    torch.ops.aten.add_.Tensor(x, 1)
    return x * y


def second_argument(x: Any, y: Any) -> Any:
    y += 1
    return x * y


MUTATIONS = [in_place, set_item, through_data, through_a_view, foreach, operator_of_aten, second_argument]


@pytest.mark.parametrize(
    ("fn", "backend"), [*((fn, "eager") for fn in MUTATIONS), *((fn, "auto") for fn in (in_place, set_item))]
)
def test_shared_memory_is_seen_where_one_input_is_changed(fn: Any, backend: str, watch: Any) -> None:
    watched = watch(fn, backend)
    assert watched.compiles(separate)
    assert not watched.compiles(separate)
    assert not watched.compiles(slices(8)), "parts of one storage that do not overlap are separate"
    assert watched.compiles(slices(2))
    assert not watched.compiles(slices(2))
    assert not watched.compiles(separate)


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_shared_memory_that_an_operator_refuses(backend: str, watch: Any) -> None:
    watched = watch(out, backend)
    assert watched.compiles(separate)
    assert not watched.compiles(slices(8))
    assert watched.compiles(slices(2))
    watched.compiles(separate)
    assert not watched.compiles(separate)


@pytest.mark.parametrize("other", [one_tensor, view_of_the_other, slices(3)])
def test_each_way_to_share_is_its_own(other: Any, watch: Any) -> None:
    watched = watch(in_place)
    assert watched.compiles(slices(1))
    assert watched.compiles(other)
    assert watched.compiles(separate)
    assert not watched.compiles(slices(1))


def test_sharing_does_not_matter_where_nothing_is_changed(watch: Any) -> None:
    def fn(x: Any, y: Any) -> Any:
        return x * y

    watched = watch(fn)
    assert watched.compiles(separate)
    for make in (slices(2), view_of_the_other, one_tensor):
        assert not watched.compiles(make)


def test_three_inputs_of_which_two_share(watch: Any) -> None:
    def fn(x: Any, y: Any, z: Any) -> Any:
        y.sub_(1)
        return x + y * z

    def make(first: int, second: int, third: int) -> Any:
        def arguments() -> Any:
            base = torch.arange(30.0)
            return tuple(base[k : k + 4] for k in (first, second, third))

        return arguments

    watched = watch(fn)
    assert watched.compiles(make(0, 4, 8))
    assert not watched.compiles(make(16, 8, 0))
    assert watched.compiles(make(0, 2, 8))
    assert watched.compiles(make(0, 4, 6))
    assert watched.compiles(make(0, 2, 4))
    assert not watched.compiles(make(0, 4, 12))


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_sharing_of_those_that_are_only_read_does_not_matter(backend: str, watch: Any) -> None:
    def fn(x: Any, y: Any, z: Any) -> Any:
        x.add_(1)
        return x * y + z

    def make(*places: int, apart: bool = True) -> Any:
        def arguments() -> Any:
            base = torch.arange(30.0)
            first, *others = (base[k : k + 4] for k in places)
            return (first.clone() if apart else first, *others)

        return arguments

    watched = watch(fn, backend)
    assert watched.compiles(make(0, 4, 8))
    for places in ((0, 4, 5), (0, 4, 4), (8, 3, 0), (8, 0, 12)):
        assert not watched.compiles(make(*places))
    assert not watched.compiles(make(12, 4, 5, apart=False))
    assert watched.compiles(make(0, 2, 8, apart=False))
    assert watched.compiles(make(0, 2, 3, apart=False))
    assert not watched.compiles(make(5, 9, 12))


def test_rounds_over_rows_compile_nothing_new() -> None:
    """Each row lies at another place in the tensor, which is read as well."""

    def fn(x: Any) -> Any:
        found = torch.zeros(len(x), 3)
        for place, row in enumerate(x):
            armature.graph_break()
            found[place] = row + x.sum(0)
        return found

    armature.reset()
    x = torch.arange(60.0).view(20, 3)
    assert torch.equal(armature.compile(fn, backend="eager")(x), fn(x))
    assert len(session().compilations) < 8


def test_parameters_that_share_with_an_input(watch: Any) -> None:
    layer = torch.nn.Linear(3, 3, bias=False)

    def fn(x: Any) -> Any:
        x.add_(1)
        return layer(x)

    held = layer.weight.detach()
    watched = watch(fn)
    with torch.no_grad():
        assert watched.compiles(lambda: (torch.ones(3),))
        before = held.clone()
        got = watched.compiled(held[0])
        held.copy_(before)
        assert torch.equal(got, fn(held[0]))


def test_where_a_tensor_begins(watch: Any) -> None:
    def fn(x: Any) -> Any:
        return x * x[1:].storage_offset()

    watched = watch(fn)
    assert watched.compiles(lambda: (torch.arange(8.0)[:1],))
    assert watched.compiles(lambda: (torch.arange(8.0)[4:5],))


def test_overlap_of_tensors_whose_sizes_are_symbols() -> None:
    def fn(x: Any, y: Any) -> Any:
        x.add_(1)
        return x * y

    def pair(size: int, start: int) -> Pair:
        base = torch.arange(40.0)
        return base[:size], base[start : start + size]

    compiled = armature.compile(fn, backend="eager", dynamic=True)
    for size, start in ((4, 10), (6, 12), (6, 3), (8, 4), (8, 8), (9, 8)):
        assert torch.equal(compiled(*pair(size, start)), fn(*pair(size, start)))
    assert len(session().compilations) < 6, "separate tensors of any size share one compilation"


RANGES: dict[str, tuple[list[int], list[int], tuple[tuple[int, int, int], ...]]] = {
    "apart": ([0, 8], [8, 8], ()),
    "overlap": ([0, 4], [8, 8], ((0, 1, 4),)),
    "the other way": ([4, 0], [8, 8], ((0, 1, -4),)),
    "inside": ([0, 2, 40], [30, 4, 4], ((0, 1, 2),)),
    "one inside, one behind it": ([0, 2, 10], [30, 4, 4], ((0, 1, 2), (0, 2, 10))),
    "the same": ([8, 8], [8, 8], ((0, 1, 0),)),
    "empty": ([8, 8], [8, 0], ()),
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges(name: str) -> None:
    starts, extents, expected = RANGES[name]
    assert sharing(starts, extents, [True] * len(starts)) == expected
    assert sharing(starts, extents, [False] * len(starts)) == ()
    assert sharing(starts, extents, [True] + [False] * (len(starts) - 1)) == tuple(p for p in expected if p[0] == 0)
    if all(extents):
        assert are_disjoint(starts, extents) == (not expected)


def test_extent_is_from_the_first_to_the_last_element() -> None:
    assert extent(torch.ones(2, 3)) == 24
    assert extent(torch.ones(4, 4)[:, :2]) == (3 * 4 + 2) * 4
    assert extent(torch.ones(3, dtype=torch.int8).expand(5, 3)) == 3
    assert extent(torch.ones(0, 3)) == 0
