"""Where an attribute was found, or that it was not, is guarded: each program is run, changed, and run again like eager."""

from __future__ import annotations

import abc
import builtins
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import armature
from tests.support.changed_programs import Program, like_eager


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


def registered_classes() -> Program:
    class Kind(abc.ABC): ...  # noqa: B024 - classes are registered for it

    @typing.runtime_checkable
    class Sized(typing.Protocol):
        size: int

    class Thing: ...

    thing = Thing()
    return lambda t: (t, isinstance(thing, Kind), issubclass(Thing, Kind), isinstance(thing, Sized), callable(thing)), (
        lambda: setattr(Thing, "__call__", lambda self: 1),
        lambda: Kind.register(Thing),
        lambda: setattr(thing, "size", 1),
        lambda: delattr(thing, "size"),
    )


def names_of_classes_and_functions() -> Program:
    class Thing: ...

    def helper() -> None: ...

    return lambda t: (t, Thing.__name__, helper.__name__, hasattr(helper, "mark"), Thing.__doc__), (
        lambda: setattr(Thing, "__name__", "Other"),
        lambda: setattr(helper, "__name__", "other"),
        lambda: setattr(helper, "mark", 1),
        lambda: setattr(Thing, "__doc__", "Text."),
    )


def names_of_a_module_file() -> Program:
    module = types.ModuleType("a_module_of_the_program")
    return lambda t: (t, hasattr(module, "size"), getattr(module, "size", 1)), (
        lambda: setattr(module, "size", 2),
        lambda: delattr(module, "size"),
        lambda: setattr(module, "__getattr__", lambda name: 3),
    )


def defaults_taken_away() -> Program:
    def helper(t: torch.Tensor, by: int = 2) -> torch.Tensor:
        return t * by

    return lambda t: (helper(t),), (
        lambda: setattr(helper, "__defaults__", (3,)),
        lambda: setattr(helper, "__defaults__", None),
    )


def lists_of_the_library() -> Program:
    before = list(sys.path)
    return lambda t: (t, len(sys.path), sys.path[0]), (
        lambda: sys.path.insert(0, "elsewhere"),
        lambda: sys.path.__setitem__(slice(None), before),
    )


def settings_of_torch() -> Program:
    backend = torch.backends.cudnn
    return lambda t: (t, backend.benchmark, torch.is_anomaly_enabled()), (
        # Not by assignment: torch refuses it once a test has imported torch's own tests.
        lambda: backend.set_flags(_benchmark=True),
        lambda: backend.set_flags(_benchmark=False),
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda: torch.autograd.set_detect_anomaly(False),
    )


def names_of_the_builtins() -> Program:
    def function(t: torch.Tensor) -> tuple[object, ...]:
        return (t + a_name_of_the_builtins,)  # type: ignore[name-defined]  # noqa: F821

    return function, (
        lambda: setattr(builtins, "a_name_of_the_builtins", 3),
        lambda: setattr(builtins, "a_name_of_the_builtins", 5),
        lambda: delattr(builtins, "a_name_of_the_builtins"),
    )


PROGRAMS = (
    missing_attribute, metaclass_attribute, instance_attribute_and_descriptors, inherited_in_between, special_methods,
    construction, writes, unset_slot, attribute_of_a_module, bases,
    registered_classes, names_of_classes_and_functions, names_of_a_module_file, defaults_taken_away, lists_of_the_library,
    settings_of_torch, names_of_the_builtins,
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


def test_a_caller_that_handles_an_error_is_seen() -> None:
    def ask(t: torch.Tensor) -> tuple[object, ...]:
        return t + 1, sys.exc_info()[0], type(sys.exception())

    for first in (False, True):
        armature.reset()
        run = armature.compile(ask, backend="eager")
        for handling in (first, not first, first):
            expected: tuple[object, ...] = (None, type(None))
            if handling:
                try:
                    raise KeyError("held")
                except KeyError:
                    found, expected = run(torch.ones(2)), (KeyError, KeyError)
            else:
                found = run(torch.ones(2))
            assert found[1:] == expected
