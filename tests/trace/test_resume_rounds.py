"""Loops with a graph break: what differs in later rounds is a symbol in the code of the first one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

import armature


def shapes_of_graphs(fn: Callable[..., Any], *calls: tuple[Any, ...], **options: Any) -> list[list[tuple[Any, ...]]]:
    """Per graph, the sorted sizes of its inputs that are tensors, "s" for symbols. Results are compared with eager mode."""
    found: list[list[tuple[Any, ...]]] = []

    def backend(module: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        fakes = [node.meta["example_value"] for node in module.graph.nodes if node.op == "placeholder"]
        tensors = [fake for fake in fakes if isinstance(fake, torch.Tensor)]
        found.append(sorted((tuple(n if type(n) is int else "s" for n in fake.shape) for fake in tensors), key=str))
        return module.forward

    compiled = armature.compile(fn, backend=backend, **options)
    for args in calls:
        torch.testing.assert_close(compiled(*args), fn(*args))
    return found


def over_tensors(x, many):
    for y in many:
        x = x + y.sum()
        armature.graph_break()
        x = x * y.mean()
    return x


def sizes(*numbers: int) -> list[torch.Tensor]:
    return [torch.linspace(0.5, 1.0, number) for number in numbers]


def test_sizes_of_later_rounds_are_symbols_at_once() -> None:
    x = torch.ones(3)
    first, middle, last = shapes_of_graphs(over_tensors, (x, sizes(4, 5, 6, 7)))
    assert first == [(3,), (4,)]
    assert middle == [("s",), ("s",), (3,)]
    assert last == [("s",), (3,)]


def test_equal_sizes_stay_constants() -> None:
    x = torch.ones(3)
    graphs = shapes_of_graphs(over_tensors, (x, sizes(4, 4, 4, 4)))
    assert graphs == [[(3,), (4,)], [(3,), (4,), (4,)], [(3,), (4,)]]


def test_nothing_becomes_a_symbol_with_static_sizes() -> None:
    x = torch.ones(3)
    graphs = shapes_of_graphs(over_tensors, (x, sizes(4, 5, 6)), dynamic=False)
    assert graphs == [[(3,), (4,)], [(3,), (4,), (5,)], [(3,), (5,), (6,)], [(3,), (6,)]]


def numbered(x, many):
    for k, y in enumerate(many):
        x = x + y * k
        armature.graph_break()
        x = x * y
    return x


def numbered_and_zipped(x, many):
    for k, (y, z) in enumerate(zip(many, many[::-1])):
        x = x + y.sum() * k
        armature.graph_break()
        x = x * y.mean() + z.sum() * k
    return x


def in_a_loop(x, many):
    for k in range(2):
        for y in many:
            x = x + y.sum() * k
            armature.graph_break()
            x = x * y.mean() + k
    return x


@pytest.mark.parametrize(
    ("loop", "many", "graphs"),
    [
        (numbered, sizes(3, 3, 3, 3, 3), 3),
        (numbered_and_zipped, sizes(4, 5, 6, 7, 8), 3),
        (in_a_loop, sizes(4, 5, 6), 4),
    ],
)
def test_one_code_for_all_rounds_but_the_last(loop: Callable[..., Any], many: list[torch.Tensor], graphs: int) -> None:
    assert len(shapes_of_graphs(loop, (torch.ones(3), many))) == graphs


def unpacked_otherwise(x, many):
    for y, *rest in many:
        x = x + y
        armature.graph_break()
        x = x * y + len(rest)
    return x


def test_targets_with_a_star_and_values_of_changing_length() -> None:
    rounds: Iterable[Any] = [(1.0, 2, 3), (2.0, 3), (4.0,), (5.0,)]
    shapes_of_graphs(unpacked_otherwise, (torch.ones(3), rounds))


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.experts = nn.ModuleList([nn.Linear(6, 6) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        tokens = nn.functional.one_hot(chosen, 4).permute(2, 1, 0)
        for number, expert in enumerate(self.experts):
            place, token = torch.where(tokens[number])
            out.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        return out


def test_experts_stay_compiled_with_another_number_of_tokens() -> None:
    """`place` and `token` are views of one tensor, which has nothing to do with `out`, to which a history is given."""
    torch.manual_seed(0)
    model = Experts()
    graphs = shapes_of_graphs(model, *[(torch.randn(number, 6),) for number in (24, 31, 40)])
    with_experts = [graph for graph in graphs if (6, 6) in graph]
    assert 4 <= len(with_experts) <= 7
    assert all(len(graph) > 3 for graph in with_experts)  # an expert alone has an input, a weight and a bias


def by_masks(t, mask):
    kept = torch.where(mask)[0]
    picked = t[kept] * 2
    large = picked[picked > 1]
    return large.sum(), torch.cat([large, large + 1])


def by_columns(t, mask):
    rows = torch.stack([t, t + 1, t + 2])
    picked = rows[:, mask]
    first, second, third = picked
    return first * second + third


@pytest.mark.parametrize(("fn", "graphs"), [(by_masks, 3), (by_columns, 3)])
def test_a_size_that_depends_on_values_is_a_symbol_at_once(fn: Callable[..., Any], graphs: int) -> None:
    calls = [(torch.linspace(0, 4, 9), torch.arange(9) < kept) for kept in (5, 7, 3, 6, 8)]
    found = shapes_of_graphs(fn, *calls)
    assert len(found) == graphs
    assert not any("s" in sizes for sizes in shapes_of_graphs(fn, *calls[:1], dynamic=False))
