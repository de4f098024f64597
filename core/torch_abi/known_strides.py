"""Tracks which fakes have the strides of the real tensors even along axes of size 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from armature.torch_abi.fake_results import GUESSED
from armature.torch_abi.fake_rules import AxesOfOne


def are_known(fake: torch.Tensor) -> bool:
    """Whether all strides of a fake are those of the real tensor."""
    return type(fake) is FakeTensor and not getattr(fake, GUESSED, False)


def note(axes: AxesOfOne, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
    """Mark the results of an operator whose strides along axes of size 1 may not be those of the kernel."""
    made = [one for one in _tensors((result,)) if any(type(size) is int and size == 1 for size in one.shape)]
    if not made:
        return
    given = list(_tensors((*args, *kwargs.values())))
    static = not any(one._has_symbolic_sizes_strides for one in (*given, *made))
    follows = axes is AxesOfOne.GIVEN and static and not any(getattr(one, GUESSED, False) for one in given)
    for one in made:
        if not any(one is other for other in given):  # an operator in place changes values only
            setattr(one, GUESSED, not follows and axes is not AxesOfOne.OWN)


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among values, and in the lists and tuples among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
