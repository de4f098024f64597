"""Vector mathematics: units in the last place against float64, over the whole range of float32."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from armature.context import CompileContext
from armature.lower.data import Store
from armature.lower.index import Var
from armature.testing.backend_kit import kernel_of, plan_of
from armature.testing.kernel_cases import F16, F32, Sketch, cast, op
from armature_cpu_cpp import isa
from armature_cpu_cpp.backend import CpuBackend

COUNT = 200_003
FE_UNDERFLOW = 0x10  # of <fenv.h> on x86


def spread(low: float, high: float) -> Tensor:
    """Evenly spread values."""
    return torch.linspace(low, high, COUNT, dtype=torch.float64).float()


def magnitudes(low: float, high: float, *, both_signs: bool) -> Tensor:
    """Values whose exponents are evenly spread: 10**low to 10**high."""
    values = 10.0 ** torch.linspace(low, high, COUNT, dtype=torch.float64)
    if both_signs:
        values[1::2] *= -1
    return values.float()


def ulps(found: Tensor, exact: Tensor) -> float:
    """Largest distance in units of the last place of the float32 nearest to the exact value."""
    near = exact.float()
    unit = (torch.nextafter(near.abs(), torch.tensor(torch.inf)) - near.abs()).double()
    finite = near.isfinite()
    return float(((found.double() - exact).abs() / unit)[finite].max())


CASES: dict[str, tuple[Callable[[Tensor], Tensor], tuple[Tensor, ...], float]] = {
    "exp": (torch.exp, (spread(-87.0, 88.7), magnitudes(-30, 0, both_signs=True)), 2.0),
    "exp2": (torch.exp2, (spread(-125.0, 127.9),), 2.0),
    "expm1": (torch.expm1, (spread(-20.0, 88.7), magnitudes(-30, 0, both_signs=True)), 3.0),
    "log": (torch.log, (magnitudes(-37, 38, both_signs=False), spread(0.5, 2.0)), 2.0),
    "log2": (torch.log2, (magnitudes(-37, 38, both_signs=False),), 3.0),
    "log10": (torch.log10, (magnitudes(-37, 38, both_signs=False),), 3.0),
    "log1p": (torch.log1p, (magnitudes(-30, 38, both_signs=False), spread(-0.99, 2.0)), 3.0),
    "tanh": (torch.tanh, (spread(-12.0, 12.0), magnitudes(-30, 0, both_signs=True)), 4.0),
    "sigmoid": (torch.sigmoid, (spread(-80.0, 20.0),), 4.0),
    "erf": (torch.erf, (spread(-5.0, 5.0), magnitudes(-30, 0, both_signs=True)), 5.0),
    "rsqrt": (torch.rsqrt, (magnitudes(-37, 38, both_signs=False),), 2.0),
    "atan": (torch.atan, (spread(-9.0, 9.0), magnitudes(-30, 30, both_signs=True)), 3.0),
    "erfinv": (torch.erfinv, (spread(-0.999, 0.999),), 4.0),
}


def run(name: str, x: Tensor, ctx: CompileContext, target: isa.Isa | None = None) -> Tensor:
    """The operation on each value, by a kernel."""
    sketch = Sketch(f"accuracy_{name}", torch.device("cpu"))
    i = Var("i", x.numel())
    sketch.buffer("x", F32, (x.numel(),), x)
    sketch.buffer("out", F32, (x.numel(),))
    sketch.pointwise((i,), Store("out", (i,), op(name, sketch.load("x", i))))
    plan = plan_of([sketch])
    backend = CpuBackend(target=target or isa.detect())
    kernels = backend.build(backend.generate(plan.kernels, plan, ctx), ctx)
    out = torch.empty_like(x)
    kernels[kernel_of(sketch).name](x, out)
    return out


@pytest.mark.parametrize("name", CASES)
def test_units_in_the_last_place(name: str, compile_context: CompileContext) -> None:
    reference, ranges, limit = CASES[name]
    for x in ranges:
        assert ulps(run(name, x, compile_context), reference(x.double())) <= limit


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sine_and_cosine_near_and_far(name: str, compile_context: CompileContext) -> None:
    reference = getattr(torch, name)
    for x in (spread(-30.0, 30.0), spread(-8000.0, 8000.0), magnitudes(4, 30, both_signs=True)):
        error = (run(name, x, compile_context).double() - reference(x.double())).abs().max()
        assert float(error) <= 3e-7


def test_subnormal_results_are_kept(compile_context: CompileContext) -> None:
    x = torch.linspace(-103.0, -88.0, 1001)
    found, exact = run("exp", x, compile_context), torch.exp(x.double()).float()
    assert float((found - exact).abs().max()) <= 3e-45


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the number of the flag is that of x86")
@pytest.mark.parametrize("target", [isa.AVX512, isa.AVX2, isa.BASELINE], ids=lambda target: target.name)
@pytest.mark.parametrize(("name", "zero_from"), [("exp", -104.1), ("exp2", -151.1), ("sigmoid", -104.1)])
def test_nothing_underflows_where_the_result_is_zero(
    name: str, zero_from: float, target: isa.Isa, compile_context: CompileContext
) -> None:
    # An operation that underflows is many times as slow, and a softmax computes exp(-1e9) at each masked position.
    if target.register_bytes > isa.detect().register_bytes:
        pytest.skip(f"no {target.name} here")
    libc = ctypes.CDLL(None)
    for value in (zero_from, -180.0, -1e9, torch.finfo(torch.float32).min, -torch.inf):
        x, exact = torch.full((16 + 7,), value), torch.zeros(16 + 7)
        if name == "sigmoid":  # 1 / (1 + exp(-x))
            x, exact = -x, exact + 1.0
        libc.feclearexcept(FE_UNDERFLOW)
        found = run(name, x, compile_context, target)
        assert not libc.fetestexcept(FE_UNDERFLOW)
        assert torch.equal(found, exact)


@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_nan_and_infinity_of_exponentials(name: str, compile_context: CompileContext) -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf] * 7)
    found = run(name, x, compile_context)
    assert torch.equal(found.nan_to_num(-1.0), torch.tensor([-1.0, torch.finfo(torch.float32).max, 0.0] * 7))


@pytest.mark.parametrize("target", [isa.AVX512, isa.AVX2, isa.BASELINE], ids=lambda target: target.name)
@pytest.mark.parametrize("lanes", [1, 64], ids=["in order", "transposed"])
def test_conversions_of_half_precision(lanes: int, target: isa.Isa, compile_context: CompileContext) -> None:
    """All 65,536 numbers to float32, and numbers between them back, with the steps of rounding to even."""
    if target.register_bytes > isa.detect().register_bytes:
        pytest.skip(f"no {target.name} here")
    halves = torch.arange(-(2**15), 2**15).to(torch.int16).view(F16)
    exact = halves.float()
    between = torch.cat([exact.nextafter(torch.tensor(end)) for end in (-torch.inf, torch.inf)])
    floats = torch.cat([exact, between, magnitudes(-9, 6, both_signs=True)])
    for name, x, dtype in (("widen", halves, F32), ("narrow", floats[: len(floats) // lanes * lanes], F16)):
        sketch = Sketch(f"{name}_{lanes}", torch.device("cpu"))
        i, j = Var("i", x.numel() // lanes), Var("j", lanes)
        sketch.buffer("x", x.dtype, (x.numel() // lanes, lanes), x)
        sketch.buffer("out", dtype, (x.numel() // lanes, lanes), strides=(1, x.numel() // lanes))
        sketch.pointwise((i, j), Store("out", (i, j), cast(sketch.load("x", i, j), dtype)))
        plan = plan_of([sketch])
        backend = CpuBackend(target=target)
        kernels = backend.build(backend.generate(plan.kernels, plan, compile_context), compile_context)
        out = torch.empty(lanes, x.numel() // lanes, dtype=dtype)
        kernels[kernel_of(sketch).name](x, out)
        torch.testing.assert_close(out.T.reshape(-1), x.to(dtype), rtol=0, atol=0, equal_nan=True)
