"""erfcx, ndtri, Airy's function, zeta, incomplete gamma functions and polynomials as loops, with the edges of the kernels."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, special

import armature
from armature.pipeline.session import session
from armature_aten_lowerings.special import MOST_STEPS, NAMES

EDGES = (
    0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, -1.5, 2.09, -2.09, 103.8, 104.0, 1e-6, 1e-30, 3e38, -26.0, -27.0, 1 - 1e-7,
    math.inf, -math.inf, math.nan,
)  # fmt: skip
POINTS = torch.cat(
    [torch.linspace(-12, 12, 121), torch.linspace(0.001, 1, 60), torch.linspace(0.01, 60, 60), torch.tensor(EDGES)]
).double()
NO_DEGREES = (math.nan, math.inf) if platform.machine() in ("x86_64", "AMD64") else ()
"""torch converts them to integers, which C++ leaves open: on ARM it counts to 2**63."""
DEGREES = torch.tensor([-2.0, -0.5, 0.0, 1.0, 2.7, 7.0, 33.0, 150.0, *NO_DEGREES]).double().unsqueeze(1)
FLOATS = (torch.float32, torch.float64)
Function = Callable[[Tensor], Tensor]

OF_ONE: dict[str, Function] = {
    "erfcx": special.erfcx,
    "ndtri": special.ndtri,
    "airy": special.airy_ai,
    **{f"polygamma {n}": lambda x, n=n: torch.polygamma(n, x) for n in (2, 3, 4, 7)},
    **{f"zeta of {s}": lambda x, s=s: special.zeta(s, x) for s in (2, 5.0, 2.5, 1, 0, 30.0, math.inf)},
    **{f"zeta from {q}": lambda x, q=q: special.zeta(x, q) for q in (2.5, 0.25, -2, -2.5)},
}


def found_and_expected(function: Function, x: Tensor) -> tuple[Tensor, Tensor]:
    """What a compiled function computes, without calls, and eager mode."""
    armature.reset()
    found = armature.compile(lambda v: function(v), fullgraph=True)(x)
    expected = function(x)
    assert session().totals().extern == 0 and found.dtype == expected.dtype
    return found, expected


def assert_as_exact(function: Function, x: Tensor, tolerance: float) -> None:
    """Finite where eager mode is, and the same there, or at least as near to the result in double precision."""
    found, expected = found_and_expected(function, x)
    special_ones = ~expected.isfinite()
    torch.testing.assert_close(found[special_ones], expected[special_ones], rtol=0, atol=0, equal_nan=True)
    exact = function(x.double())
    gap, allowed = (found - exact).abs(), tolerance * exact.abs().clamp(min=1e-3)
    wrong = ~special_ones & (gap > allowed) & (gap > (expected - exact).abs())
    assert not wrong.any(), (x.expand_as(found)[wrong][:4], found[wrong][:4], expected[wrong][:4], exact[wrong][:4])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", OF_ONE)
def test_functions_of_one_number(name: str, dtype: torch.dtype) -> None:
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-11}[dtype]
    assert_as_exact(OF_ONE[name], POINTS.to(dtype), tolerance * (20 if name == "airy" else 1))  # waves with zeros


@pytest.mark.parametrize("name", OF_ONE)
def test_integers_become_floats(name: str) -> None:
    found, expected = found_and_expected(OF_ONE[name], torch.arange(-4, 9))
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_polynomials(name: str, dtype: torch.dtype) -> None:
    function, numbers = getattr(special, name), POINTS.to(dtype)
    numbers = numbers[~numbers.isnan()]  # of which torch's kernels return memory that they have not written
    tolerance = 1e-3 if dtype == torch.float32 else 1e-10
    known = (-1, 0, 1, 2, 3.9, 6, 13, MOST_STEPS, 40)
    assert_as_exact(lambda x: torch.stack([function(x, n) for n in known]), numbers, tolerance)
    assert_as_exact(lambda x: function(x, DEGREES.to(dtype)), numbers, tolerance)
    found, expected = found_and_expected(lambda n: function(0.3, n), DEGREES.to(dtype))
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=1e-5, equal_nan=True)
    found, expected = found_and_expected(lambda x: function(x, 3), torch.arange(-3, 4))
    torch.testing.assert_close(found, expected)


def test_polynomials_of_integers_and_large_degrees() -> None:
    x, n = torch.tensor([-1, 0, 1, 2]), torch.tensor([[3], [4], [100_001]])
    for name in NAMES:
        if name.startswith(("hermite", "laguerre")):
            continue  # too large
        function = getattr(special, name)
        assert_as_exact(lambda x, op=function: op(x, n), x, 1e-4)


SIZES = (
    0.0,
    1e-30,
    1e-10,
    1e-3,
    0.3,
    0.5,
    1.0,
    1.5,
    5.0,
    19.9,
    20.5,
    45.0,
    50.0,
    100.0,
    1e3,
    1e5,
    -1.0,
    math.inf,
    math.nan,
)
PARTS = torch.tensor(
    (0.0, 1e-10, 0.1, 0.5, 0.69, 0.71, 0.9, 0.99, 1.0, 1.01, 1.2, 1.29, 1.31, 2.0, 10.0), dtype=torch.float64
)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", [special.gammainc, special.gammaincc])
def test_incomplete_gamma_functions(function: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype) -> None:
    a = torch.tensor(SIZES, dtype=torch.float64)[:, None]
    x = torch.cat(
        [a * PARTS, (PARTS * 3 + torch.tensor(SIZES)[:, None] * 0), torch.tensor(SIZES).expand(len(SIZES), -1)], 1
    )
    a, x = a.to(dtype), x.to(dtype)
    found, expected = found_and_expected(lambda v: function(v, x), a)
    # torch's kernels sum up to 25 terms where a is above 20, and are 2e-9 off
    rtol, atol = {torch.float32: (1e-4, 1e-6), torch.float64: (1e-8, 1e-12), torch.bfloat16: (8e-3, 1e-4)}[dtype]
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)


def test_incomplete_gamma_functions_are_exact() -> None:
    """Of whole and half numbers there are closed forms: exp(-x), erf, and a sum of Poisson's probabilities."""
    x = torch.linspace(0.01, 40, 200, dtype=torch.float64)
    chances = sum(torch.exp(k * x.log() - x - math.lgamma(k + 1)) for k in range(25))
    for a, upper in ((1.0, torch.exp(-x)), (0.5, torch.erfc(x.sqrt())), (25.0, chances)):
        found, _ = found_and_expected(lambda v, a=a: special.gammaincc(torch.full_like(v, a), v), x)
        torch.testing.assert_close(found, upper, rtol=2e-12, atol=0)
        found, _ = found_and_expected(lambda v, a=a: special.gammainc(torch.full_like(v, a), v), x)
        torch.testing.assert_close(found, 1 - upper, rtol=1e-12, atol=1e-13)


def test_derivatives_are_those_of_sums() -> None:
    """At half numbers terms cancel in pairs, which leaves nothing of the digits of a kernel that adds them."""
    x = torch.tensor([-11.5, -3.5, -0.5], dtype=torch.float64)
    found, _ = found_and_expected(lambda v: torch.polygamma(20, v), x)
    torch.testing.assert_close(found, torch.polygamma(20, 1 - x), rtol=1e-12, atol=0)


def test_a_high_derivative_stays_a_call() -> None:
    x = torch.tensor([0.5, 2.5, -1.5])
    armature.reset()
    found = armature.compile(lambda v: torch.polygamma(21, v))(x)
    torch.testing.assert_close(found, torch.polygamma(21, x))
    assert session().totals().extern == 1


@pytest.mark.parametrize("name", ["erfcx", "ndtri", "polygamma 2", "zeta of 5.0", "gammainc"])
def test_gradients_are_loops(name: str) -> None:
    functions = OF_ONE | {"gammainc": lambda x: special.gammainc(torch.full_like(x, 2.5), x)}
    x = torch.linspace(0.05, 0.95, 33, requires_grad=True)
    (expected,) = torch.autograd.grad(functions[name](x).sum(), x)
    armature.reset()
    (found,) = torch.autograd.grad(armature.compile(lambda v: functions[name](v))(x).sum(), x)
    torch.testing.assert_close(found, expected, rtol=5e-5, atol=1e-5)
    assert session().totals().extern == 0


def test_sizes_may_vary() -> None:
    def program(x: Tensor, n: int) -> Tensor:
        return special.zeta(x + 2, x + 1) + special.erfcx(x) + special.chebyshev_polynomial_t(x, n)

    compiled = armature.compile(program, dynamic=True)
    for size in (5, 8, 21):
        x = torch.linspace(0.1, 2, size)
        torch.testing.assert_close(compiled(x, size), program(x, size), rtol=1e-4, atol=1e-4)
    assert session().totals().extern == 0
