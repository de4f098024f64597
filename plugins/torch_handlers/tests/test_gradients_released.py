"""torch.autograd.grad releases what it has differentiated: a second time is eager mode's error, in the function and on
what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature

grad = torch.autograd.grad


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * g * x


def twice(x: Tensor) -> Any:
    y = (x * x).sin().sum()
    return grad(y, x)[0] + grad(y, x)[0]


def twice_of_a_function(x: Tensor) -> Any:
    y = Squared.apply(x).sum()
    return grad(y, x)[0] + grad(y, x)[0]


def in_common(x: Tensor) -> Any:
    h = x * x
    return grad(h.sum(), x)[0] + grad((h * 3).sum(), x)[0]


def of_the_engine(x: Tensor) -> Any:
    y = (x * x).sin().sum()
    y.backward()
    y.backward()


def of_inputs(x: Tensor) -> Any:
    y = (x * x).sin().sum()
    y.backward(inputs=[x])
    y.backward(inputs=[x])


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("fn", [twice, twice_of_a_function, in_common, of_the_engine, of_inputs])
def test_a_second_time_is_refused(fn: Callable[[Tensor], Any], backend: str) -> None:
    armature.reset()
    for run in (fn, armature.compile(fn, backend=backend)):
        with pytest.raises(RuntimeError, match=r"^Trying to backward through the graph a second time"):
            run(torch.linspace(0.5, 1.5, 4, requires_grad=True))


def nothing_is_saved(x: Tensor) -> Any:
    y = (x + 1).sum()
    return grad(y, x)[0] + grad(y, x)[0]


def not_run(x: Tensor) -> Any:
    h = (x * x).sin()
    return grad(h.sum(), h)[0] + grad((h * 3).sum(), x)[0]


def retained(x: Tensor) -> Any:
    y = (x * x).sin().sum()
    return grad(y, x, None, True)[0] + grad(y, x, retain_graph=True)[0] + grad(y, x)[0]


def differentiated(x: Tensor) -> Any:
    y = (x * x).sin().sum()
    return grad(grad(y, x, create_graph=True)[0].sum(), x)


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("fn", [nothing_is_saved, not_run, retained, differentiated])
def test_what_is_retained_is_differentiated_again(fn: Callable[[Tensor], Any], backend: str) -> None:
    armature.reset()
    x = torch.linspace(0.5, 1.5, 4, requires_grad=True)
    torch.testing.assert_close(armature.compile(fn, fullgraph=True, backend=backend)(x), fn(x))


def loss(x: Tensor) -> Any:
    y = (x * x).sin().sum()
    return y, grad(y, x)[0]


def in_between(x: Tensor) -> Any:
    h = x * x
    (g,) = grad(h.sin().sum(), x)
    return h, h.view(2, 2) * 2, g, x.exp()


def given_to_the_leaves(x: Tensor) -> Any:
    y = (x * x).sin().sum()
    y.backward(inputs=[x])
    return y, x.grad


def with_a_second_derivative(x: Tensor) -> Any:
    y = (x * x).sin().sum()
    (g,) = grad(y, x, create_graph=True)
    return y, g


RESULTS = [loss, in_between, given_to_the_leaves, with_a_second_derivative, Squared.apply, retained]


def uses(fn: Callable[[Tensor], Any], one: int) -> Any:
    """The results of a function, and what differentiating one of them gives."""
    x = torch.linspace(0.5, 1.5, 4, requires_grad=True)
    results = fn(x)
    results = results if isinstance(results, tuple) else (results,)
    found: list[Any] = [*results, *(result.requires_grad for result in results)]
    if one < len(results) and results[one].requires_grad:
        try:
            found += grad(results[one].sum(), x)
        except RuntimeError as error:
            found.append(str(error))
    return [f.detach() if isinstance(f, Tensor) else f for f in found]


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("fn", RESULTS)
def test_results_are_differentiated_as_in_eager_mode(fn: Callable[[Tensor], Any], backend: str) -> None:
    armature.reset()
    quick = armature.compile(lambda x: fn(x), backend=backend)
    for one in range(4):
        ours, theirs = uses(quick, one), uses(fn, one)
        for mine, wanted in zip(ours, theirs, strict=True):
            same = torch.allclose(mine, wanted) if isinstance(wanted, Tensor) else mine == wanted
            assert same, (one, mine, wanted)


def test_nothing_is_saved_for_a_result_that_is_released() -> None:
    found: list[torch.fx.GraphModule] = []

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        found.append(module)
        return module.forward

    x = torch.linspace(0.5, 1.5, 4, requires_grad=True)
    result, _ = armature.compile(loss, fullgraph=True, backend=backend)(x)
    (module,) = found
    assert not any(value.requires_grad for value in module(x)) and result.requires_grad
