"""Checks of values: folded if the condition is known, a runtime assertion in the graph if it is a tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch

from armature.plugin_api import (
    CHECK,
    Call,
    SymbolicNumber,
    TracedTensor,
    Value,
    existing,
    handles,
)

ERRORS: dict[str, type[Exception]] = {
    "_check": RuntimeError,
    "_check_index": IndexError,
    "_check_value": ValueError,
    "_check_type": TypeError,
    "_check_not_implemented": NotImplementedError,
}
UNSAID = "Expected cond to be True, but got False."


@handles(*existing(*(f"torch.{name}" for name in ERRORS)))
def check(call: Call, cond: Value, message: Value | None = None) -> Value | None:
    """`torch._check(cond, message)`: does nothing, or raises an error with the text of `message()`."""
    return known_condition(call, ERRORS[call.fn.__name__], cond, message)


@handles(*existing("torch._check_with"))
def check_with(call: Call, error_type: Value, cond: Value, message: Value | None = None) -> Value | None:
    """Like `check`, with the error's class given."""
    kind = error_type.as_object()
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return None
    return known_condition(call, kind, cond, message)


def known_condition(call: Call, error: type[Exception], cond: Value, message: Value | None) -> Value | None:
    """Fold a known condition. A tensor here is an error in eager mode too; the interpreter reports it."""
    if isinstance(cond, SymbolicNumber):
        cond = call.constant(call.tracing.sizes.assume(cond, message_of(call, message)))
    if not cond.is_constant:
        return None
    if cond.as_constant() is True:
        return call.constant(None)
    if message is None or (message.is_constant and message.as_constant() is None):
        call.tracing.raise_error(error, UNSAID)
    text = call.inline(message)
    if not text.is_constant:
        return None
    call.tracing.raise_error(error, str(text.as_constant()))


def message_of(call: Call, message: Value | None) -> str:
    """The message of an error raised when the graph runs."""
    if message is None or (message.is_constant and message.as_constant() is None):
        return UNSAID
    text = call.inline(message)
    return str(text.as_constant()) if text.is_constant else UNSAID


@handles(*existing("torch._check_is_size"))
def check_is_size(call: Call, i: Value, message: Value | None = None, *, max: Value | None = None) -> Value | None:
    """Check that a known size is not negative."""
    if isinstance(i, SymbolicNumber) and max is None:
        return known_condition(call, RuntimeError, call.tracing.python.compare(">=", i, call.constant(0)), message)
    if not i.is_constant or (max is not None and not max.is_constant):
        return None
    size, limit = i.as_constant(), None if max is None else max.as_constant()
    if not isinstance(size, int):
        return None
    holds = size >= 0 and (not isinstance(limit, int) or size <= limit)
    return known_condition(call, RuntimeError, call.constant(holds), message)


@handles(*existing("torch._check_tensor_all"))
def check_tensor_all(call: Call, cond: Value, message: Value | None = None) -> Value | None:
    """Check that all elements of a bool tensor are true: a branch of which one side raises."""
    return all_with(call, call.new_value(RuntimeError), cond, message)


@handles(*existing("torch._check_tensor_all_with"))
def check_tensor_all_with(call: Call, error_type: Value, cond: Value, message: Value | None = None) -> Value | None:
    """Like `check_tensor_all`, with the error's class given."""
    return all_with(call, error_type, cond, message)


def all_with(call: Call, error_type: Value, cond: Value, message: Value | None) -> Value | None:
    """Check a tensor; returns None to decline arguments that the check would refuse."""
    if not isinstance(cond, TracedTensor) or cond.dtype is not torch.bool:
        return None
    return call.polyfill(raise_unless, error_type, cond, call.constant(None) if message is None else message)


def raise_unless(error_type: type[Exception], cond: torch.Tensor, message: Callable[[], object] | None) -> None:
    """Raise the error; the program then runs again in eager mode, which words it."""
    if not torch._is_all_true(cond):
        raise error_type(message_text(message))


def message_text(message: Callable[[], object] | None) -> str:
    """The text of the error."""
    return UNSAID if message is None else str(message())


if ALL_TRUE := existing("torch.distributions.distribution._all_true_or_runtime_assert"):  # of torch 2.15

    @handles(*ALL_TRUE)
    def all_true(call: Call, valid: Value, message: Value) -> Value | None:
        """Return the check as a tensor, because the caller tests it and raises."""
        return call.graph_call(torch._is_all_true, valid) if valid.is_tensor else None


@handles(torch._assert)
def assertion(call: Call, condition: Value, message: Value | None = None) -> Value | None:
    """`torch._assert(condition, message)`: on a tensor it is checked when the graph runs."""
    text = "" if message is None or not message.is_constant else str(message.as_constant())
    if condition.is_tensor:
        call.graph_call(CHECK, condition, call.constant(text))
        return call.constant(None)
    if not condition.is_constant:
        return None
    if not condition.as_constant():
        call.tracing.raise_error(AssertionError, text)
    return call.constant(None)


if torch.__version__ < "2.12":  # later versions keep the check in the graphs that AOTAutograd makes

    @handles(torch.nn.functional.one_hot)
    def one_hot(call: Call, tensor: Value, num_classes: Value | None = None) -> Value | None:
        """Check the classes in a tensor of the CPU beside the call; the kernel of a GPU checks none."""
        if not isinstance(tensor, TracedTensor) or tensor.device.type != "cpu" or num_classes is None:
            return None
        if num_classes.is_constant and num_classes.as_constant() == -1:
            return None
        call.polyfill(check_classes, tensor, num_classes)
        return call.graph_call(call.fn, tensor, num_classes)


def check_classes(tensor: torch.Tensor, num_classes: int) -> None:
    """The checks of `one_hot`, as part of a graph."""
    torch._assert_async((tensor >= 0).all(), "Class values must be non-negative.")
    torch._assert_async((tensor < num_classes).all(), "Class values must be smaller than num_classes.")
