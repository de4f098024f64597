"""`torch.__version__` in a compiled function, and other texts and numbers with an equality of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature

X = torch.ones(2)


class Close(float):
    """A number that equals all others."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = float.__hash__


class Holder:
    number: float = Close(1.5)


PROGRAMS: tuple[Callable[[Tensor], Any], ...] = (
    lambda x: x * 2 if torch.__version__ >= "2.0" else x,
    lambda x: x * 2 if torch.__version__ < (1, 8) or torch.__version__ == "x" else x,
    lambda x: (x + int(torch.__version__.split(".")[0]), torch.__version__.startswith("2"), torch.__version__[:1]),
    lambda x: (x * 2, str(torch.__version__), f"{torch.__version__}", repr(torch.__version__), torch.__version__),
    lambda x: (x * 2, re.match(r"(\d+)\.(\d+)", torch.__version__).groups(), {torch.__version__: 1}),  # type: ignore[union-attr]
    lambda x: (x * 2, type(torch.__version__), isinstance(torch.__version__, str), "2" in torch.__version__),
)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_one_graph_does_as_eager_mode(number: int) -> None:
    armature.reset()
    program = PROGRAMS[number]
    assert str(armature.compile(program, backend="eager", fullgraph=True)(X)) == str(program(X))


def test_numbers_with_an_equality_of_their_own_are_compared_by_what_they_hold() -> None:
    armature.reset()

    def program(x: Tensor, held: Holder) -> Tensor:
        return x + (held.number + 1) * (1 + (held.number == 7))

    compiled, held = armature.compile(program, backend="eager", fullgraph=True), Holder()
    for number in (1.5, 1.5, 2.5, 1.5):
        held.number = Close(number)
        assert torch.equal(compiled(X, held), program(X, held))
