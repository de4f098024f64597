"""Objects that the program reaches by two ways, changes as a whole, or gives up."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor


class Counter:
    """An object with a number."""

    size = 1


class Step:
    """An object with a hook that can be removed."""

    def hook(self) -> int:
        return 1


def replaces_method_inputs() -> tuple[object, ...]:
    return (torch.ones(2), type("Step", (), dict(vars(Step))))


def replaces_method(x: Tensor, step: Any) -> object:
    step.hook = None
    return x + 1


class Quiet(Step):
    """Without the hook."""

    hook = None  # type: ignore[assignment]


def replaces_method_mended_inputs() -> tuple[object, ...]:
    return (torch.ones(2), Quiet)


def replaces_method_mended(x: Tensor, step: Any) -> object:
    return x + (1 if step.hook is None else 2)


def _scaled() -> None: ...


_scaled.scale = 2  # type: ignore[attr-defined]
SETTINGS = vars(_scaled)


def dict_of_object(x: Tensor) -> object:
    return x * _scaled.scale + len(SETTINGS)  # type: ignore[attr-defined]


def dict_of_object_mended(x: Tensor) -> object:
    return x * _scaled.scale + 1  # type: ignore[attr-defined]


def weak_reference(x: Tensor) -> object:
    return x + weakref.ref(Counter())().size  # type: ignore[union-attr]


weak_reference_fullgraph = True


def weak_reference_mended(x: Tensor) -> object:
    counter = Counter()
    return x + weakref.ref(counter)().size  # type: ignore[union-attr]
