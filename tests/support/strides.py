"""Programs and inputs whose strides change from call to call, although no size explains them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

WIDTHS = (12, 17, 23, 40)

# A tensor in a buffer of the given width, whose own sizes are always the same.
PARTS: dict[str, Callable[[int], Tensor]] = {
    "columns": lambda width: torch.randn(4, width)[:, :6],
    "columns from the second": lambda width: torch.randn(4, width)[:, 1:7],
    "of three axes": lambda width: torch.randn(4, 2, width)[:, :, :6].transpose(0, 1)[0],
    "transposed": lambda width: torch.randn(6, width)[:, :4].t(),
    "every other row": lambda width: torch.randn(12, 2, width)[::3, 0, :6],
    "one row": lambda width: torch.randn(4, 1, width)[:, :, :6].expand(4, 6, 6)[:, 2],
    "diagonal": lambda width: torch.randn(width, width).as_strided((4, 6), (width + 1, width)),
    "both": lambda width: torch.randn(4, width, 3)[:, :6, 1],
}


def arithmetic(x: Tensor) -> Any:
    return x * 2 + x.sum(1, keepdim=True), x.softmax(0), (x - x.mean()).relu()


def products(x: Tensor) -> Any:
    return x @ x.t(), F.linear(x, torch.ones(3, 6)) + 1


def views(x: Tensor) -> Any:
    return x[1:], x.t(), x.reshape(-1) * 2, x.reshape(2, 12), (x * 2).view(-1), x.unflatten(1, (2, 3)) + 1


def expanded(x: Tensor) -> Any:
    return x.expand(3, 4, 6) + 1, x[:, :1].expand(4, 6) * x, torch.cat([x, x * 2]), x.flip(0) + x


def reductions(x: Tensor) -> Any:
    return x.sum(0), x.amax(1), x.cumsum(1), x.argmax(0), x.sort(1).values


def numbers(x: Tensor) -> Any:
    return x * x.stride(0), x.is_contiguous(), x.stride(0) > 3


def gathered(x: Tensor) -> Any:
    places = torch.tensor([2, 0, 3])
    return x[places], x.gather(1, torch.zeros(4, 2, dtype=torch.int64)), x.index_select(1, places)


FUNCTIONS = (arithmetic, products, views, expanded, reductions, numbers, gathered)


def written(x: Tensor) -> Tensor:
    x.mul_(2)
    x[1:3] += 1
    return x.sin()


def trained(x: Tensor) -> Any:
    return (x * x).sum(1), (x @ x.t()).tanh(), x.t().reshape(-1) * 2


def layouts(result: Any) -> list[tuple[int, ...]]:
    """The strides of all tensors of a result."""
    results = result if isinstance(result, tuple) else (result,)
    return [one.stride() for one in results if isinstance(one, Tensor)]


def check(quick: Callable[..., Any], fn: Callable[..., Any], part: Callable[[int], Tensor], width: int) -> None:
    """Results, layouts and what the call writes, as in eager mode."""
    torch.manual_seed(width)
    mine = part(width)
    torch.manual_seed(width)
    theirs = part(width)
    found, expected = quick(mine), fn(theirs)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(mine, theirs)
    assert layouts(found) == layouts(expected)


def check_gradients(
    quick: Callable[..., Any], fn: Callable[..., Any], part: Callable[[int], Tensor], width: int
) -> None:
    """Results and gradients, of the part and of the memory that it is a view of."""
    gradients = []
    for run in (quick, fn):
        torch.manual_seed(width)
        x = part(width).requires_grad_()
        results = run(x)
        torch.autograd.backward(results, [torch.ones_like(one) for one in results])
        gradients.append((results, x.grad))
    torch.testing.assert_close(*gradients)
