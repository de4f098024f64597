"""`torch.istft` in a graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from armature.api import public as api

WINDOW = torch.hann_window(16)


def spectrum(*sizes: int, dtype: torch.dtype = torch.complex64) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*sizes, dtype=dtype, generator=generator)


@pytest.mark.parametrize("backend", [{"backend": "eager"}, {}], ids=str)
@pytest.mark.parametrize(("sizes", "options"), [
    ((9, 5), {"window": WINDOW}),
    ((2, 9, 5), {"window": WINDOW, "length": 20}),
    ((9, 5), {}),
    ((9, 5), {"window": WINDOW, "hop_length": 8, "normalized": True}),
    ((9, 5), {"window": torch.hann_window(12), "win_length": 12, "hop_length": 3}),
    ((9, 5), {"window": torch.ones(16), "center": False}),
    ((3, 16, 5), {"window": WINDOW, "onesided": False, "return_complex": True}),
    ((16, 5), {"window": WINDOW, "onesided": False}),
], ids=str)  # fmt: skip
@pytest.mark.filterwarnings("ignore:A window was not provided")
def test_like_eager(sizes: tuple[int, ...], options: dict[str, Any], backend: dict[str, Any]) -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.istft(x * 2, 16, **options)

    for dtype in (torch.complex64, torch.complex128):
        x = spectrum(*sizes, dtype=dtype)
        found, expected = api.compile(fn, fullgraph=True, **backend)(x), fn(x)
        assert found.dtype is expected.dtype and found.shape == expected.shape
        if backend:
            assert torch.equal(found, expected) and found.stride() == expected.stride()
        torch.testing.assert_close(found, expected)


def test_gradients() -> None:
    mine, theirs = (spectrum(9, 5).requires_grad_() for _ in range(2))
    api.compile(lambda x: torch.istft(x, 16, window=WINDOW).square().sum(), backend="eager", fullgraph=True)(
        mine
    ).backward()
    torch.istft(theirs, 16, window=WINDOW).square().sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("backend", [{"backend": "eager"}, {}], ids=str)
def test_a_bad_window_is_eager_modes_error(backend: dict[str, Any]) -> None:
    def fn(x: Tensor, window: Tensor) -> Tensor:
        return torch.istft(x, 16, window=window)

    x, compiled = spectrum(9, 5), api.compile(fn, fullgraph=True, **backend)
    for window in (WINDOW, torch.zeros(16), WINDOW):
        try:
            expected: Any = fn(x, window)
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as raised:
                compiled(x, window)
            assert str(raised.value) == str(error)
        else:
            torch.testing.assert_close(compiled(x, window), expected)


@pytest.mark.parametrize("options", [
    {"window": torch.ones(3)}, {"hop_length": 20}, {"win_length": 17}, {"onesided": False}, {"length": 200},
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:The length of signal is shorter")
def test_what_eager_mode_refuses_or_warns_of(options: dict[str, Any]) -> None:
    def fn(x: Tensor) -> Any:
        try:
            return torch.istft(x, 16, **options)
        except RuntimeError as error:
            return str(error)

    x = spectrum(9, 5)
    assert str(api.compile(fn, backend="eager")(x)) == str(fn(x))
