"""`dir` of classes and of their objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature


class Listing(type):
    """A metaclass whose classes list their public attributes."""

    def all(cls) -> list[Any]:
        return sorted(getattr(cls, name) for name in dir(cls) if not name.startswith("_"))


def kinds() -> tuple[type, type]:
    class Base:
        first = 3

    class Derived(Base):
        second = 4

    return Base, Derived


class Methods(metaclass=Listing):
    """Names of methods, as constants."""

    EULER = "euler"
    MIDPOINT = "midpoint"


def test_a_metaclass_lists_the_attributes_of_its_class() -> None:
    def program(x: torch.Tensor) -> Any:
        return x * 2, Methods.all()

    found = armature.compile(program, backend="eager", fullgraph=True)(torch.ones(2))
    assert found[1] == program(torch.ones(2))[1] == ["euler", "midpoint"]


PROGRAMS: dict[str, Callable[..., Any]] = {
    "class": lambda x, base, derived: (x * 2, dir(derived)),
    "object": lambda x, base, derived: (x * 2, dir(derived())),
    "builtin": lambda x, base, derived: (x * 2, dir(dict), dir(torch.nn.Linear)),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_names_that_come_and_go(program: str) -> None:
    armature.reset()
    base, derived = kinds()
    function = PROGRAMS[program]
    compiled = armature.compile(function, backend="eager", fullgraph=True)

    def check() -> None:
        assert compiled(torch.ones(2), base, derived)[1:] == function(torch.ones(2), base, derived)[1:]

    check()
    setattr(base, "added", 5)  # noqa: B010  the class has no such attribute yet
    check()
    delattr(derived, "second")
    check()


def test_attributes_that_the_frame_sets_are_listed() -> None:
    def program(x: torch.Tensor, derived: Any) -> Any:
        derived.third = 5
        return x * 2, "third" in dir(derived), "third" in dir(derived())

    found = armature.compile(program, backend="eager")(torch.ones(2), kinds()[1])
    assert found[1:] == (True, True)


def test_a_metaclass_may_choose_the_names() -> None:
    class Chosen(type):
        def __dir__(cls) -> list[str]:
            return ["chosen"]

    made = Chosen("made", (), {})
    found = armature.compile(lambda x: (x * 2, dir(made)), backend="eager")(torch.ones(2))
    assert found[1] == ["chosen"]
