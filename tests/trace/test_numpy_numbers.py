"""Scalars of numpy as arguments: one graph for all that come, where the program only does arithmetic with tensors."""

from __future__ import annotations

import math
import warnings
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


def arithmetic(t, s):
    made = s + 1, 1 - s, s * 0.5, s * np.float32(2.5), np.float64(3) / s, s // 2, 7 % s, s**2, 2**s, -s, abs(s), +s
    return [t * (s * 2 + 1), t - made[2], t / (s + 1), *(t * one for one in made)], made, sum([s, s, 1]), s * s - s / 3


def functions(t, s):
    of_numpy = np.sqrt(s), np.exp(-s), np.minimum(s, 3), np.clip(s, 1, 4), np.round(s, 1), np.hypot(s, 2), np.isnan(s)
    kinds = np.float32(s), np.float16(s), np.int64(s), s.astype(np.float32), s.astype(np.dtype("int16")), s.real
    of_python = float(s), s.item(), abs(-s), math.sqrt(s), math.fmod(s, 2), max(s, 1), min(1000, s), bool(s), not s
    return t * np.sqrt(s), t * float(s), t * s.item(), of_numpy, kinds, of_python, t * kinds[0]


def facts(t, s):
    known = s.dtype, s.shape, s.ndim, s.itemsize, type(s), isinstance(s, float), isinstance(s, np.number), s is s
    return known, s == "a", s != "a", s == None, s < 100, s > 0, s != -1, t * s, t + (s if s > 0 else -s)  # noqa: E711


def tensors(t, s):
    alone = torch.tensor(s), torch.as_tensor(s), torch.asarray(s), torch.tensor(s, dtype=torch.float64), t.new_tensor(s)
    made = torch.tensor(s)
    made += 1
    return (
        alone,
        torch.tensor([s, 1], dtype=torch.float64),
        t * torch.tensor(s),
        made,
        torch.tensor(s),
        [(one.dtype, one.shape) for one in alone],
    )


def lists_of_them(t, s):
    made = torch.tensor([s, s * 2]), torch.tensor([[s], [np.float32(0.5)]]), torch.as_tensor((s, s))
    return made, [one.dtype for one in made]


def operators(t, s):
    compared = t > s, t == s, torch.where(t > 0, t, s), t.clamp(min=s), t.masked_fill(t > 0, s), torch.full_like(t, s)
    return compared, t.clone().fill_(s), torch.add(t, t, alpha=s), torch.lerp(t, t * 2, s), t**s, torch.full((3,), s)


def in_a_container(t, s):
    held = {"scale": s, "both": (s, s)}
    return t * held["scale"], held, [s, t + held["both"][1]]


PROGRAMS = [
    scales, in_place, other_dtypes, needs_the_scalar, decides, breaks, in_a_container, sizes, places, powers, shapes,
    arithmetic, functions, facts, tensors, lists_of_them, operators,
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
CASES += [(fn, kind, "auto") for fn in (scales, arithmetic, tensors) for kind in (np.float32, np.int64)]


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


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("program", [scales, in_place, arithmetic, functions, facts, tensors, operators])
def test_one_graph_for_all_that_come(program: Any) -> None:
    """As for numbers of Python: the second int and the third float are taken for all."""
    for kind in FLOATS:
        assert graphs_for(program, [kind(2 + n / 64) for n in range(1, 9)]) == 3
    for kind in INTS:
        assert graphs_for(program, [kind(n) for n in range(4, 9)]) == 2


def one_of_each(t, s):
    return torch.zeros(s), t[:s], t.expand(s, 7), t.repeat(s, 1), torch.full((s,), s), torch.arange(s), t**s


def test_lists_of_them_are_one_tensor_each() -> None:
    assert graphs_for(lists_of_them, [np.float32(n / 2) for n in range(1, 9)]) == 3
    assert graphs_for(lists_of_them, [np.int64(n) for n in range(4, 9)]) == 2


def test_sizes_and_places_are_numbers_that_change() -> None:
    for kind in INTS:
        assert graphs_for(one_of_each, [kind(n) for n in (2, 3, 5, 4, 6)]) == 2


def test_another_type_is_another_graph() -> None:
    numbers = [kind(n) for n in range(2, 6) for kind in (np.int64, np.float32)]
    assert graphs_for(scales, numbers) == graphs_for(scales, numbers[::2]) + graphs_for(scales, numbers[1::2])


def test_a_branch_is_guarded() -> None:
    assert graphs_for(decides, [np.float64(n) for n in (1, 2, 3, 4, 5, 2, 4)]) == 4


def test_an_error_of_numpy_is_raised_where_it_happens() -> None:
    def fn(t: torch.Tensor, s: Any) -> Any:
        return t * (1 / s)

    mine = armature.compile(fn, backend="eager")
    with np.errstate(all="raise"):
        for number in (1, 2, 3, 4, 0.0, 5):
            given = np.float64(number)
            same(calls(mine, given), calls(fn, given), f"for {number}")
    for number in (4, 0.0, 5):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            same(mine(x(), np.float64(number)), x() * (1 / np.float64(number or 1e-320)), f"for {number}")
        assert bool(caught) == (number == 0.0)


def calls(fn: Any, scalar: Any) -> Any:
    """What a call gives, or the class of numpy's error."""
    try:
        return fn(x(), scalar)
    except FloatingPointError as error:
        return type(error)


def of_bools(t, s):
    made = t * s, s - t, t + s, t / (s + 1), t**s, s * t, t == s, torch.where(t > 0, t, s), torch.where(t > 0, s, 1)
    chosen = torch.where(torch.tensor(s), t, -t), torch.tensor([s, True]), t.masked_fill(t > 0, s), torch.full((2,), s)
    t = t.clone()
    t *= s
    t %= s
    rests = t % s, s % t, torch.fmod(t, s), torch.remainder(torch.arange(3), s), t // s, s // t, torch.arange(3) % s
    new = t.new_tensor(s), t.new_tensor([s, 2.5]), t.new_full((2,), s), (t > 0).new_tensor([s])
    more = rests, new, t.add_(s), torch.arange(3) * s, t * (not s), t * float(s), t * int(~s), t + 1 if s else t
    return made, chosen, more


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_bools_are_the_floats_that_they_convert_to(backend: str) -> None:
    mine = armature.compile(of_bools, backend=backend, fullgraph=True)
    for value in (True, False, True):
        same(mine(x(), np.bool_(value)), of_bools(x(), np.bool_(value)), f"for {value}", 0.0)


@pytest.mark.filterwarnings("ignore")
def test_numbers_that_torch_refuses() -> None:
    """An int beyond 64 bits: numpy computes with the tensor as an array."""
    mine = armature.compile(lambda t, s: t * -s, backend="eager")
    for number in (1, 2, 3):
        found, expected = mine(x(), np.uint64(number)), x() * -np.uint64(number)
        assert type(found) is type(expected)
        assert np.array_equal(found, expected)


def test_formulas_that_use_their_parts_twice() -> None:
    def fn(t: torch.Tensor, s: Any) -> Any:
        for _ in range(40):
            s = s + s
        return t * s

    mine = armature.compile(fn, backend="eager", options={"recompile_limit": 32})
    for number in range(1, 6):
        same(mine(x(), np.float64(number)), fn(x(), np.float64(number)), f"for {number}")
