"""Inference mode inside a compiled function: results, their kind and the state of torch are those of eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import armature
from tests.support.resuming import resumes

LAYER = nn.Linear(3, 3)


def whole(x):
    with torch.inference_mode():
        return LAYER(x).relu()


@torch.inference_mode()
def decorated(x):
    return LAYER(x), LAYER.weight.is_inference(), torch.is_inference_mode_enabled(), torch.is_grad_enabled()


@torch.inference_mode
def decorated_without_parentheses(x):
    return x + 1


def part(x):
    y = x * 2
    with torch.inference_mode():
        z = y + LAYER.bias
    return y, z, z.is_inference(), y.is_inference(), torch.is_inference_mode_enabled(), torch.is_grad_enabled()


def decided(x):
    with torch.inference_mode(x.shape[0] > 2):
        y = x + 1
    return y, y.is_inference()


def nested(x):
    with torch.inference_mode():
        y = x + 1
        with torch.inference_mode(False):
            z = x * 2
        with torch.enable_grad(), torch.autocast("cpu"):
            return y, z, x @ y


def views(x):
    with torch.inference_mode():
        return x.view(-1), x[0], x + 1


def writes(x):
    with torch.inference_mode():
        y = x + 1
        x.add_(1)
    return y, y[0]


def makes_a_decorator(x):
    @torch.inference_mode()
    def inner(q):
        return q + 1

    return inner(x)


def binds_none(x):
    with torch.inference_mode() as mode:
        y = x + 1
    return y, mode


def leaves_by_an_exception(x):
    try:
        with torch.inference_mode():
            y = x * 2
            raise KeyError("inside")
    except KeyError:
        return y, x * 3, torch.is_inference_mode_enabled()


CONTEXT = torch.inference_mode()


def from_outside(x):
    with CONTEXT:
        return x + 1, CONTEXT.mode


def not_used(x):
    mode = torch.inference_mode()
    return x + 1, mode.mode


class Generates(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    @torch.inference_mode()
    def forward(self, x):
        return self.inner(x).softmax(-1)


MODULE = Generates()
ONE_GRAPH = [
    whole, decorated, decorated_without_parentheses, part, decided, nested, views, writes, makes_a_decorator, binds_none,
    leaves_by_an_exception, from_outside, not_used, MODULE,
]  # fmt: skip


def pictured(result: Any) -> Any:
    """Tensors by their numbers and kind."""
    return torch.utils._pytree.tree_map(
        lambda t: (t.detach().tolist(), t.is_inference(), t.requires_grad) if isinstance(t, torch.Tensor) else t, result
    )


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda f: getattr(f, "__name__", "module"))
def test_in_one_graph(function: Callable[..., Any], backend: str, requires_grad: bool) -> None:
    mine = armature.compile(function, backend=backend, fullgraph=True)
    for _ in range(2):
        x = torch.linspace(-1, 1, 9).reshape(3, 3).clone().requires_grad_(requires_grad)
        y = x.detach().clone().requires_grad_(requires_grad)
        if function is writes:
            x, y = x * 1, y * 1
        expected = pictured(function(x))
        assert not torch.is_inference_mode_enabled()
        found = pictured(mine(y))
        assert not torch.is_inference_mode_enabled()
        torch.testing.assert_close(found, expected)
        assert torch.equal(x, y)


def test_a_mode_that_is_compared_with_a_changing_size() -> None:
    mine = armature.compile(decided, backend="eager", fullgraph=True)
    for rows in (3, 4, 5, 2):
        x = torch.ones(rows, 2)
        assert pictured(mine(x)) == pictured(decided(x))


def test_what_is_not_used_is_left_alone() -> None:
    explained = armature.explain(whole)(torch.ones(3, 3))
    assert "enter_inference_mode" in str(explained.graphs[0].code)


def with_a_break(x):
    with torch.inference_mode():
        y = x + 1
        print("inside")
        z = y * 2
    return y, z, z.is_inference(), torch.is_inference_mode_enabled()


def used_later(x):
    with torch.inference_mode():
        y = x + 1
    y.add_(1)  # RuntimeError: it is an inference tensor
    return y


def view_used_later(x):
    y = x.clone()
    with torch.inference_mode():
        x = x @ x
    try:
        x.t().mul_(2)  # RuntimeError, in this line
    finally:
        y[1] += 1


def error_after_a_break(x):
    try:
        with torch.inference_mode():
            print("inside")
            raise ValueError("here")
    except ValueError:
        return x + 1, torch.is_inference_mode_enabled()


@pytest.mark.parametrize("program", [with_a_break, used_later, view_used_later, error_after_a_break])
def test_breaks(program: Callable[..., Any]) -> None:
    assert resumes(program, lambda: (torch.ones(3, 3),)).graphs


@pytest.mark.parametrize("outside", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_tensors_from_outside_are_of_their_own_kind(outside: Callable[[], Any], backend: str) -> None:
    def program(x, y):
        return x.is_inference(), y.is_inference(), (x + y), x[0], y.view(-1)

    mine = armature.compile(program, backend=backend, fullgraph=True)
    with torch.inference_mode():
        inner = torch.ones(3, 3)
    with outside():
        for _ in range(2):
            assert pictured(mine(torch.ones(3, 3), inner)) == pictured(program(torch.ones(3, 3), inner))
            assert pictured(mine(inner, inner)) == pictured(program(inner, inner))
