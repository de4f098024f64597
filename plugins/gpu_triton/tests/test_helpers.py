"""Device functions that are formulas of our own: run with torch in place of Triton."""

from __future__ import annotations

import types
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from armature.backend_api import philox
from armature.lower.data import Buffer, BufferKind, Const, Load, Node, Op, Store
from armature.lower.index import Var, contiguous_strides
from armature.schedule.data import Kernel, KernelPlan, Launch, Pass
from armature.testing.lowering_kit import context
from armature_gpu_triton import helpers, toolchain
from armature_gpu_triton.backend import TritonBackend


def with_torch(function: object) -> types.FunctionType:
    """The plain function with torch's operators under Triton's names."""
    plain = toolchain.python_function(function)
    language = SimpleNamespace(abs=torch.abs, exp2=torch.exp2, where=torch.where)
    library = SimpleNamespace(fast_dividef=lambda a, b: a / b)
    return types.FunctionType(plain.__code__, {"tl": language, "libdevice": library})


def one_plus_erf(x: Tensor) -> Tensor:
    found: Tensor = with_torch(helpers.one_plus_erf)(x)
    return found


def test_one_plus_erf_is_right_to_its_last_digits_in_half_precision() -> None:
    x = torch.cat([torch.linspace(-8.5, 8.5, 400_001), torch.randn(100_000)])
    found, exact = one_plus_erf(x).double(), torch.erfc(-x.double())
    assert ((found - exact).abs() / exact).max() < 2e-5


def test_one_plus_erf_at_the_ends() -> None:
    x = torch.tensor([float("-inf"), -50.0, -0.0, 0.0, 50.0, float("inf"), float("nan")])
    found = one_plus_erf(x)
    assert found[:2].tolist() == [0.0, 0.0] and found[4:6].tolist() == [2.0, 2.0] and bool(found[6].isnan())
    torch.testing.assert_close(found[2:4], torch.ones(2), rtol=2e-5, atol=0)


def test_gelu_of_bfloat16_is_nearer_to_the_truth_than_eagers() -> None:
    x = torch.linspace(-6, 6, 20_001).bfloat16()
    wide = x.float()
    ours = (0.5 * wide * one_plus_erf(wide * 0.7071067811865476)).bfloat16()
    exact = 0.5 * x.double() * torch.erfc(-x.double() * 0.5**0.5)
    wrong = [(found.double() - exact).abs().max() for found in (ours, functional.gelu(x))]
    assert wrong[0] <= wrong[1] * 1.01
    assert (ours != exact.bfloat16()).double().mean() < 0.02


def text_of(dtype: torch.dtype) -> str:
    """The text of `1 + erf(x)`, stored as `dtype`."""
    i, size = Var("i", 4096), (4096,)
    buffers = {
        name: Buffer(name, dtype, torch.device("cpu"), size, contiguous_strides(size), BufferKind.INPUT)
        for name in ("x", "y")
    }
    x: Node = Load("x", (i,), dtype)
    wide = x if dtype == torch.float32 else Op("cast", (x,), torch.float32)
    total = Op("add", (Op("erf", (wide,), torch.float32), Const(1.0, torch.float32)), torch.float32)
    value = total if dtype == torch.float32 else Op("cast", (total,), dtype)
    kernel = Kernel("k", torch.device("cpu"), (i,), (), (Pass((), (), (Store("y", (i,), value),)),), ("x",), ("y",))
    plan = KernelPlan("g", (), {}, buffers, (Launch(kernel),), (), {})
    return TritonBackend(interpret=True).generate([kernel], plan, context(())).text


def test_it_is_used_where_the_result_has_16_bits() -> None:
    assert "one_plus_erf" in text_of(torch.bfloat16) and "one_plus_erf" in text_of(torch.float16)
    assert "one_plus_erf" not in text_of(torch.float32) and "libdevice.erf" in text_of(torch.float32)


class Block(numpy.ndarray):
    """An array with Triton's way of converting it."""

    def to(self, dtype: type[numpy.generic]) -> Block:
        return self.astype(dtype)  # type: ignore[return-value]


def block(values: object, dtype: type[numpy.generic]) -> Block:
    return numpy.array(values).astype(dtype).view(Block)


def with_numpy(name: str) -> types.FunctionType:
    """The plain function with NumPy's operators under Triton's names; of the random numbers, which are of unsigned
    integers."""
    language = SimpleNamespace(
        uint32=numpy.uint32,
        uint64=numpy.uint64,
        float32=numpy.float32,
        static_range=range,
        zeros_like=numpy.zeros_like,
        where=lambda *args: numpy.where(*args).view(Block),
        join=lambda a, b: numpy.stack((a, b), -1).view(Block),
        reshape=lambda x, shape: x.reshape(shape),
    )
    known: dict[str, object] = {"tl": language}
    for constant in ("ROUNDS", "FIRST", "SECOND", "FIRST_STEP", "SECOND_STEP"):
        known[constant] = getattr(helpers, constant).value
    for function in ("_words", "_philox", "_as_uniform", "uniform", "uniform_fours"):
        plain = toolchain.python_function(getattr(helpers, function))
        known[function] = types.FunctionType(plain.__code__, known)
    found = known[name]
    assert isinstance(found, types.FunctionType)
    return found


SEED, OFFSET, THREADS = -(2**61) - 4711, 2**36 + 20, 48


@pytest.mark.parametrize("element", [numpy.uint32, numpy.uint64])
@pytest.mark.parametrize("vector", [1, 2, 4, 8, 16])
def test_random_numbers_are_those_of_the_reference(vector: int, element: type[numpy.generic]) -> None:
    places = torch.arange(5000)
    state = (block(SEED, numpy.int64), block(OFFSET, numpy.int64))
    expected = philox.uniform(*map(torch.tensor, (SEED, OFFSET)), places, *map(torch.tensor, (vector, THREADS)))
    found = with_numpy("uniform")(*state, block(places.numpy(), element), vector, THREADS)
    assert found.tolist() == expected.tolist()
    if vector >= 4:
        first = block(places[::4].numpy(), element)
        fours = with_numpy("uniform_fours")(*state, first, vector, THREADS)
        rows = with_numpy("uniform_fours")(*state, first.reshape(5, -1), vector, THREADS)
        assert fours.tolist() == expected.tolist() and rows.tolist() == expected.reshape(5, -1).tolist()
