"""`__subclasses__()` lists no class that only tracing made, and all that the program has made where it asks."""

from __future__ import annotations

import abc
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature

Program = tuple[type, Callable[[torch.Tensor], Any]]


def unused() -> Program:
    class Base: ...

    def function(x: torch.Tensor) -> Any:
        class Made(Base): ...

        return x * 2

    return Base, function


def with_objects() -> Program:
    class Base:
        def scale(self) -> int:
            return 1

    def function(x: torch.Tensor) -> Any:
        class Made(Base):
            def scale(self) -> int:
                return super().scale() + 1

        class More(Made):
            size = 3

        return x * Made().scale() * More().scale() * More.size

    return Base, function


def by_type() -> Program:
    class Base:
        size = 2

    return Base, lambda x: x * type("Made", (Base,), {"scale": 3}).scale * type("Other", (Base,), {}).size


def abstract() -> Program:
    class Base(abc.ABC):
        @abc.abstractmethod
        def scale(self) -> int: ...

    def function(x: torch.Tensor) -> Any:
        class Made(Base):
            def scale(self) -> int:
                return 4

        return x * Made().scale() * isinstance(Made(), Base)

    return Base, function


def of_lists() -> Program:
    class Base(list): ...

    def function(x: torch.Tensor) -> Any:
        class Made(Base): ...

        return x * len(Made([1, 2]))

    return Base, function


def before_a_break() -> Program:
    class Base: ...

    def function(x: torch.Tensor) -> Any:
        class Made(Base): ...

        print(end="")
        return x * 2

    return Base, function


def raising() -> Program:
    class Base: ...

    def function(x: torch.Tensor) -> Any:
        class Made(Base): ...

        raise ValueError(x * 2)

    return Base, function


@pytest.mark.parametrize(
    "program",
    [unused, with_objects, by_type, abstract, of_lists, before_a_break, raising],
    ids=lambda program: program.__name__,
)
def test_classes_of_tracing_are_not_listed(program: Callable[[], Program]) -> None:
    base, function = program()
    compiled = armature.compile(function, backend="eager")
    x = torch.ones(3)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            try:
                found = compiled(x)
            except ValueError:
                assert len(base.__subclasses__()) <= 3  # of the program, which did make them
                continue
            assert base.__subclasses__() == []
            assert torch.equal(found, function(x))
            gc.collect()
    finally:
        gc.enable()


def test_asking_sees_what_the_program_made() -> None:
    class Base:
        def scale(self) -> int:
            return 2

    class Other: ...

    def ask(x: torch.Tensor) -> Any:
        class Apart(Other): ...

        class Made(Base): ...

        return x * len(Base.__subclasses__())

    def inlined(x: torch.Tensor) -> Any:
        return ask(x + 1)

    for function, expected in ((ask, torch.ones(3)), (inlined, torch.full((3,), 2.0))):
        compiled = armature.compile(function, backend="eager")
        for _ in range(3):
            gc.collect()
            assert torch.equal(compiled(torch.ones(3)), expected)


def test_a_base_that_changes_is_seen_through_a_class_made_inside() -> None:
    class Base:
        def scale(self) -> int:
            return 2

    def function(x: torch.Tensor) -> Any:
        class Made(Base): ...

        return x * Made().scale() * Made().size  # type: ignore[attr-defined]

    Base.size = property(lambda self: 3)  # type: ignore[attr-defined]
    compiled = armature.compile(function, backend="eager", fullgraph=True)
    x = torch.ones(3)
    assert torch.equal(compiled(x), x * 6)
    Base.scale = lambda self: 5  # type: ignore[method-assign]
    assert torch.equal(compiled(x), x * 15)
    Base.size = 4  # type: ignore[attr-defined]
    assert torch.equal(compiled(x), x * 20)
    Base.__getattribute__ = lambda self, name: 1 if name == "size" else object.__getattribute__(self, name)  # type: ignore
    assert torch.equal(compiled(x), x * 5)
