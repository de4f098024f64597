"""Numbers and arrays from numpy's generators are drawn before the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import armature

OWN = np.random.RandomState(np.random.PCG64(3))
NEW = np.random.default_rng(4)
WHOLE: dict[str, Callable[[torch.Tensor], Any]] = {
    "mixup": lambda x: x * np.random.beta(0.4, 0.4) + x.flip(0) * np.random.random(),
    "numbers": lambda x: (
        x + np.random.randint(5),
        np.random.rand(),
        np.random.normal(scale=2.0),
        np.random.randint(2, 9),
    ),
    "arithmetic": lambda x: x * (np.random.uniform(-1, 1) * 2 + 1),
    "own generator": lambda x: x * OWN.normal() + OWN.poisson(3.0),
    "arrays": lambda x: (x + torch.from_numpy(np.random.rand(3)).float() * np.random.rand(), np.random.randn(2, 2)),
    "written": lambda x: written(x, np.random.uniform(-1, 1, size=3)),
    "places": lambda x: x[torch.from_numpy(np.random.permutation(3))] + np.random.choice(4, size=(2, 1), p=None)[0, 0],
    "a seed": lambda x: (np.random.seed(3), x * np.random.rand(), np.random.rand(2)),
    "a seed later": lambda x: (x * np.random.rand(), np.random.seed(seed=5), np.random.rand(2), OWN.normal()),
    "new style": lambda x: (
        x + torch.as_tensor(NEW.random(3)),
        NEW.integers(5, size=2),
        NEW.normal() * x,
        NEW.choice(9),
    ),
}


def written(x: torch.Tensor, drawn: Any) -> Any:
    drawn += 1
    shared = torch.from_numpy(drawn)
    shared.mul_(2)
    return x * shared, drawn


BROKEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "a list of choices": lambda x: x + np.random.choice([1.0, 2.0]),
    "sizes that vary": lambda x: x + np.random.rand(int(x.sum()))[0],
    "a branch": lambda x: x + 1 if np.random.random() < 0.5 else x - 1,
    "a seed of the system": lambda x: (np.random.seed(None), np.random.seed(1), x * np.random.rand()),
    "a wrong seed": lambda x: x + (1 if refused(-1) else np.random.rand()),
    "a list": lambda x: (np.random.shuffle([1, 2, 3]), x * np.random.rand()),
}


def refused(seed: int) -> bool:
    try:
        np.random.seed(seed)
    except ValueError:
        return True
    return False


def runs(function: Callable[[torch.Tensor], Any], generator: np.random.RandomState) -> list[Any]:
    np.random.seed(0)
    start, new = generator.get_state(legacy=False), NEW.bit_generator.state
    found = [function(torch.arange(3.0)) for _ in range(4)]
    found += [generator.normal(), NEW.normal(), np.random.rand()]
    generator.set_state(start)
    NEW.bit_generator.state = new
    return found


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("name", WHOLE)
def test_numbers_are_drawn_as_in_eager_mode(name: str, backend: str) -> None:
    compiled = armature.compile(WHOLE[name], backend=backend, fullgraph=True)
    torch.testing.assert_close(runs(compiled, OWN), runs(WHOLE[name], OWN))


@pytest.mark.parametrize("name", BROKEN)
def test_other_calls_are_left_to_numpy(name: str) -> None:
    expected, found = runs(BROKEN[name], OWN), runs(armature.compile(BROKEN[name], backend="eager"), OWN)
    tensors = [
        [row for row in rows if row is not None] for rows in map(torch.utils._pytree.tree_leaves, (found, expected))
    ]
    torch.testing.assert_close(*tensors)


def test_a_refused_argument_raises_numpys_error() -> None:
    run = armature.compile(lambda x: x * np.random.beta(-1.0, 1.0), backend="eager")
    with pytest.raises(ValueError, match="a <= 0"):
        run(torch.ones(2))
