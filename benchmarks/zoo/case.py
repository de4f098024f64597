"""The interface of a library: the names of its models, and the ways to build each in a small size."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs
from torch import nn


class NotBuildable(Exception):
    """No way to build or call a model worked; the text has the error of each."""


@attrs.define(eq=False)
class Case:
    """A model and the arguments of a call. `train`: other arguments in training (detectors take targets)."""

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = attrs.field(factory=dict)
    train: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def arguments(self, phase: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a phase, "infer" or "train"."""
        return self.train if phase == "train" and self.train is not None else (self.args, self.kwargs)


Build = Callable[[], Case]


@attrs.frozen
class Library:
    """A library: the distribution that must be installed, the names of its models, and the ways to build each.

    `ways` yields functions that build the model, the smallest first; the first one whose model runs is used.
    """

    name: str
    modules: tuple[str, ...]  # modules that must be importable
    names: Callable[[], Iterable[str]]
    ways: Callable[[str], Iterator[Build]]


def matches(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern: one with wildcards, or a part of the name."""
    lowered = pattern.lower()
    return fnmatch.fnmatch(name.lower(), lowered if any(c in lowered for c in "*?[") else f"*{lowered}*")


def once_each(options: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The options in order, without duplicates."""
    seen: set[str] = set()
    for option in options:
        if (key := repr(sorted(option.items()))) not in seen:
            seen.add(key)
            yield dict(option)
