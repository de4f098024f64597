"""Conversions from and to floats of 8 bits, as eager mode makes them; the core's formulas, through the rows that use
them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from armature.testing.lowering_kit import Kit

aten = torch.ops.aten
FORMATS = (torch.float8_e4m3fn, torch.float8_e5m2)
WIDE = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def every(dtype: torch.dtype) -> Tensor:
    """All 256 values."""
    return torch.arange(256, dtype=torch.uint8).view(dtype)


def numbers(dtype: torch.dtype) -> Tensor:
    """What rounds to each of the values, from either side, ties between them, and what is too large or too small."""
    values = every(dtype).float()
    finite = values[values.isfinite()].sort().values
    ties = (finite[1:] + finite[:-1]) / 2
    edges = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 480, 500, 61439, 61440, 65536, 1e30, 1e-45, 1e-40])
    near = [ties * factor for factor in (1, 1 + 2**-20, 1 - 2**-20)]
    spread = torch.randn(4000) * 10 ** torch.linspace(-9, 7, 4000)
    return torch.cat([values, *near, edges, -edges, spread])


def same_bits(ours: Tensor, theirs: Tensor) -> bool:
    """Whether all are the same value, with the same sign if it is zero; any NaN equals another."""
    known = ~theirs.float().isnan()
    return bool(((ours.view(torch.uint8) == theirs.view(torch.uint8)) | ~known).all()) and bool(
        (ours.float().isnan() == ~known).all()
    )


@pytest.mark.parametrize("source", WIDE, ids=str)
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_rounding_is_eagers(kit: Kit, dtype: torch.dtype, source: torch.dtype) -> None:
    x = numbers(dtype).to(source)
    (found,) = kit.results(aten._to_copy.default, x, dtype=dtype)
    assert same_bits(found, x.to(dtype))


@pytest.mark.parametrize("target", [*WIDE, *FORMATS], ids=str)
@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_values_are_exact(kit: Kit, dtype: torch.dtype, target: torch.dtype) -> None:
    x = every(dtype)
    (found,) = kit.results(aten._to_copy.default, x, dtype=target)
    if target in FORMATS:
        assert same_bits(found, x.to(target))
    else:
        torch.testing.assert_close(found, x.to(target), rtol=0, atol=0, equal_nan=True)
        assert bool((found.signbit() == x.to(target).signbit())[~found.isnan()].all())


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_bits_are_moved_as_they_are(kit: Kit, dtype: torch.dtype) -> None:
    x = every(dtype).reshape(16, 16)
    for op, args in ((aten.clone.default, (x.t(),)), (aten.flip.default, (x, [0])), (aten.cat.default, ([x, x], 1))):
        (found,) = kit.results(op, *args)
        assert torch.equal(found.view(torch.uint8), op(*args).view(torch.uint8))
    (bits,) = kit.results(aten.view.dtype, x, torch.uint8)
    assert torch.equal(bits, x.view(torch.uint8))
