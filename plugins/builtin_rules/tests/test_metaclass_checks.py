"""isinstance and issubclass where the program's metaclass answers, or inherits the answer of abstract classes."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session


class Denying(type):
    """Python does not ask it about objects of the class itself."""

    def __instancecheck__(cls, obj: object) -> bool:
        return False


class Denied(metaclass=Denying):
    pass


class BelowDenied(Denied):
    pass


class Building(abc.ABCMeta):
    def __call__(cls, *args: Any) -> Any:
        return super().__call__(*args)


class Abstract(metaclass=Building):
    pass


class Concrete(Abstract):
    pass


class Registered:
    pass


Abstract.register(Registered)


class Hooked(metaclass=Building):
    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        return hasattr(other, "marked")


class Marked:
    marked = True


class Deferring(abc.ABCMeta):
    def __instancecheck__(cls, obj: Any) -> bool:
        return obj == 5 or super().__instancecheck__(obj)


class Deferred(metaclass=Deferring):
    pass


CLASSES = (Denied, Abstract, Hooked, Deferred, (int, Abstract))
OBJECTS = (Denied(), BelowDenied(), Abstract(), Concrete(), Registered(), Marked(), Deferred(), 5, 6, "text")


def is_of(x: Tensor, obj: Any, cls: Any) -> Tensor:
    return x + 1 if isinstance(obj, cls) else x - 1


def is_below(x: Tensor, obj: Any, cls: Any) -> Tensor:
    return x + 1 if issubclass(type(obj), cls) else x - 1


@pytest.mark.parametrize("fn", [is_of, is_below])
@pytest.mark.parametrize("cls", CLASSES, ids=str)
def test_answers_are_those_of_python(fn: Callable[..., Tensor], cls: Any) -> None:
    armature.reset()
    quick = armature.compile(fn, backend="eager", fullgraph=True, dynamic=False)
    for obj in OBJECTS[:7]:
        assert torch.equal(quick(torch.ones(2), obj, cls), fn(torch.ones(2), obj, cls)), obj
    armature.reset()
    for obj in OBJECTS[7:]:
        assert torch.equal(quick(torch.ones(2), obj, cls), fn(torch.ones(2), obj, cls)), obj


def test_a_class_that_is_registered_later() -> None:
    class Late:
        pass

    armature.reset()
    quick = armature.compile(is_of, backend="eager", fullgraph=True)
    assert torch.equal(quick(torch.ones(2), Late(), Abstract), torch.zeros(2))
    Abstract.register(Late)
    assert torch.equal(quick(torch.ones(2), Late(), Abstract), torch.full((2,), 2.0))
    assert len(session().compilations) == 2
