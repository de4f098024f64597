"""Tensors of lists in which there are tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature import errors
from armature.pipeline.session import session

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip
OTHERS = (True, 3, 0.1, 16777217, 2**40, 1 / 3, 1e30)
LISTED: dict[str, Callable[[Tensor], Tensor]] = {
    "sums": lambda x: torch.tensor([x.sum(), x.max(), x[0]]),
    "nested": lambda x: torch.tensor([[x[0], 2, 0.5], (True, x[1], x.sum())]),
    "one": lambda x: torch.tensor([[[x[0]]]]),
    "sizes": lambda x: torch.tensor((x[0], x.shape[0], len(x))),
    "as_tensor": lambda x: torch.as_tensor([x[0], 1]),
    "asarray": lambda x: torch.asarray([x[0], x[1]], dtype=torch.float64),
    "half": lambda x: torch.tensor([x[0], 0.1, x.double()[1]], dtype=torch.float16),
    "no gradient": lambda x: torch.tensor([x[0] * 2, x[1]], requires_grad=False) * x[:2],
    "kept": lambda x: torch.tensor([x[0], x[1]]).add_(1) + x[:2],
}


@pytest.mark.parametrize("name", LISTED)
@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_listed(name: str, backend: str) -> None:
    armature.reset()
    quick = armature.compile(LISTED[name], backend=backend, fullgraph=True)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(3)
        exact = {"rtol": 0, "atol": 0} if backend == "eager" else {}  # compiled sums differ in the last bits
        torch.testing.assert_close(quick(x), LISTED[name](x), **exact)
    assert len(session().compilations) == 1


@pytest.mark.parametrize("wanted", [None, *DTYPES], ids=str)
@pytest.mark.parametrize("own", DTYPES, ids=str)
def test_dtypes(own: torch.dtype, wanted: torch.dtype | None) -> None:
    """With each dtype and kind of number: the dtype and numbers of eager mode, or its error."""
    armature.reset()
    options = {} if wanted is None else {"dtype": wanted}
    traced = 0
    for other in (*OTHERS, None):

        def listed(x: Tensor, y: Tensor, other: Any = other) -> Tensor:
            return torch.tensor([x[0], x[1] if other is None else other, y], **options)

        x, y = torch.tensor([1.3, 100.7]).to(own), torch.tensor(0.7).to(own)
        quick = armature.compile(listed, backend="eager")
        try:
            expected = listed(x, y)
        except Exception as error:
            with pytest.raises(type(error)):
                quick(x, y)
            continue
        torch.testing.assert_close(quick(x, y), expected, rtol=0, atol=0)
        traced += not session().compilations[-1].breaks
    assert traced or wanted is not None


def test_gradients_stop() -> None:
    armature.reset()
    x = torch.ones(3, requires_grad=True)
    quick = armature.compile(lambda x: torch.tensor([x[0] * 2, x[1]]) * x[:2], backend="eager", fullgraph=True)
    with pytest.warns(UserWarning, match="requires_grad"):
        expected = torch.tensor([x[0] * 2, x[1]]) * x[:2]
    found = quick(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), x), torch.autograd.grad(expected.sum(), x))


def test_default_dtype() -> None:
    """What a float counts as; another default compiles again."""
    armature.reset()
    quick = armature.compile(lambda x: torch.tensor([x[0], 0.1]), backend="eager", fullgraph=True)
    x = torch.ones(2, dtype=torch.float16)
    try:
        for dtype in (torch.float32, torch.float64, torch.float16, torch.float32):
            torch.set_default_dtype(dtype)
            torch.testing.assert_close(quick(x), torch.tensor([x[0], 0.1]), rtol=0, atol=0)
            assert quick(x).dtype is dtype
    finally:
        torch.set_default_dtype(torch.float32)


REFUSED: tuple[Callable[[Tensor], Any], ...] = (
    lambda x: torch.tensor([x, x]),
    lambda x: torch.tensor([x[:1], x[1:2]]),  # eager takes the one number out of each
    lambda x: torch.tensor([x[0], [x[1]]]),
    lambda x: torch.tensor([x[0], x[1]], requires_grad=True),
    lambda x: torch.tensor([x[0], x[1]], dtype=torch.int64),
    lambda x: torch.tensor([x[0], "a"]),
    lambda x: torch.vmap(lambda row: torch.tensor([row, 1.0]))(x),
)


@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_refused(place: int) -> None:
    armature.reset()
    fn, x = REFUSED[place], torch.ones(3)
    with pytest.raises(errors.Unsupported):
        armature.compile(fn, backend="eager", fullgraph=True)(x)
    loose = armature.compile(fn, backend="eager")
    try:
        expected = fn(x)
    except Exception as error:
        with pytest.raises(type(error)):
            loose(x)
        return
    torch.testing.assert_close(loose(x), expected)
