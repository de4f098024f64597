"""`numpy.errstate` around arrays in a graph."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import armature
from armature.testing.differential import difference
from tests.support.resuming import compiled

X = torch.tensor([0.0, 1.0, 2.0])
STATES = [{"all": "ignore"}, {"all": "raise"}, {"all": "warn"}, {"divide": "raise", "over": "ignore"}]


@contextlib.contextmanager
def quiet(**ways: Any) -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(**ways):
        warnings.simplefilter("ignore")
        yield


def whole(x: torch.Tensor) -> object:
    a = x.numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        b = np.log(a) / a
    with np.errstate(all="ignore", under="warn"):
        return torch.from_numpy(b + 1 / a)


def nested(x: torch.Tensor) -> object:
    a = x.numpy()
    with np.errstate(all="ignore"):
        with np.errstate(divide="warn", over=None):
            b = 1 / a
        return torch.from_numpy(b * a)


def of_known_numbers(x: torch.Tensor) -> object:
    with np.errstate(all="ignore"):
        return x * float(np.exp(np.float64(1000))), x / float(np.float64(3) / np.float64(2))


def left_by_an_error(x: torch.Tensor) -> object:
    try:
        with np.errstate(all="ignore"):
            b = 1 / x.numpy()
            raise ValueError("left")
    except ValueError as error:
        return torch.from_numpy(b + x.numpy()), str(error)


def broken_inside(x: torch.Tensor) -> object:
    a = x.numpy()
    with np.errstate(all="ignore"):
        b = 1 / a
        said = str(np.geterr())
        armature.graph_break()
        c = np.log(a) + b
    return torch.from_numpy(c + a), said


def handed_out(x: torch.Tensor) -> object:
    held = np.errstate(all="ignore")
    y = x + 1
    armature.graph_break()
    with held:
        return torch.from_numpy(1 / x.numpy()) + y


def entered_again(x: torch.Tensor) -> object:
    held = np.errstate(all="ignore")
    with held:
        y = torch.from_numpy(1 / x.numpy())
    try:
        with held:
            return y * 2
    except TypeError as error:
        return y, str(error)


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    before = np.geterr()
    try:
        found = fn(*args)
    except (FloatingPointError, RuntimeWarning, TypeError) as error:
        found = str(error)
    assert np.geterr() == before
    return found


@pytest.mark.parametrize("program", [whole, nested, of_known_numbers, left_by_an_error])
def test_settings_that_raise_nothing_stay_in_the_graph(program: Callable[..., Any]) -> None:
    mine, records = compiled(program)
    with quiet(all="ignore"):
        assert difference(outcome(program, X), outcome(mine, X)) == 0.0
        assert len(records.compilations) == 1
        whole_one = armature.compile(program, backend="eager", fullgraph=True)
        assert difference(outcome(program, X), outcome(whole_one, X)) == 0.0
    for state in (*STATES, *STATES):
        with quiet(**state):
            assert difference(outcome(program, X), outcome(mine, X)) == 0.0


@pytest.mark.parametrize("program", [broken_inside, handed_out, entered_again])
def test_a_graph_that_ends_inside_has_numpys_own_context(program: Callable[..., Any]) -> None:
    for state in STATES:
        mine, _ = compiled(program)
        with quiet(**state):
            for _ in range(2):
                assert difference(outcome(program, X), outcome(mine, X)) == 0.0


def test_a_setting_that_raises_is_left_to_numpy() -> None:
    def raises(x: torch.Tensor, way: str) -> object:
        try:
            with np.errstate(divide=way):
                return torch.from_numpy(1 / x.numpy())
        except FloatingPointError as error:
            return str(error)

    mine = armature.compile(raises, backend="eager")
    for way in ("raise", "ignore", "raise"):
        with quiet(all="ignore"):
            assert difference(outcome(raises, X, way), outcome(mine, X, way)) == 0.0
    with pytest.raises(ValueError, match="loudly"):
        mine(X, "loudly")


def test_a_number_that_varies_is_divided_inside() -> None:
    def divided(x: torch.Tensor, n: Any) -> object:
        with np.errstate(all="ignore"):
            return x * float(n / np.float64(0.0))

    mine = armature.compile(divided, backend="eager")
    with quiet(all="raise"):
        for n in (1.0, 2.0, -3.0, 0.5):
            assert difference(divided(X + 1, np.float64(n)), mine(X + 1, np.float64(n))) == 0.0
