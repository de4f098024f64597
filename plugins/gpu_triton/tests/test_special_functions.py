"""Special functions and writes at computed places through Triton's interpreter: the values of ATen's kernels, no calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import triton
from torch import Tensor

import armature
from armature.pipeline.session import session

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    # It adds a number to the first of several places alone, and its infinities differ.
    pytest.mark.skipif(triton.__version__.startswith("3.6."), reason="the interpreter of Triton 3.6 is wrong here"),
]
POINTS = torch.cat([torch.linspace(-11.3, 23, 40), torch.tensor([0.0, -0.0, 5.0, 8.0, torch.nan])])
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    name: getattr(torch.special, name)
    for name in (
        "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0", "i0", "i0e", "i1", "i1e",
        "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
        "digamma", "erfcx", "ndtri", "airy_ai",
    )
} | {
    "trigamma": lambda x: torch.polygamma(1, x),
    "third derivative": lambda x: torch.polygamma(3, x),
    "zeta of a whole number": lambda x: torch.special.zeta(4.0, x),
    "a polynomial": lambda x: torch.special.legendre_polynomial_p(x.nan_to_num() / 24, 6),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_functions(name: str) -> None:
    function = FUNCTIONS[name]
    found = armature.compile(lambda x: function(x), fullgraph=True)(POINTS)
    torch.testing.assert_close(found, function(POINTS), rtol=1e-4, atol=1e-5, equal_nan=True)
    assert session().totals().extern == 0


def test_what_iterates_stays_a_call() -> None:
    x = torch.tensor([0.5, 1.5, 2.5])
    found = armature.compile(lambda x: torch.special.zeta(x + 1, x) + torch.special.gammainc(x, x), fullgraph=True)(x)
    torch.testing.assert_close(found, torch.special.zeta(x + 1, x) + torch.special.gammainc(x, x))
    assert session().totals().extern == 2


def test_writes_at_places() -> None:
    x, index, source = torch.zeros(5, 3), torch.tensor([3, 0, 3]), torch.arange(9.0).reshape(3, 3)

    def program(x: Tensor, index: Tensor, source: Tensor) -> tuple[Tensor, ...]:
        filled = x.index_fill(0, index, source[0, 1])
        return filled, x.put(index, source[0]), x.index_reduce(0, index, source, "mean"), torch.angle(-source)

    found = armature.compile(program, fullgraph=True)(x, index, source)
    torch.testing.assert_close(found, program(x, index, source))
    assert session().totals().extern == 0
