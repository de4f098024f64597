"""Breaks in code that the versions of Python compile in their own ways: instructions for two variables, comprehensions."""

from __future__ import annotations

import torch

from armature.testing.resuming import resumes


def x() -> torch.Tensor:
    return torch.linspace(-1.0, 1.0, 6).reshape(2, 3)


def one() -> tuple[torch.Tensor]:
    return (x(),)


def many_slots(t):
    a = b = c = d = e = f = t
    held = (a + b, c, d, e, f, a, b, c, d, print("many on the stack"), e, f)
    g, h, i, j = t * 2, t * 3, t * 4, t * 5
    k, m = g - h, i - j
    return held, k - m, h - g, j - i, g - m, k - h, [k, m, i, j]


def test_variables_in_other_slots_than_before() -> None:
    """Python 3.13 has instructions for two variables of the first sixteen slots."""
    assert resumes(many_slots, one).eager == []
