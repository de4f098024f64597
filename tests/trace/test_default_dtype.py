"""torch's default dtype, changed inside the function: held back, and set when the frame ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    armature.reset()
    yield
    torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def there_and_back(x: Tensor) -> Any:
    torch.set_default_dtype(torch.float64)
    wide = (
        torch.ones(2) + torch.tensor([0.1, 0.2]),
        (x > 0) / 2,
        x.long().mean(dtype=None) if x.is_complex() else x.long().sin(),
    )
    torch.set_default_dtype(torch.float32)
    return wide, torch.ones(2), torch.arange(3) / 2


def left_changed(x: Tensor) -> Any:
    torch.set_default_dtype(torch.float64)
    return torch.zeros(3) + x.long() / 3, torch.get_default_dtype()


def by_context(x: Tensor) -> Any:
    with default(torch.float16):
        inner = torch.full((2,), 0.1), x.bool() / 3
    return inner, torch.full((2,), 0.1), x * 2


def by_operators(x: Tensor) -> Any:
    n = x.long()
    with default(torch.float64):
        n = n.clone()
        y = torch.zeros(3)
        y += n / 3
        y[0] = 0.1
        z = n.float().mul_(2)
    return y, z, n.true_divide(7)


def across_a_break(x: Tensor) -> Any:
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3) + x
    armature.graph_break()
    z = torch.ones(3) / 3 + y
    torch.set_default_dtype(torch.float32)
    return y, z, torch.ones(1)


def in_a_context_across_a_break(x: Tensor) -> Any:
    with default(torch.float64):
        y = torch.ones(3) + x
        armature.graph_break()
        z = torch.ones(3) / 3 + y
    return y, z, torch.ones(1)


def caught(x: Tensor) -> Any:
    try:
        with default(torch.float64):
            if x.shape[0] == 3:
                raise KeyError(1)
    except KeyError:
        return torch.ones(2)
    return x


def with_gradients(x: Tensor) -> Any:
    w = torch.ones(3, requires_grad=False) * x
    with default(torch.float64):
        w = w * torch.linspace(0, 1, 3)
    return w.sum()


WHOLE: tuple[Callable[[Tensor], Any], ...] = (
    there_and_back, left_changed, by_context, by_operators, caught, with_gradients,
)  # fmt: skip
CUT: tuple[Callable[[Tensor], Any], ...] = (across_a_break, in_a_context_across_a_break)


def outcome(fn: Callable[[Tensor], Any]) -> Any:
    """What it gives, with the default dtype after it; from two defaults before it."""
    found = []
    for before in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(before)
        found.append((fn(torch.tensor([1.5, -2.5, 3.0], dtype=torch.float32)), torch.get_default_dtype()))
    torch.set_default_dtype(torch.float32)
    return found


def alike(found: Any, expected: Any) -> None:
    if isinstance(expected, torch.dtype):
        assert found is expected
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for pair in zip(found, expected):
            alike(*pair)
    else:
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
@pytest.mark.parametrize("fn", [*WHOLE, *CUT], ids=lambda fn: fn.__name__)
def test_like_eager(fn: Callable[[Tensor], Any], backend: str) -> None:
    expected = outcome(fn)
    alike(outcome(armature.compile(fn, backend=backend, fullgraph=fn in WHOLE)), expected)
    assert torch.get_default_dtype() is torch.float32
    if fn in WHOLE:
        assert len(session().compilations) == 2  # one for each default with which it began


def test_gradients() -> None:
    x = torch.ones(3, requires_grad=True)
    found = torch.autograd.grad(armature.compile(with_gradients, fullgraph=True)(x), x)
    alike(found, torch.autograd.grad(with_gradients(x), x))


def test_an_error_of_the_graph_leaves_it_as_it_was() -> None:
    def fn(x: Tensor, i: Tensor) -> Tensor:
        with default(torch.float64):
            return torch.ones(3) + x[i]

    quick = armature.compile(fn, backend="eager", fullgraph=True)
    alike(quick(torch.ones(3), torch.tensor([2])), fn(torch.ones(3), torch.tensor([2])))
    with pytest.raises(IndexError):
        quick(torch.ones(3), torch.tensor([7]))
    assert torch.get_default_dtype() is torch.float32


def test_no_such_default() -> None:
    def fn(x: Tensor) -> Any:
        try:
            torch.set_default_dtype(torch.int32)
        except TypeError:
            return torch.ones(2) + x
        return x

    alike(armature.compile(fn, backend="eager", fullgraph=True)(torch.ones(2)), torch.ones(2) + 1)


def test_functions_with_graphs_of_their_own_break() -> None:
    """A backward graph would run later, under another default."""

    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * torch.ones(3)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return (g * torch.ones(3)).float()

    def fn(x: Tensor) -> Any:
        with default(torch.float64):
            return Half.apply(x)

    with pytest.raises(armature.errors.Unsupported):
        armature.compile(fn, backend="eager", fullgraph=True)(torch.ones(3, requires_grad=True))
    alike(armature.compile(fn, backend="eager")(torch.ones(3, requires_grad=True)), fn(torch.ones(3)))
