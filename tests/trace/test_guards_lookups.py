"""Where an attribute was found, or that it was not, is guarded: each program is run, changed, and run again like eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import armature

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
    assert list(outcomes(lambda fn: armature.compile(fn, backend="eager"))) == expected
    assert any(outcome != expected[0] for outcome in expected)


def missing_attribute() -> Program:
    class Base: ...

    class Thing(Base): ...

    thing = Thing()
    return lambda t: (t + getattr(thing, "size", 1), hasattr(thing, "size")), (
        lambda: setattr(Base, "__getattr__", lambda self, name: 5),
        lambda: setattr(Base, "size", 7),
        lambda: setattr(thing, "size", 8),
        lambda: delattr(thing, "size"),
        lambda: setattr(Thing, "__getattribute__", lambda self, name: 9),
    )


def metaclass_attribute() -> Program:
    class Meta(type):
        size = 2

    class Thing(metaclass=Meta): ...

    return lambda t: (t * Thing.size, hasattr(Thing, "other")), (
        lambda: setattr(Meta, "size", 3),
        lambda: setattr(Thing, "size", 4),
        lambda: setattr(Meta, "other", 5),
        lambda: setattr(Meta, "size", property(lambda cls: 6)),
    )


def instance_attribute_and_descriptors() -> Program:
    class Thing: ...

    class Cut:
        def __get__(self, owner: object, kind: type) -> int:
            return 3

    class Shown:
        size = 1

    thing, shown = Thing(), Shown()
    thing.size, shown.size = 5, 6  # type: ignore[attr-defined]
    return lambda t: (t * thing.size, shown.size), (  # type: ignore[attr-defined]
        lambda: setattr(Thing, "size", Cut()),
        lambda: setattr(Cut, "__set__", lambda *_: None),
        lambda: setattr(Cut, "__get__", lambda *_: 4),
        lambda: setattr(Shown, "size", property(lambda self: 7)),
    )


def inherited_in_between() -> Program:
    class Base:
        def size(self) -> int:
            return 1

    class Middle(Base): ...

    class Thing(Middle):
        def size(self) -> int:
            return super().size() + 10

    thing = Thing()
    return lambda t: (t + thing.size(),), (
        lambda: setattr(Middle, "size", lambda self: 2),
        lambda: delattr(Middle, "size"),
        lambda: setattr(Base, "size", lambda self: 3),
    )


def special_methods() -> Program:
    class Thing: ...

    first, second = Thing(), Thing()
    return lambda t: (t, bool(first), first == second, second in [first], len({first, second})), (
        lambda: setattr(Thing, "__len__", lambda self: 0),
        lambda: setattr(Thing, "__bool__", lambda self: True),
        lambda: setattr(Thing, "__hash__", lambda self: 1),
        lambda: setattr(Thing, "__eq__", lambda self, other: True),
    )


def construction() -> Program:
    class Thing: ...

    def function(t: torch.Tensor) -> tuple[object, ...]:
        return t, sorted(vars(Thing()).items())

    return function, (lambda: setattr(Thing, "__init__", lambda self: setattr(self, "size", 1)),)


def writes() -> Program:
    class Thing: ...

    thing = Thing()

    def function(t: torch.Tensor) -> tuple[object, ...]:
        thing.size = 1  # type: ignore[attr-defined]
        return t, thing.size  # type: ignore[attr-defined]

    return function, (
        lambda: setattr(Thing, "__setattr__", lambda self, name, value: self.__dict__.update({name: value + 1})),
        lambda: delattr(Thing, "__setattr__"),
        lambda: setattr(Thing, "size", property(lambda self: 5, lambda self, value: None)),
        lambda: setattr(Thing, "size", property(lambda self: 6, lambda self, value: self.none)),
    )


def unset_slot() -> Program:
    class Thing:
        __slots__ = ("size",)

    thing = Thing()
    return lambda t: (t + getattr(thing, "size", 1),), (
        lambda: setattr(thing, "size", 5),
        lambda: delattr(thing, "size"),
    )


def attribute_of_a_module() -> Program:
    class Model(nn.Module):
        def forward(self, t: torch.Tensor) -> tuple[object, ...]:
            return t + 1, hasattr(self, "extra"), getattr(self, "size", 2)

    model = Model()
    return model, (
        lambda: setattr(model, "extra", 1),
        lambda: setattr(model, "size", 3),
        lambda: delattr(model, "size"),
        lambda: setattr(Model, "size", 4),
        lambda: setattr(Model, "__getattr__", lambda self, name: 5),
        lambda: delattr(Model, "size"),
    )


def bases() -> Program:
    class First: ...

    class Second: ...

    class Thing(First): ...

    thing = Thing()
    return lambda t: (t, isinstance(thing, Second), issubclass(Thing, Second)), (
        lambda: setattr(Thing, "__bases__", (Second,)),
    )


PROGRAMS = (
    missing_attribute, metaclass_attribute, instance_attribute_and_descriptors, inherited_in_between, special_methods,
    construction, writes, unset_slot, attribute_of_a_module, bases,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_like_eager(program: Callable[[], Program]) -> None:
    like_eager(program)


def test_an_attribute_of_another_name_does_not_matter() -> None:
    class Thing:
        size = 1

    thing, compiled = Thing(), []

    def backend(graph: Any, inputs: object) -> Any:
        compiled.append(graph)
        return graph

    run = armature.compile(lambda t: t + thing.size + hasattr(thing, "other"), backend=backend)
    for _ in range(2):
        run(torch.ones(2))
        Thing.unread = 3  # type: ignore[attr-defined]
    assert len(compiled) == 1
