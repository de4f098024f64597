"""Groups of exceptions in a compiled function: made in the graph; split, and caught by `except*`, in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.testing.handler_kit import break_id


class Named(ExceptionGroup):
    """Without a `derive` of its own."""


class Derived(ExceptionGroup):
    made: list[int] = []

    def derive(self, excs):
        Derived.made.append(len(excs))
        return Derived(self.message + "'", excs)


def shown(error: Any) -> Any:
    if isinstance(error, BaseExceptionGroup):
        return type(error).__name__, error.message, [shown(item) for item in error.exceptions], notes(error)
    return None if error is None else (type(error).__name__, error.args)


def notes(error: Any) -> Any:
    return getattr(error, "__notes__", None), shown(error.__cause__), error.__suppress_context__


def group(kind: Any = ExceptionGroup) -> Any:
    inner = kind("inner", [ValueError(1), TypeError(2), KeyError(3)])
    return kind("outer", [inner, ValueError(4), OSError(5)])


def splits(x: torch.Tensor) -> Any:
    found = []
    for wanted in (
        ValueError,
        (TypeError, OSError),
        ExceptionGroup,
        IndexError,
        lambda e: bool(e.args and e.args[0] == 3),
    ):
        made = group()
        taken, rest = made.split(wanted)
        found.append((shown(taken), shown(rest), taken is made, rest is made, shown(made.subgroup(wanted))))
    return x + len(found), found


def of_classes(x: torch.Tensor) -> Any:
    Derived.made.clear()
    found = [shown(part) for kind in (Named, Derived, BaseExceptionGroup) for part in group(kind).split(ValueError)]
    mixed = BaseExceptionGroup("mixed", [ValueError(1), KeyboardInterrupt()])
    found += [shown(mixed), *map(shown, mixed.split(ValueError)), shown(mixed.derive([OSError(1)]))]
    return x + 1, found, list(Derived.made), shown(group(Derived).subgroup(OSError))


def caught(x: torch.Tensor) -> Any:
    found = []
    for kind in (ExceptionGroup, Named, Derived):
        made = group(kind)
        made.add_note("noted")
        try:
            raise made from KeyError("why")
        except ExceptionGroup as error:
            taken, rest = error.split(TypeError)
            found.append((shown(taken), shown(rest), error is made))
        try:
            raise made
        except* ValueError as error:
            found.append(shown(error))
        except* Exception as error:
            found.append(shown(error))
    return x + len(found), found


def predicates(x: torch.Tensor) -> Any:
    asked = []

    def wanted(error):
        asked.append(type(error).__name__)
        return isinstance(error, OSError)

    return x + 1, shown(group().subgroup(wanted)), asked


@pytest.mark.parametrize("function", [splits, of_classes, caught, predicates], ids=lambda fn: fn.__name__)
def test_as_in_eager_mode(function: Callable[[torch.Tensor], Any]) -> None:
    x = torch.ones(2)
    assert break_id(function, (x,)) in ("function-in-c", "untraced-opcode")
    assert str(armature.compile(function, backend="eager")(x)) == str(function(x))


def test_a_group_is_made_raised_and_caught_in_one_graph() -> None:
    def function(x: torch.Tensor) -> Any:
        try:
            raise Named("several", [ValueError(1), TypeError(2)])
        except ExceptionGroup as error:
            return x + len(error.exceptions), error.message, [item.args for item in error.exceptions]

    x = torch.ones(2)
    assert str(armature.compile(function, backend="eager", fullgraph=True)(x)) == str(function(x))


class Overriding(ExceptionGroup):
    def __new__(cls, message, excs):
        return super().__new__(cls, message.upper(), excs)


class Odd(ValueError):
    def __new__(cls, text):
        return super().__new__(cls, text + "!")


class Wrong(ExceptionGroup):
    def derive(self, excs):
        return ValueError("no group")


@pytest.mark.parametrize(
    ("make", "broken_by"),
    [
        (lambda: ExceptionGroup("a", []), "exception-group-arguments"),
        (lambda: ExceptionGroup("a", [KeyboardInterrupt()]), "exception-group-arguments"),
        (lambda: ExceptionGroup("a", [1]), "exception-group-arguments"),
        (lambda: ExceptionGroup(3, [ValueError()]), "exception-group-arguments"),
        (lambda: group().split(3), "function-in-c"),
        (lambda: group().split((ValueError, 3)), "function-in-c"),
        (lambda: group(Overriding).message, "exception-class-with-new"),
        (lambda: Overriding("a", [ValueError()]).message, "exception-class-with-new"),
        (lambda: group().derive([]), "function-in-c"),
        (lambda: Odd("a").args, "exception-class-with-new"),
    ],
)
def test_what_python_refuses_is_left_to_it(make: Callable[[], Any], broken_by: str) -> None:
    def function(x: torch.Tensor) -> Any:
        try:
            return x + 1, str(make())
        except (ValueError, TypeError) as error:
            return x + 2, type(error), str(error)

    x = torch.ones(1)
    assert break_id(function, (x,)) == broken_by
    assert str(armature.compile(function, backend="eager")(x)) == str(function(x))


def test_a_derive_that_gives_no_group() -> None:
    def function(x: torch.Tensor) -> Any:
        try:
            group(Wrong).split(OSError)
        except TypeError as error:
            return x + 1, str(error)

    x = torch.ones(1)
    assert str(armature.compile(function, backend="eager")(x)) == str(function(x))


def test_parts_that_leave_the_function() -> None:
    def function(x: torch.Tensor) -> Any:
        return x + 1, group().split(ValueError)

    x = torch.ones(1)
    made, expected = armature.compile(function, backend="eager")(x)[1], function(x)[1]
    assert [shown(part) for part in made] == [shown(part) for part in expected]
