"""Scalars of numpy as arguments: one graph for all that come, where the program only does arithmetic with tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import armature
from tests.support.tensor_programs import same

FLOATS = (np.float64, np.float32, np.float16)
INTS = (np.int64, np.int32, np.int16, np.int8, np.uint8)


def x() -> torch.Tensor:
    return torch.linspace(-1, 1, 7)


def scales(t, s):
    return t * s + 1, 2 * (s * t), t - s, t.add(t, alpha=s), (t + 1) / s, t.mul(s).sub_(s)


def in_place(t, s):
    t *= s
    t.add_(s)
    return t


def other_dtypes(t, s):
    whole = torch.arange(3)
    return whole * s, t.double() * s, t.half() * s, t.sum() * s, torch.tensor(True) * s


def needs_the_scalar(t, s):
    made = torch.tensor(s), torch.as_tensor([s, s]), torch.full((2,), s), t.new_tensor(s), torch.asarray(s)
    known = s + 1, s.dtype, type(s), str(s), {s: 1}, [s, 2], int(s), float(s), s == 2, s * np.float32(2), -s
    return t * s, made, known, max(s, 1), np.sqrt(s), t.clamp(max=s), t**s, s / (t + 3)


def sizes(t, s):
    made = torch.zeros(s), torch.ones(s, 2), torch.full((s,), 1.5), torch.arange(s), t.new_zeros([s, 2])
    return made, t[:s], t[s - s :], t.expand(s, 7), t.repeat(s, 1), t.tile((s, 1))


def places(t, s):
    wide = t.expand(12, 7)
    return wide[: s + 1], wide[s], wide[s, 1:s], wide[(s,)], wide.narrow(0, s, 2), wide.select(0, s), wide.roll(s, 0)


def powers(t, s):
    return t**s, torch.pow(t, s), torch.full((2,), s), t.new_full((2,), s)


def shapes(t, s):
    return torch.zeros(s, 6).reshape(s * 2, 3), torch.zeros(s, 6).view(-1, s), torch.zeros(6, s).tile(s)


def decides(t, s):
    return t * s if s > 3 else t - s


def breaks(t, s):
    y = t * s
    armature.graph_break()
    return y + s * 2, s


def in_a_container(t, s):
    held = {"scale": s, "both": (s, s)}
    return t * held["scale"], held, [s, t + held["both"][1]]


PROGRAMS = [
    scales, in_place, other_dtypes, needs_the_scalar, decides, breaks, in_a_container, sizes, places, powers, shapes,
]  # fmt: skip


def outcome(program: Any, scalar: Any) -> Any:
    """What a call gives, or what it raises: torch refuses some scalars."""
    try:
        return program(x(), scalar)
    except (RuntimeError, TypeError, IndexError, OverflowError) as error:
        return type(error)


def agree(program: Any, mine: Any, scalar: Any, tolerance: float = 0.0) -> None:
    """Raises AssertionError where a compiled call and one in eager mode differ."""
    expected = outcome(program, scalar)
    same(outcome(mine, scalar), expected, f"for {scalar!r}", tolerance)


KINDS = (*FLOATS, *INTS, np.bool_, np.complex128, np.uint64)
CASES = [(program, kind, "eager") for program in PROGRAMS for kind in KINDS]
CASES += [(scales, kind, "auto") for kind in (np.float32, np.int64)]


@pytest.mark.filterwarnings("ignore")  # numpy warns of scalars that overflow or lose their imaginary part
@pytest.mark.parametrize(("program", "kind", "backend"), CASES)
def test_values_are_those_of_eager_mode(program: Any, kind: Any, backend: str) -> None:
    mine = armature.compile(program, backend=backend)
    for number in (2, 3, 5, 2, 7, 1):
        agree(program, mine, kind(number), 0.0 if backend == "eager" else 1e-6)


def graphs_for(program: Any, numbers: Any) -> int:
    """How many graphs calls with these scalars make."""
    made = 0

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        nonlocal made
        made += 1
        return module.forward

    mine = armature.compile(program, backend=backend)
    for number in numbers:
        agree(program, mine, number)
    return made


@pytest.mark.parametrize("program", [scales, in_place])
def test_one_graph_for_all_that_come(program: Any) -> None:
    """As for numbers of Python: the second int and the third float are taken for all."""
    for kind in FLOATS:
        assert graphs_for(program, [kind(n / 2) for n in range(1, 9)]) == 3
    for kind in INTS:
        assert graphs_for(program, [kind(n) for n in range(2, 9)]) == 2


def one_of_each(t, s):
    return torch.zeros(s), t[:s], t.expand(s, 7), t.repeat(s, 1), torch.full((s,), s), torch.arange(s), t**s


def test_sizes_and_places_are_numbers_that_change() -> None:
    for kind in INTS:
        assert graphs_for(one_of_each, [kind(n) for n in (2, 3, 5, 4, 6)]) == 2


def test_another_type_is_another_graph() -> None:
    numbers = [kind(n) for n in range(2, 6) for kind in (np.int64, np.float32)]
    assert graphs_for(scales, numbers) == graphs_for(scales, numbers[::2]) + graphs_for(scales, numbers[1::2])


def test_a_branch_is_guarded() -> None:
    assert graphs_for(decides, [np.float64(n) for n in (1, 2, 3, 4, 5, 2, 4)]) == 5
