"""Exceptions that are caught, told, and put together."""

from __future__ import annotations

import torch
from torch import Tensor


def text_of_error(x: Tensor) -> object:
    try:
        raise OSError(2, "no such file")
    except OSError as error:
        return x + 1, str(error)


def text_of_error_mended(x: Tensor) -> object:
    try:
        raise ValueError("no such file")
    except ValueError as error:
        return x + 1, str(error)


def sets_exception_attribute(x: Tensor, error: Exception) -> object:
    error.step = 3  # type: ignore[attr-defined]
    return x + 1


def sets_exception_attribute_inputs() -> tuple[object, ...]:
    return torch.ones(3), ValueError("wrong")


class StepError(Exception):
    """An exception that gets its whole message as arguments."""

    def __init__(self, text: str, step: int) -> None:
        super().__init__(text, step)
        self.step = step


def sets_exception_attribute_mended(x: Tensor, error: Exception) -> object:
    try:
        raise StepError("wrong", 3)
    except StepError as found:
        return x + found.args[1] - 2


def exception_group_arguments(x: Tensor) -> object:
    try:
        raise ExceptionGroup("several", ())
    except ValueError:
        return x + 1


def exception_group_arguments_mended(x: Tensor) -> object:
    try:
        raise ExceptionGroup("several", [ValueError("one")])
    except ExceptionGroup:
        return x + 1


def an_error() -> tuple[object, ...]:
    return torch.ones(2), ValueError("the step failed")


def exception_traceback(x: Tensor, error: Exception) -> object:
    return x + (error.__traceback__ is None)


exception_traceback_inputs = an_error


def exception_traceback_mended(x: Tensor, error: Exception) -> object:
    return x + len(str(error))


def exception_notes(x: Tensor, error: Exception) -> object:
    Exception.with_traceback(error, None)
    return x + 1


exception_notes_inputs = an_error


def exception_notes_mended(x: Tensor, error: Exception) -> object:
    return x + len(error.args)
