"""0-d tensors as factors, fill values and bases, from which torch reads a number in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature

Function = Callable[[Tensor, Tensor, Tensor], Any]

# Functions of two tensors and a factor; those of a second group also change the first tensor.
FUNCTIONS: dict[str, Function] = {
    "add": lambda x, y, s: (torch.add(x, y, alpha=s), x.add(y[0], alpha=-s)),
    "sub": lambda x, y, s: (torch.sub(x, y, alpha=s), x.subtract(y, alpha=s), torch.rsub(x, y, alpha=s)),
    "in place": lambda x, y, s: (x.add_(y, alpha=s), x.sub_(y[0], alpha=s) is x),
    "products": lambda x, y, s: (torch.addcmul(x, y, y, value=s), x.addcdiv(y, y + 3, value=s)),
    "full": lambda x, y, s: (
        torch.full((2, 3), s), torch.full(size=(2,), fill_value=s, dtype=torch.int64), x.new_full((2,), s),
        torch.full_like(x, fill_value=s),
    ),
    "powers": lambda x, y, s: torch._foreach_pow(s, [x.abs(), y.abs()]),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_factor_that_the_graph_computes(name: str, dtype: torch.dtype, backend: str) -> None:
    """Such as a trust ratio, or a learning rate that is a tensor."""

    def function(x: Tensor, y: Tensor) -> Any:
        with torch.no_grad():
            return FUNCTIONS[name](x, y, y.norm() / 3)

    torch.manual_seed(0)
    x, y = torch.randn(3, 4, dtype=dtype), torch.randn(3, 4, dtype=dtype)
    given, expected = x.clone(), x.clone()
    found = armature.compile(function, backend=backend, fullgraph=True)(given, y)
    torch.testing.assert_close((found, given), (function(expected, y), expected))


@pytest.mark.parametrize("factor", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_sums_are_rounded_once(dtype: torch.dtype, factor: torch.dtype) -> None:
    def function(x: Tensor, y: Tensor, s: Tensor) -> Any:
        return torch.add(x, y, alpha=s), x.clone().sub_(y, alpha=s)

    torch.manual_seed(0)
    x, y, s = torch.rand(50).to(dtype) + 1, torch.rand(50).to(dtype), torch.tensor(0.25, dtype=factor)
    found = armature.compile(function, backend="eager", fullgraph=True)(x, y, s)
    assert all(map(torch.equal, found, function(x, y, s)))


def test_gradients_of_the_terms() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.add(x, y, alpha=y.detach().sum())

    grads = []
    for run in (function, armature.compile(function, backend="eager", fullgraph=True)):
        x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        run(x, y).sum().backward()
        grads.append((x.grad, y.grad))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("name", ["add", "products", "full"])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_factor_that_requires_gradients_is_refused(name: str, compiled: bool) -> None:
    """torch reads no number from it; the graph would compute a gradient."""

    def function(x: Tensor, s: Tensor) -> Any:
        return FUNCTIONS[name](x, x, s * 2)

    run = armature.compile(function, backend="eager") if compiled else function
    with pytest.raises(TypeError, match="must be Number, not Tensor"):
        run(torch.ones(2, 2), torch.tensor(3.0, requires_grad=True))
