"""Sums over what a condition selects: no size that only a run would tell is left in the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature_aten_lowerings.selections import sum_without_selecting

ALL = slice(None)
Where = Callable[[Tensor], Any]
WRITES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], Where]] = {  # sizes of x, row, condition
    "a row": ((5, 4), (4,), (5,), lambda mask: mask),
    "a row with its axis": ((5, 4), (1, 4), (5,), lambda mask: mask),
    "a condition of two axes": ((2, 5, 4), (4,), (2, 5), lambda mask: mask),
    "a number": ((2, 5), (), (2, 5), lambda mask: mask),
    "one number": ((5, 4), (1,), (5,), lambda mask: mask),
    "in the second axis": ((3, 5, 4), (3, 1, 4), (5,), lambda mask: (ALL, mask)),
    "the same in all of the first": ((3, 5, 4), (4,), (5,), lambda mask: (ALL, mask)),
}


@pytest.mark.parametrize(("sizes", "row", "condition", "where"), WRITES.values(), ids=WRITES)
def test_gradients_of_what_is_written_under_a_condition(
    sizes: tuple[int, ...], row: tuple[int, ...], condition: tuple[int, ...], where: Where
) -> None:
    def program(x: Tensor, row: Tensor, mask: Tensor) -> Tensor:
        h = x * 2
        h[where(mask)] = row
        return (h * h).sum()

    compiled = armature.compile(program, fullgraph=True)
    for number in range(3):
        torch.manual_seed(number)
        x, values, mask = torch.randn(sizes), torch.randn(row), torch.rand(condition) < number / 2
        found = []
        for run in (program, compiled):
            leaves = [tensor.clone().requires_grad_() for tensor in (x, values)]
            found.append(torch.autograd.grad(run(*leaves, mask), leaves))
        torch.testing.assert_close(found[0], found[1])


def sums(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    rows = torch.ops.aten.index.Tensor(x, [None, mask])
    named = torch.ops.aten.sum.dim_IntList
    parts = named(rows, [1]), named(rows, [-2, 2], True), named(rows, [1], dtype=torch.float64), named(rows, None)
    return (rows.sum(), *parts)


def test_sums_keep_their_axes_and_dtypes() -> None:
    x, mask = torch.randn(3, 2, 5, 4), torch.rand(2, 5) < 0.5
    x[:, ~mask] = torch.nan  # what is left out counts for nothing, whatever it is
    graph = traced(sums, x, mask)
    graph.recompile()
    torch.testing.assert_close(graph(x, mask), sums(x, mask))
    assert torch.ops.aten.index.Tensor not in {node.target for node in graph.graph.nodes}


@pytest.mark.parametrize(
    "program",
    [
        lambda x, mask: (torch.ops.aten.index.Tensor(x, [mask]) ** 2).sum(),  # its elements are read
        lambda x, mask: torch.ops.aten.index.Tensor(x, [mask]).sum(1),  # and here their number is
        lambda x, mask: torch.ops.aten.index.Tensor(x, [mask.nonzero()[:, 0]]).sum(0),  # rows may come twice
    ],
)
def test_other_selections_stay(program: Callable[..., Tensor]) -> None:
    graph = traced(program, torch.randn(5, 4), torch.tensor([True, False, True, True, False]))
    assert torch.ops.aten.index.Tensor in {node.target for node in graph.graph.nodes}


def traced(program: Callable[..., Any], *inputs: Tensor) -> torch.fx.GraphModule:
    """The program's ATen graph after the pass."""
    graph = torch.fx.experimental.proxy_tensor.make_fx(program, tracing_mode="real")(*inputs)
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            node.meta["val"] = inputs[[n for n in graph.graph.nodes if n.op == "placeholder"].index(node)]
        elif node.op == "call_function":
            operands = torch.fx.map_arg((node.args, node.kwargs), lambda needed: needed.meta["val"])
            node.meta["val"] = node.target(*operands[0], **operands[1])
    sum_without_selecting(graph, None)
    return graph
