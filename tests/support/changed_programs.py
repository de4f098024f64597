"""Programs that are run, changed, and run again: compiled code must see each change as eager mode does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from armature.api.public import compile

# The function, and what changes the program: each is done once, before one more run.
Program = tuple[Callable[..., Any], tuple[Callable[[], object], ...]]


def like_eager(program: Callable[[], Program]) -> None:
    """Run what the program makes, eagerly and compiled, before and after each of its changes."""
    x = torch.arange(3.0)

    def outcomes(wrap: Callable[..., Any]) -> Iterator[object]:
        function, changes = program()
        run = wrap(function)
        for change in (lambda: None, *changes):
            change()
            try:
                yield [part.tolist() if isinstance(part, torch.Tensor) else part for part in run(x)]
            except (AttributeError, TypeError, NameError) as error:
                yield type(error), str(error)

    expected = list(outcomes(lambda fn: fn))
    assert list(outcomes(lambda fn: compile(fn, backend="eager"))) == expected
    assert any(outcome != expected[0] for outcome in expected)
