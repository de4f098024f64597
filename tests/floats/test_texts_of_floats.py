"""Texts of floats that vary, as programs write them for logs: each value needs no code of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session

PERCENT, ONE_PERCENT, FIELDS = "%.2f %s %g", "%5.1f", "{:.2f} {name}"
PROGRAMS: tuple[Callable[[Tensor, float], Any], ...] = (
    lambda x, rate: (x * rate, f"rate {rate}"),
    lambda x, rate: (x * 2, f"{rate:.3f}|{rate:>12.2e}|{rate!r}|{rate:%}"),
    lambda x, rate: (x * 2, str(rate), repr(rate), format(rate, ".1f")),
    lambda x, rate: (x * rate, PERCENT % (rate, "and", rate), ONE_PERCENT % rate),
    lambda x, rate: (x * rate, FIELDS.format(rate, name=rate * 2)),
    lambda x, rate: (x * 2, str({"rate": rate}), f"{[rate, (rate,)]}"),
    lambda x, rate: (x * 2, f"{rate * 2 + 1:.4f}", {"text": f"{-rate}"}),
)
NUMBERS = (0.5, 0.1, -0.0, 1e300, float("inf"), 1e-9, float("nan"), 3.0, 0.25, 7.5, 1.5, 2.5)
MOST = 4  # compilations: for a constant, for one that varies, and for the two zeros or a sign


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_as_in_eager_mode(number: int) -> None:
    armature.reset()
    program, x = PROGRAMS[number], torch.ones(2)
    compiled = armature.compile(program, backend="eager", fullgraph=True)
    with session().recording() as records:
        for rate in NUMBERS:
            assert str(compiled(x, rate)) == str(program(x, rate))
    assert len(records.compilations) <= MOST


def test_what_a_loss_is_logged_as() -> None:
    armature.reset()
    lines: list[str] = []

    def step(x: Tensor) -> tuple[Tensor, str]:
        loss = (x * 2).sum().item()
        lines.append(f"loss {loss:.4f}")
        return x + 1, ONE_PERCENT % loss

    compiled = armature.compile(step, backend="eager")
    with session().recording() as records:
        for seed in range(12):
            x = torch.arange(3.0) * (seed + 0.37)
            assert str(compiled(x)) == str(step(x))
    assert lines[::2] == lines[1::2]
    assert not records.limits and len(records.compilations) <= MOST + 1


def test_a_wrong_format_raises_as_in_eager_mode() -> None:
    armature.reset()
    compiled = armature.compile(lambda x, rate: (x * 2, f"{rate:d}"), backend="eager")
    for rate in (0.5, 0.25, 0.75):
        with pytest.raises(ValueError, match="Unknown format code 'd'"):
            compiled(torch.ones(2), rate)


def test_a_text_that_is_asked_is_known() -> None:
    armature.reset()

    def program(x: Tensor, rate: float) -> Tensor:
        text = f"{rate:.1f}"
        return x * (2 if text.startswith("0") else 3) + len(text)

    compiled, x = armature.compile(program, backend="eager"), torch.ones(2)
    for rate in (0.5, 10.25, 0.75, 3.0):
        assert torch.equal(compiled(x, rate), program(x, rate))
