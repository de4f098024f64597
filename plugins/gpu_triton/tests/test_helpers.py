"""Device functions that are formulas of our own: run with torch in place of Triton."""

from __future__ import annotations

import math
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
from armature_gpu_triton import draws, helpers, toolchain
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


@pytest.mark.parametrize("name", ["one_plus_tanh", "rough_sigmoid"])
def test_the_others_are_right_to_their_last_digits_in_half_precision(name: str) -> None:
    x = torch.cat([torch.linspace(-40, 40, 400_001), torch.randn(100_000)])
    exact = 2 * torch.sigmoid(2 * x.double()) if name == "one_plus_tanh" else torch.sigmoid(x.double())
    found = with_torch(getattr(helpers, name))(x).double()
    assert ((found - exact).abs() / exact).max() < 2e-5
    ends = with_torch(getattr(helpers, name))(torch.tensor([-math.inf, math.inf, math.nan]))
    assert ends[0] == 0 and ends[1] == (2 if name == "one_plus_tanh" else 1) and bool(ends[2].isnan())


def test_gelu_of_bfloat16_is_nearer_to_the_truth_than_eagers() -> None:
    x = torch.linspace(-6, 6, 20_001).bfloat16()
    wide = x.float()
    ours = (0.5 * wide * one_plus_erf(wide * 0.7071067811865476)).bfloat16()
    exact = 0.5 * x.double() * torch.erfc(-x.double() * 0.5**0.5)
    wrong = [(found.double() - exact).abs().max() for found in (ours, functional.gelu(x))]
    assert wrong[0] <= wrong[1] * 1.01
    assert (ours != exact.bfloat16()).double().mean() < 0.02


def text_of(dtype: torch.dtype, op: str = "erf") -> str:
    """The text of `1 + erf(x)`, or of another operation in its place, stored as `dtype`."""
    i, size = Var("i", 4096), (4096,)
    buffers = {
        name: Buffer(name, dtype, torch.device("cpu"), size, contiguous_strides(size), BufferKind.INPUT)
        for name in ("x", "y")
    }
    x: Node = Load("x", (i,), dtype)
    wide = x if dtype == torch.float32 else Op("cast", (x,), torch.float32)
    total = Op("add", (Op(op, (wide,), torch.float32), Const(1.0, torch.float32)), torch.float32)
    value = total if dtype == torch.float32 else Op("cast", (total,), dtype)
    kernel = Kernel("k", torch.device("cpu"), (i,), (), (Pass((), (), (Store("y", (i,), value),)),), ("x",), ("y",))
    plan = KernelPlan("g", (), {}, buffers, (Launch(kernel),), (), {})
    return TritonBackend(interpret=True).generate([kernel], plan, context(())).text


def test_it_is_used_where_the_result_has_16_bits() -> None:
    assert "one_plus_erf" in text_of(torch.bfloat16) and "one_plus_erf" in text_of(torch.float16)
    assert "one_plus_erf" not in text_of(torch.float32) and "libdevice.erf" in text_of(torch.float32)
    for op, used in (("tanh", "one_plus_tanh"), ("sigmoid", "rough_sigmoid")):
        assert used in text_of(torch.bfloat16, op) and used not in text_of(torch.float32, op)


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
    names = (
        "_words", "_philox", "_as_uniform", "_draw", "_draw_fours", "uniform", "uniform_fours", "draws_below",
        "draws_below_fours",
    )  # fmt: skip
    for function in names:
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


@pytest.mark.parametrize("limit", [0.9, 0.5, 0.7, 1e-9, 0.99999994, 1.0])
def test_words_are_below_a_limit_where_their_numbers_are(limit: float) -> None:
    first = draws.words_below(limit)
    edge = [word for word in range(first - 300, first + 300) if 0 <= word < 1 << 32]
    words = torch.cat([torch.tensor(edge), torch.randint(0, 1 << 32, (5000,))])
    numbers = words.to(torch.float32) * 2.0**-32 + 2.0**-33
    assert ((words < first) == (numbers < torch.tensor(limit, dtype=torch.float32))).all()


@pytest.mark.parametrize("vector", [1, 4, 8])
def test_draws_below_a_limit_are_those_whose_numbers_are(vector: int) -> None:
    places = torch.arange(4000)
    state = (block(SEED, numpy.int64), block(OFFSET, numpy.int64))
    drawn = philox.uniform(*map(torch.tensor, (SEED, OFFSET)), places, *map(torch.tensor, (vector, THREADS)))
    first, expected = draws.words_below(0.3), (drawn < 0.3).tolist()
    elements = block(places.numpy(), numpy.uint32)
    assert with_numpy("draws_below")(*state, elements, vector, THREADS, first).tolist() == expected
    if vector >= 4:
        found = with_numpy("draws_below_fours")(*state, elements[::4], vector, THREADS, first)
        assert found.tolist() == expected
