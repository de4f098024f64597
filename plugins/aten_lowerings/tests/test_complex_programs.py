"""Small programs of complex operators, drawn at random: as loops and calls mixed, whatever pays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import armature
from armature_aten_lowerings import complex_pairs

STEPS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: a * b,
    lambda a, b: a + b * 0.5,
    lambda a, b: a - 1j * b,
    lambda a, b: a / (b + 3),
    lambda a, b: a.conj() * b,
    lambda a, b: -a.conj(),
    lambda a, b: a * b.real,
    lambda a, b: torch.complex(a.real, b.imag),
    lambda a, b: torch.polar(a.abs(), b.real),
    lambda a, b: torch.exp(1j * a.real) * b,
    lambda a, b: a.sum(0, keepdim=True) + b,
    lambda a, b: a.mean(1, keepdim=True) * b,
    lambda a, b: torch.where(a.real > 0, a, b),
    lambda a, b: a.mT + b,
    lambda a, b: a.flip(1)[:, :1] * b,
    lambda a, b: torch.cat([a[:2], b[2:]]),
    lambda a, b: torch.fft.fft(a) * 0.5 + b,
    lambda a, b: a @ b * 0.25,
    lambda a, b: a.clone().mul_(b),
    lambda a, b: torch.stack([a, b], 1)[:, 0].cumsum(0),
)
PROGRAMS = st.lists(
    st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6
)
RESULTS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda a: a, lambda a: a.conj(), lambda a: a.abs(), lambda a: torch.view_as_real(a.resolve_conj()), lambda a: a.imag,
)  # fmt: skip


@pytest.mark.parametrize("always", [False, True])
@given(steps=PROGRAMS, result=st.integers(0, len(RESULTS) - 1), training=st.booleans(), lying=st.integers(0, 2))
@settings(max_examples=12, deadline=None)
def test_programs(always: bool, steps: list[tuple[int, int, int]], result: int, training: bool, lying: int) -> None:
    """always: whether all that can be loops becomes loops."""

    def program(x: Tensor, y: Tensor) -> Tensor:
        values = [x, y]
        for step, left, right in steps:
            values.append(STEPS[step](values[left % len(values)], values[right % len(values)]))
        return RESULTS[result](values[-1])

    def run(fn: Callable[..., Tensor]) -> list[Tensor]:
        torch.manual_seed(0)
        given_ = [torch.randn(4, 4, dtype=torch.complex64) for _ in range(2)]
        given_ = [(one.mT if lying == 1 else one.conj() if lying == 2 else one) for one in given_]
        leaves = [one.requires_grad_(training) for one in given_]
        out = fn(*leaves)
        if not out.requires_grad:
            return [out]
        gradients = torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)
        return [out, *(one for one in gradients if one is not None)]

    armature.reset()
    with pytest.MonkeyPatch.context() as patch:
        if always:
            patch.setattr(complex_pairs._Group, "pays", lambda group: True)
        found = run(armature.compile(program, fullgraph=True))
    for one, eager in zip(found, run(program), strict=True):
        torch.testing.assert_close(one, eager, rtol=1e-4, atol=1e-4)
        assert (one.stride(), one.is_conj(), one.is_neg()) == (eager.stride(), eager.is_conj(), eager.is_neg())
