"""`torch.cond` by a tensor is a node with two graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import armature
from tests.support.tensor_programs import compare, same
from tests.support.tracing import break_of, trace

SCALE = 3.0


def arguments() -> tuple[Any, ...]:
    return torch.linspace(-1, 1, 6).reshape(2, 3), torch.ones(3), True


def negative() -> tuple[Any, ...]:
    return torch.linspace(-2, 1, 6).reshape(2, 3), torch.ones(3), True


def closures(x, w, flag):
    def up(a):
        return (a * w).sin() + SCALE

    def down(a):
        return a.cos() + 1

    return torch.cond(x.sum() > 0, up, down, (x,)) * 2


def several(x, w, flag):
    y = x + 1
    pair = torch.cond(x.sum() > 0, lambda a, b: (a * b, a.sum()), lambda a, b: (a - b, b.sum()), (x, w))
    return pair, y, pair[0] + y


def nested(x, w, flag):
    def inner(a):
        return torch.cond(a.sum() > 1, lambda b: b * w, lambda b: b + y, (a,))

    y = x.exp()
    return torch.cond(x.sum() > 0, inner, lambda a: a - y, (x,))


def known(x, w, flag):
    return torch.cond(flag, lambda a: a + 1, lambda a: a - 1, (x,))


def without_operands(x, w, flag):
    return torch.cond(x.sum() > 0, lambda: x + 1, lambda: x * w)


def with_masks(x, w, flag):
    return torch.cond(x.sum() > 0, lambda a: (a > 0) & (a < w) | (a == 0), lambda a: (a < 0) ^ (a < w), (x,))


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, self.left, self.right, (x,))


@pytest.mark.parametrize("make", [arguments, negative])
@pytest.mark.parametrize("fn", [closures, several, nested, known, without_operands, with_masks])
def test_one_graph(fn: Callable[..., Any], make: Callable[[], Any]) -> None:
    compare(fn, make, fullgraph=True)


def test_one_code_for_both_ways() -> None:
    traced = trace(closures, *arguments())
    assert torch.ops.higher_order.cond in traced.targets()
    for make in (arguments, negative):
        assert traced.holds(closures, *make())
        same(traced.run(*make()), closures(*make()), "result")


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
def test_gradients_and_backends(backend: str) -> None:
    torch.manual_seed(0)
    model = Gate()
    compiled = armature.compile(model, backend=backend, fullgraph=True)
    for x in (torch.ones(4, 3), -torch.ones(4, 3)):
        grads = []
        for run in (model, compiled):
            model.zero_grad()
            out = run(x)
            out.sum().backward()
            grads.append(
                (out.detach(), [torch.zeros(()) if p.grad is None else p.grad.clone() for p in model.parameters()])
            )
        assert torch.allclose(grads[0][0], grads[1][0])
        for one, other in zip(grads[0][1], grads[1][1]):
            assert torch.allclose(one, other if other.shape == one.shape else torch.zeros_like(one))


def test_a_marked_region_is_the_function_itself() -> None:
    region = torch.compiler.nested_compile_region(lambda x, w, *, scale: (x * w).sum() * scale)

    def fn(x, w, flag):
        return region(x, w, scale=2) + region(w, x, scale=3)

    compare(fn, arguments, fullgraph=True)


def other_shapes(x, w, flag):
    return torch.cond(x.sum() > 0, lambda a: a, lambda a: a[0], (x,))


def gives_operand(x, w, flag):
    return torch.cond(x.sum() > 0, lambda a: a, lambda a: a + 1, (x,))


def writes(x, w, flag):
    return torch.cond(x.sum() > 0, lambda a: a.add_(1), lambda a: a + 1, (x,))


def breaks(x, w, flag):
    return torch.cond(x.sum() > 0, lambda a: a * a.sum().item(), lambda a: a + 1, (x,))


def number(x, w, flag):
    return torch.cond(x.sum() > 0, lambda a: 1, lambda a: 2, (x,))


SEEN: list[int] = []


def effects(x, w, flag):
    def up(a):
        SEEN.append(1)
        return a + 1

    return torch.cond(x.sum() > 0, up, lambda a: a - 1, (x,))


def effects_on_its_own(x, w, flag):
    seen = []

    def up(a):
        seen.append(1)
        return a + 1

    return torch.cond(x.sum() > 0, up, lambda a: a - 1, (x,)), len(seen)


@pytest.mark.parametrize("fn", [other_shapes, gives_operand, writes, number, effects, effects_on_its_own])
def test_no_graphs_of_their_own(fn: Callable[..., Any]) -> None:
    assert break_of(fn, *arguments()) == "cond-branches"


def test_what_breaks_in_a_branch_breaks_at_the_call() -> None:
    assert break_of(breaks, *arguments()) == "tensor-item"
