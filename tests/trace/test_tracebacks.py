"""`__traceback__` of exceptions: whether there is one, and whether it is the same."""

# ruff: noqa: B904 - it is what is tested

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.errors import Unsupported

X = torch.ones(2)


def fails() -> None:
    raise ValueError("deep")


def not_raised() -> Any:
    error = ValueError("a")
    return error.__traceback__, error.with_traceback(None).args


def handled() -> Any:
    try:
        raise ValueError("a")
    except ValueError as error:
        return error.__traceback__ is None, error.__traceback__ is error.__traceback__, type(error.__traceback__)


def of_exc_info() -> Any:
    try:
        fails()
    except ValueError as error:
        return sys.exc_info()[2] is error.__traceback__


def taken_away() -> Any:
    try:
        fails()
    except ValueError as error:
        before = error.__traceback__
        error.__traceback__ = None
        none = error.__traceback__ is None
        return none, error.with_traceback(before).__traceback__ is before


def raised_again_bare() -> Any:
    try:
        try:
            fails()
        except ValueError as error:
            error.__traceback__ = None
            raise
    except ValueError as again:
        return again.__traceback__ is None


def raised_again_by_name() -> Any:
    seen = []
    try:
        try:
            fails()
        except ValueError as error:
            seen.append(error.__traceback__)
            raise error.with_traceback(None)
    except ValueError as again:
        return again.__traceback__ is None, again.__traceback__ is seen[0]


def reraises() -> None:
    try:
        fails()
    except ValueError as error:
        error.__traceback__ = None
        raise


def left_a_frame() -> Any:
    try:
        reraises()
    except ValueError as error:
        return error.__traceback__ is None


def kept_where_no_clause_fits() -> Any:
    seen = []
    try:
        try:
            fails()
        except ValueError as error:
            seen.append(error.__traceback__)
            raise
        except KeyError:
            pass
    except ValueError as again:
        return again.__traceback__ is seen[0]


def given_to_another() -> Any:
    try:
        try:
            fails()
        except ValueError as error:
            raise RuntimeError("b").with_traceback(error.__traceback__)
    except RuntimeError as other:
        return str(other), other.__traceback__ is None, other.__context__.__traceback__ is None


class Keeps:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __enter__(self) -> Keeps:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        self.seen += [error is None or error.__traceback__ is traceback, traceback is None]
        return kind is not None


def left_by_contexts() -> Any:
    with Keeps() as outer, Keeps() as inner:
        fails()
    with Keeps() as quiet:
        pass
    return outer.seen, inner.seen, quiet.seen


@contextlib.contextmanager
def cleaned() -> Iterator[None]:
    try:
        yield
    finally:
        len("")


def left_by_generators() -> Any:
    try:
        with cleaned(), cleaned():
            fails()
    except ValueError as error:
        return error.__traceback__ is None


def wrong() -> Any:
    try:
        ValueError("a").__traceback__ = 3  # type: ignore[assignment]
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("what", [
    not_raised, handled, of_exc_info, taken_away, raised_again_bare, raised_again_by_name, left_a_frame,
    kept_where_no_clause_fits, given_to_another, left_by_contexts, left_by_generators, wrong,
], ids=lambda what: what.__name__)  # fmt: skip
def test_like_eager(what: Callable[[], Any]) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Any]:
        return x + 1, what()

    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    assert str(compiled(X)) == str(fn(X))


def test_what_is_in_one_is_not_traced() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Any]:
        try:
            fails()
        except ValueError as error:
            return x + 1, error.__traceback__.tb_lineno  # type: ignore[union-attr]
        return x, None

    assert str(armature.compile(fn, backend="eager")(X)) == str(fn(X))
    with pytest.raises(Unsupported):
        armature.compile(fn, backend="eager", fullgraph=True)(X)


def test_an_error_with_the_traceback_of_another() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Any]:
        try:
            fails()
        except ValueError as error:
            return x + 1, RuntimeError("b").with_traceback(error.__traceback__)
        return x, None

    found, expected = armature.compile(fn, backend="eager")(X)[1], fn(X)[1]
    assert type(found.__traceback__) is type(expected.__traceback__)
