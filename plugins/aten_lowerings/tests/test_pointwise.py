"""Operators that work element by element, against eager."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import armature
from armature.pipeline.session import session
from armature.testing.lowering_kit import Kit
from armature_aten_lowerings import pointwise

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.uint8)


def sample(dtype: torch.dtype, *shape: int, low: float = -3.0, high: float = 3.0) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if dtype.is_floating_point:
        return (torch.rand(shape, dtype=torch.float64) * (high - low) + low).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -5, 6, shape, dtype=dtype)


DOMAIN = {
    "log": (0.1, 3),
    "sqrt": (0.1, 3),
    "rsqrt": (0.1, 3),
    "acosh": (1, 3),
    "atanh": (-0.9, 0.9),
    "lgamma": (0.5, 3),
}
DOMAIN |= dict.fromkeys(("asin", "acos", "erfinv", "log1p"), (-0.9, 0.9)) | {"log2": (0.1, 3), "log10": (0.1, 3)}


@pytest.mark.parametrize(
    "op", [op for op, name in pointwise.UNARY.items() if name not in ("erfcx", "bit_not")], ids=str
)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unary(kit: Kit, op: torch._ops.OpOverload, dtype: torch.dtype) -> None:
    low, high = DOMAIN.get(pointwise.UNARY[op], (-3, 3))
    kit.check(op, sample(dtype, 3, 5, low=low, high=high))


@pytest.mark.parametrize("op", [aten.exp.default, aten.sqrt.default, aten.sigmoid.default, aten.tanh.default], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool], ids=str)
def test_unary_makes_floats_of_integers(kit: Kit, op: torch._ops.OpOverload, dtype: torch.dtype) -> None:
    kit.check(op, sample(dtype, 4).abs() if dtype != torch.bool else sample(dtype, 4))


@pytest.mark.parametrize("op", list(pointwise.ROUNDING), ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32], ids=str)
def test_rounding(kit: Kit, op: torch._ops.OpOverload, dtype: torch.dtype) -> None:
    kit.check(op, sample(dtype, 20))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool], ids=str)
def test_bitwise(kit: Kit, dtype: torch.dtype) -> None:
    x, y = sample(dtype, 3, 4), sample(dtype, 4)
    kit.check(aten.bitwise_not.default, x)
    for op in (aten.bitwise_and.Tensor, aten.bitwise_or.Tensor, aten.bitwise_xor.Tensor):
        kit.check(op, x, y)


@pytest.mark.parametrize("left", [*FLOATS, *INTEGERS, torch.bool], ids=str)
@pytest.mark.parametrize("right", [torch.float32, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("op", [aten.add.Tensor, aten.mul.Tensor, aten.div.Tensor], ids=str)
def test_binary_promotes(kit: Kit, op: torch._ops.OpOverload, left: torch.dtype, right: torch.dtype) -> None:
    y = sample(right, 2, 1, 4)
    if op is aten.div.Tensor:
        y = torch.ones_like(y) if right == torch.bool else y.abs() + 1
    kit.check(op, sample(left, 3, 4), y)


@pytest.mark.parametrize("number", [2, 2.5, True], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_numbers(kit: Kit, dtype: torch.dtype, number: float) -> None:
    x = sample(dtype, 5)
    kit.check(aten.add.Tensor, x, number)
    kit.check(aten.mul.Tensor, x, number)
    kit.check(aten.div.Tensor, x, number)


@pytest.mark.parametrize("alpha", [1, 2, -1], ids=str)
@pytest.mark.parametrize("op", [aten.add.Tensor, aten.sub.Tensor, aten.rsub.Tensor], ids=str)
def test_alpha(kit: Kit, op: torch._ops.OpOverload, alpha: int) -> None:
    kit.check(op, torch.randn(3, 4), torch.randn(4), alpha=alpha)
    kit.check(op, sample(torch.int64, 3, 4), sample(torch.int64, 4), alpha=alpha)


@pytest.mark.parametrize("op", list(pointwise.COMPARISON), ids=str)
def test_comparisons(kit: Kit, op: torch._ops.OpOverload) -> None:
    scalar = str(op).endswith("Scalar")
    for x in (sample(torch.int64, 9), sample(torch.float32, 9).round(), sample(torch.bool, 9)):
        kit.check(op, x, 1 if scalar else x.flip(0))
    if not scalar:
        kit.check(op, sample(torch.int64, 9), sample(torch.float32, 9).round())
    else:
        kit.check(op, sample(torch.int64, 9), 0.5)


@pytest.mark.parametrize("mode", [None, "floor", "trunc"], ids=str)
def test_division_modes(kit: Kit, mode: str | None) -> None:
    kit.check(aten.div.Tensor_mode, torch.randn(9), torch.randn(9), rounding_mode=mode)
    kit.check(aten.div.Tensor_mode, sample(torch.int64, 9), 3, rounding_mode=mode)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_integer_division_by_a_tensor(kit: Kit, dtype: torch.dtype, mode: str) -> None:
    x, y = (torch.tensor([7, 100, 5, 127, 3]).to(dtype), torch.tensor([3, -7, -1, 2, 5]).abs().to(dtype))
    signs = torch.tensor([1, -1, 1, -1, -1]).to(dtype) if dtype.is_signed else torch.ones_like(x)
    for dividend, divisor in ((x, y), (x * signs, y), (x, y * signs), (x * signs, y * -signs)):
        divisor = divisor if dtype.is_signed else y
        kit.check(aten.div.Tensor_mode, dividend, divisor, rounding_mode=mode)
        kit.check(aten.remainder.Tensor, dividend, divisor)
        kit.check(aten.fmod.Tensor, dividend, divisor)
        kit.check(aten.floor_divide.default, dividend, divisor)


@pytest.mark.parametrize("op", [torch.floor_divide, torch.remainder, torch.fmod, torch.Tensor.__floordiv__])
def test_a_divisor_of_zero_raises_as_in_eager_mode(op: Callable[[Tensor, Tensor], Tensor]) -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return op(x, y).sum() + x

    armature.reset()
    compiled = armature.compile(program, fullgraph=True, dynamic=True)
    for count in (1, 5, 40):
        x, y = torch.arange(count) - 3, torch.arange(count) + 1
        assert torch.equal(compiled(x, y), program(x, y))
        y[-1] = 0
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            program(x, y)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            compiled(x, y)
    assert session().totals().extern == 0


@pytest.mark.parametrize("op", [aten.remainder.Tensor, aten.fmod.Tensor], ids=str)
def test_remainders(kit: Kit, op: torch._ops.OpOverload) -> None:
    kit.check(op, torch.randn(9), torch.randn(9).abs() + 0.5)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 0.5, -0.5, -1, 2.5, 7], ids=str)
def test_powers(kit: Kit, exponent: float) -> None:
    kit.check(aten.pow.Tensor_Scalar, torch.rand(6) + 0.2, exponent)
    if isinstance(exponent, int) and 0 <= exponent <= 4:
        kit.check(aten.pow.Tensor_Scalar, sample(torch.int64, 6), exponent)


def test_power_of_tensors(kit: Kit) -> None:
    kit.check(aten.pow.Tensor_Tensor, torch.rand(6) + 0.2, torch.randn(6))
    for base in (2.0, 2, 3.5):
        kit.check(aten.pow.Scalar, base, torch.randn(6))
    kit.check(aten.pow.Scalar, 2, torch.tensor([-3, 0, 5]), extern=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
def test_classification(kit: Kit, dtype: torch.dtype) -> None:
    x = sample(dtype, 4)
    if dtype.is_floating_point:
        x[0], x[1] = float("nan"), float("-inf")
    for op in (aten.isnan.default, aten.isinf.default, aten.signbit.default):
        kit.check(op, x)


def test_where(kit: Kit) -> None:
    cond = sample(torch.bool, 3, 1)
    kit.check(aten.where.self, cond, torch.randn(4), torch.randn(3, 4))
    kit.check(aten.where.self, cond, sample(torch.int64, 4), torch.randn(3, 4))
    kit.check(aten.where.self, cond, sample(torch.bfloat16, 4), sample(torch.bfloat16, 4))
    kit.check(aten.masked_fill.Scalar, torch.randn(3, 4), cond, float("-inf"))
    kit.check(aten.masked_fill.Tensor, torch.randn(3, 4), cond, torch.tensor(2.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64], ids=str)
def test_clamp(kit: Kit, dtype: torch.dtype) -> None:
    x = sample(dtype, 9)
    kit.check(aten.clamp.default, x, -1, 1)
    kit.check(aten.clamp.default, x, None, 1)
    kit.check(aten.clamp_min.default, x, 0)
    kit.check(aten.clamp_max.default, x, 0)
    kit.check(aten.clamp.Tensor, x, x.flip(0))
    kit.check(aten.maximum.default, x, x.flip(0))


def test_extremes_pass_nan_on(kit: Kit) -> None:
    x = torch.tensor([1.0, float("nan"), 3.0])
    kit.check(aten.maximum.default, x, x.flip(0) * 0)
    kit.check(aten.fmax.default, x, x.roll(1))
    kit.check(aten.clamp_min.default, x, 0.0)


def test_interpolation(kit: Kit) -> None:
    x, y = torch.randn(5), torch.randn(5)
    kit.check(aten.lerp.Scalar, x, y, 0.3)
    kit.check(aten.lerp.Tensor, x, y, torch.rand(5))
    kit.check(aten.addcmul.default, x, y, y, value=0.5)
    kit.check(aten.addcdiv.default, x, y, y.abs() + 1, value=2)


def test_strides_are_those_of_eager(kit: Kit) -> None:
    x = torch.randn(4, 3).t()
    kit.check(aten.exp.default, x)
    kit.check(aten.add.Tensor, x, x)
    kit.check(aten.add.Tensor, torch.randn(2, 8, 3, 3).to(memory_format=torch.channels_last), torch.randn(8, 1, 1))
    kit.check(aten.mul.Tensor, torch.randn(6, 6)[::2, 1:4], 2.0)
    kit.check(aten.mul.Tensor, torch.randn(1, 5).expand(4, 5), 2.0)


def test_no_axes_and_no_elements(kit: Kit) -> None:
    kit.check(aten.add.Tensor, torch.randn(()), torch.randn(()))
    kit.check(aten.add.Tensor, torch.randn(()), torch.randn(3))
    kit.check(aten.add.Tensor, sample(torch.int64), torch.randn(3))
    kit.check(aten.exp.default, torch.randn(0, 4), extern=True)


SHAPES = st.lists(st.integers(1, 4), max_size=4)


@settings(max_examples=40, deadline=None)
@given(shape=SHAPES, ones=st.lists(st.booleans(), min_size=4, max_size=4), cut=st.integers(0, 4))
def test_broadcasting(kit: Kit, shape: list[int], ones: list[bool], cut: int) -> None:
    other = [1 if one else n for n, one in zip(shape, ones, strict=False)][cut:]
    kit.check(aten.mul.Tensor, torch.randn(shape), torch.randn(other))


@pytest.mark.parametrize("alpha", [True, False, 2, 0])
def test_sums_of_bools_are_scaled(kit: Kit, alpha: int) -> None:
    kit.check(aten.add.Tensor, torch.tensor([True, False, True]), torch.tensor([True, True, False]), alpha=alpha)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder"])
def test_numbers_beside_16_bits_are_rounded_to_them(kit: Kit, name: str, dtype: torch.dtype) -> None:
    # 0.1 and 0.7 have no exact form in either dtype: compared in float32, no element would equal them
    x = torch.tensor([0.1, 0.2, 0.7, 1.4, -0.1, 4096.0]).to(dtype)
    for number in (0.1, 0.7, -0.7, 4097):
        kit.check(getattr(aten, name).Scalar, x, number)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_numbers_added_to_16_bits_are_rounded_to_them(kit: Kit, dtype: torch.dtype) -> None:
    # 0.1 as such is added to an element near -0.1 with a result that is off by a tenth
    x, y = torch.linspace(-2, 2, 1001).to(dtype), torch.linspace(1, 2, 1001).to(dtype)
    exact = attrs.evolve(kit, tolerance={})
    for op in (aten.add, aten.sub, aten.rsub):
        exact.check(op.Tensor, x, y, alpha=0.5)
        exact.check(op.Scalar, x, 0.1)
        exact.check(op.Tensor, x, torch.tensor(0.1))
        exact.check(op.Tensor, torch.tensor(0.1), x)
        kit.check(op.Tensor, x, y, alpha=0.1)
    kit.check(aten.pow.Tensor_Scalar, y, 0.3)
    kit.check(aten.pow.Scalar, 0.3, x)
    kit.check(aten.add.Tensor, x, y.float(), alpha=0.1)
