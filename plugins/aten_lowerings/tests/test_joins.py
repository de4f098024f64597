"""Joins, parts of joins and copies that nobody needs: gone from the graph, with eager's values, layouts and memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature
from armature.pipeline.session import session

aten = torch.ops.aten
JOINS = frozenset({aten.cat.default, aten.stack.default, aten.clone.default, aten.constant_pad_nd.default})
Program = Callable[[Tensor, Tensor], object]


def inputs(grad: bool = False) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, 8, 16, generator=generator).requires_grad_(grad) for _ in range(2)]


def joins_of(fn: Program) -> list[object]:
    """The joins and copies that are left in the graph; checks the results on the way."""
    armature.reset()
    with torch.no_grad():
        wanted, found = fn(*inputs()), armature.compile(fn, fullgraph=True)(*inputs())
    torch.testing.assert_close(found, wanted)
    layouts = [[one.stride() for one in (each if isinstance(each, tuple) else (each,))] for each in (found, wanted)]
    assert layouts[0] == layouts[1]
    [graph] = session().compilations[-1].graphs
    return [n.target for n in graph.aten.module.graph.nodes if n.target in JOINS]


GONE: dict[str, Program] = {
    "parts of a split": lambda x, y: torch.cat(x.split(4, 1), 1) @ y.mT,
    "parts of a chunk": lambda x, y: torch.cat(x.chunk(3, -1), -1) @ y.mT,
    "slices": lambda x, y: torch.cat([x[..., :2], x[..., 2:9], x[..., 9:]], 2) @ y.mT,
    "slices of slices": lambda x, y: torch.cat([x[..., :9][..., :2], x[..., 2:9], x[..., -7:]], 2) @ y.mT,
    "one": lambda x, y: torch.cat([x], 1) @ y.mT,
    "all entries": lambda x, y: torch.stack(x.unbind(1), 1) @ y.mT,
    "selected entries": lambda x, y: torch.stack([x[:, k] for k in range(8)], 1) @ y.mT,
    "padding by nothing": lambda x, y: F.pad(x, (0, 0, 0, 0)) @ y.mT,
    "a copy": lambda x, y: x.clone() @ y.mT,
    "a copy that is only copied": lambda x, y: x.mT.contiguous().mT.contiguous() @ y.mT,
    "slices of a join": lambda x, y: (lambda c: c[:, :8] @ c[:, 8:].mT)(torch.cat([x, y], 1)),
    "a split of a join": lambda x, y: (lambda a, b: a @ b.mT)(*torch.cat([x, y], 1).split(8, 1)),
    "a part of what was joined": lambda x, y: torch.cat([x, y], 1)[:, 2:5] @ torch.cat([x, y], 1)[:, 10:].mT,
    "an entry of a stack": lambda x, y: (lambda s: s[0] @ s[1].mT)(torch.stack([x, y])),
}
LEFT: dict[str, tuple[Program, int]] = {
    "returned": (lambda x, y: torch.cat(x.split(4, 1), 1), 1),
    "a returned copy": (lambda x, y: (x.clone(), x + y), 1),
    "a returned view of a join": (lambda x, y: torch.cat([x, y], 1)[:, :8], 1),
    "another order": (lambda x, y: torch.cat([x[:, 4:], x[:, :4]], 1) @ y.mT, 1),
    "another axis": (lambda x, y: torch.cat(x.split(4, 1), 0) @ y[:, :4].mT.repeat(2, 1, 1), 1),
    "not all": (lambda x, y: torch.cat([x[:, :3], x[:, 4:]], 1) @ y.mT, 1),
    "across the seam": (lambda x, y: torch.cat([x, y], 1)[:, 4:12] @ y.mT, 1),
    "another layout": (lambda x, y: torch.cat(x.mT.split(4, 1), 1) @ y, 1),
    "a part whose layout would be passed on": (lambda x, y: torch.cat([x.mT, y.mT], 1)[:, :16].sin() @ y, 1),
    "a copy of another layout": (lambda x, y: x.mT.contiguous() @ y, 1),
    "a copy that is copied and read": (
        lambda x, y: (lambda c: (c.mT.contiguous() @ y.mT, c @ y))(x.mT.contiguous()),
        2,
    ),
    "a wider dtype": (lambda x, y: torch.cat([x, y.double()], 1)[:, :8] @ y.mT.double(), 1),
    "of a join, one is returned": (lambda x, y: (lambda c: (c[:, :8] @ y.mT, c))(torch.cat([x, y], 1)), 1),
    "joined within joins": (lambda x, y: torch.cat([torch.cat([x, y], 1), torch.cat([y, x[:, :2]], 1)], 1) @ y.mT, 1),
    "a join that is read as well": (
        lambda x, y: (lambda c: (torch.cat([c, x], 1) @ y.mT, c @ y.mT))(torch.cat([x, y], 1)),
        2,
    ),
}


@pytest.mark.parametrize("case", GONE)
def test_what_nobody_needs_goes_away(case: str) -> None:
    assert joins_of(GONE[case]) == []


@pytest.mark.parametrize("case", LEFT)
def test_what_somebody_needs_is_left(case: str) -> None:
    fn, count = LEFT[case]
    assert len(joins_of(fn)) == count


def test_joins_within_joins_are_one() -> None:
    armature.reset()
    with torch.no_grad():
        armature.compile(LEFT["joined within joins"][0], fullgraph=True)(*inputs())
    [graph] = session().compilations[-1].graphs
    [join] = graph.aten.module.graph.find_nodes(op="call_function", target=aten.cat.default)
    assert len(join.args[0]) == 4


def mixed_dtypes(x: Tensor, y: Tensor) -> Tensor:
    numbers = torch.full((4, 1, 16), 2**40 + 1)
    return torch.cat([torch.cat([numbers, x], 1), y.double()], 1)


def test_a_join_that_rounds_is_left() -> None:
    torch.testing.assert_close(armature.compile(mixed_dtypes, fullgraph=True)(*inputs()), mixed_dtypes(*inputs()))


@pytest.mark.parametrize("case", [*GONE, *LEFT])
def test_gradients_are_those_of_eager(case: str) -> None:
    fn = GONE[case] if case in GONE else LEFT[case][0]
    found, wanted = inputs(grad=True), inputs(grad=True)
    with armature.config.patch(own_products=False):  # whose sums have another order
        for run, given in ((armature.compile(fn, fullgraph=True), found), (fn, wanted)):
            results = run(*given)
            sum(one.square().sum() for one in (results if isinstance(results, tuple) else (results,))).backward()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def written_before(x: Tensor, y: Tensor) -> Tensor:
    kept = x.clone()
    parts = torch.cat([x[:, :4], x[:, 4:]], 1)
    x.mul_(2)
    return kept @ y.mT + parts @ y.mT


def written_to(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    copy = torch.cat(x.split(4, 1), 1)
    copy += 1
    part = torch.cat([x, y], 1)[:, :8]
    part.mul_(3)
    return copy @ y.mT, part @ y.mT


def returned_twice(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    joined = torch.cat([x, y], 1)
    return joined, joined[:, :8], x.clone()


@pytest.mark.parametrize("fn", [written_before, written_to, returned_twice])
def test_memory_is_that_of_eager(fn: Callable[..., Tensor | tuple[Tensor, ...]]) -> None:
    seen = []
    for run in (armature.compile(fn, fullgraph=True), fn):
        given = inputs()
        with torch.no_grad():
            results = run(*given)
        results = results if isinstance(results, tuple) else (results,)
        before = [one.clone() for one in (*results, *given)]
        results[0].zero_()  # seen in what shares its memory, and nowhere else
        seen.append([before, *results, *given])
    torch.testing.assert_close(*seen)


def alike(x: Tensor, y: Tensor) -> Tensor:
    return (x.transpose(0, 1) @ y.transpose(0, 1).mT).sum() + (x.permute(1, 0, 2) @ y.permute(1, 2, 0)).sum()


def either_way(x: Tensor, y: Tensor) -> Tensor:
    return (x + y) @ (y + x).mT + (x * y) @ (y * x).mT


def returned_and_read(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x @ y.mT, (x @ y.mT).sin()


def read_and_returned(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    read = (x @ y.mT).sin()
    return read, x @ y.mT


@pytest.mark.parametrize(
    ("fn", "operator", "count"),
    [
        (alike, aten.bmm.default, 1),
        (either_way, aten.add.Tensor, 2),
        (returned_and_read, aten.bmm.default, 1),
        (read_and_returned, aten.bmm.default, 1),
        (lambda x, y: (x @ y.mT, x @ y.mT), aten.bmm.default, 2),
    ],
    ids=["views", "operands", "returned first", "returned later", "both returned"],
)
def test_what_is_computed_twice_is_computed_once(fn: Program, operator: object, count: int) -> None:
    joins_of(fn)
    [graph] = session().compilations[-1].graphs
    assert [n.target for n in graph.aten.module.graph.nodes].count(operator) == count
