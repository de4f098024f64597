"""Hooks on tensors in a compiled function: gradients, what the hooks see, and when, are those of eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.errors import Unsupported
from armature.testing.differential import difference

LOG: list[Any] = []
WEIGHT = torch.full((3,), 2.0, requires_grad=True)


def on_a_result(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y.sum()


def several_with_closures(x):
    scale = x.detach() + 5
    y = x * WEIGHT
    y.register_hook(lambda g: g * scale)
    y.register_hook(lambda g: g.clamp(-1, 4))
    z = y.relu()
    z.register_hook(lambda g: g)
    return (z * 7).sum()


def changed_in_place_afterwards(x):
    y = x * 1
    y.register_hook(lambda g: g + 3)
    y.mul_(2)
    return y.sum()


def on_an_argument(x):
    x.register_hook(lambda g: LOG.append(g.tolist()))
    return (x * 2).sum()


def on_a_weight(x):
    WEIGHT.register_hook(lambda g: g * 3)
    return (WEIGHT * x).sum()


def after_accumulation(x):
    x.register_post_accumulate_grad_hook(lambda leaf: LOG.append(leaf.grad.tolist()))
    return (x * x).sum()


ONE_GRAPH = [
    on_a_result, several_with_closures, changed_in_place_afterwards, on_an_argument, on_a_weight, after_accumulation,
]  # fmt: skip


def logs_on_a_result(x):
    y = x * 2
    y.register_hook(lambda g: LOG.append(g.tolist()))
    return y.sum()


def removes_it(x):
    y = x * 2
    handle = y.register_hook(lambda g: g * 3)
    handle.remove()
    return y.sum()


def gives_it(x):
    y = x * 2
    return y.sum(), x.register_hook(lambda g: g * 3)


def of_another_shape(x):
    y = x * 2
    y.register_hook(lambda g: g.sum())
    return y.sum()


def branches_on_strides(x):
    y = x * 2
    y.register_hook(lambda g: g * 3 if g.is_contiguous() else g * 5)  # that of a sum is one number, expanded
    return y.sum()


def counts_strides(x):
    y = x * 2
    y.register_hook(lambda g: g * (g.stride(0) + 2))
    return y.sum()


BREAKS = [logs_on_a_result, removes_it, gives_it, of_another_shape, branches_on_strides, counts_strides]


def outcome(fn: Callable[..., Any]) -> Any:
    """Twice: gradients, or what the backward pass raises, and what hooks have seen."""
    seen = []
    for _ in range(2):
        LOG.clear()
        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        WEIGHT.grad, WEIGHT._backward_hooks = None, None
        result = fn(x)
        loss, *handles = result if isinstance(result, tuple) else (result,)
        try:
            loss.backward()
        except RuntimeError as error:
            seen.append(str(error))
        seen += [x.grad, WEIGHT.grad, list(LOG), [type(handle).__name__ for handle in handles]]
    return seen


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
@pytest.mark.parametrize("function", ONE_GRAPH)
def test_in_one_graph(function: Callable[..., Any], backend: str) -> None:
    mine = armature.compile(function, backend=backend, fullgraph=True)
    assert difference(outcome(function), outcome(mine)) <= 1e-6


@pytest.mark.parametrize("function", BREAKS)
def test_with_a_break(function: Callable[..., Any]) -> None:
    mine = armature.compile(function, backend="eager")
    assert difference(outcome(function), outcome(mine)) == 0.0
    with pytest.raises(Unsupported):
        armature.compile(function, backend="eager", fullgraph=True)(torch.ones(3, requires_grad=True))
