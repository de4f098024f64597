"""The values of sparse tensors: strided tensors, which autograd takes for views of sparse ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

import armature

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "coo": lambda t: t.to_sparse_coo().coalesce(),
    "csr": torch.Tensor.to_sparse_csr,
    "csc": torch.Tensor.to_sparse_csc,
    "bsr": lambda t: t.to_sparse_bsr((1, 1)),
    "bsc": lambda t: t.to_sparse_bsc((1, 1)),
}


def sparse(layout: str, x: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # support of these layouts is in beta state
        return LAYOUTS[layout](x * 2)


def dense(learns: bool) -> torch.Tensor:
    return torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]], requires_grad=learns)


@pytest.mark.parametrize("learns", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_are_read(layout: str, learns: bool) -> None:
    armature.reset()
    x, y = dense(learns), dense(learns)
    compiled = armature.compile(lambda values: values * 2 + 1, fullgraph=True)
    found, expected = compiled(sparse(layout, x).values()), sparse(layout, y).values() * 2 + 1
    torch.testing.assert_close(found, expected)
    if learns:
        found.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


def grow(values: torch.Tensor) -> torch.Tensor:
    values.mul_(3)
    return values * values


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_are_written(layout: str) -> None:
    """Who holds the sparse tensor sees it."""
    armature.reset()
    held, expected = sparse(layout, dense(False)), sparse(layout, dense(False))
    found = armature.compile(grow, fullgraph=True)(held.values())
    torch.testing.assert_close(found, grow(expected.values()))
    torch.testing.assert_close(held.values(), expected.values())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_with_a_history_are_not_written(layout: str) -> None:
    """Autograd has no history for that, and says so, of some layouts in backward."""
    armature.reset()
    for run in (grow, armature.compile(grow)):
        with pytest.raises((RuntimeError, NotImplementedError)):
            run(sparse(layout, dense(True)).values()).sum().backward()
