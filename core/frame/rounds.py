"""What is known about later rounds of the loop that a frame resumes in.

A number or a size that differs there becomes a symbol at once, instead of in the code that is compiled for the next
round.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from armature.frame.data import FrameRequest, Path
from armature.frame.guards.loops import resumed_in
from armature.frame.history import History
from armature.frame.source import Source
from armature.frame.sources import ItemSource, LocalSource


def remember_rounds(
    request: FrameRequest, iterator: object, values: Sequence[object], places: Sequence[Source]
) -> None:
    """Remember the next values of a loop's iterator, nearest first, as if code had been compiled for them. places:
    where the frame reads the first of them, the second, and so on."""
    history = request.history
    for at, place in enumerate(places):
        for later in values[at + 1 :]:
            _remember(history, later, place)
    for held, loop in resumed_in(request).items():
        if request.locals[held] is iterator:
            for name, path in loop.targets:
                for later in values:
                    _remember(history, _part(later, path), LocalSource(name))


def _remember(history: History, value: object, source: Source) -> None:
    if type(value) is int:
        history.changed_number(source.expr, value)
    elif type(value) is torch.Tensor:
        history.changed_axes(source.expr, value.shape)
    elif type(value) is tuple:
        for position, item in enumerate(value):
            _remember(history, item, ItemSource(source, position))


def _part(value: object, path: Path) -> object:
    """The part of a value that a loop assigns to one of its targets; None if the value has other parts."""
    for position in path:
        if type(value) is not tuple or position >= len(value):
            return None
        value = value[position]
    return value
