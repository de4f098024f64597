"""Calls of torch functions on constants, whose result is a constant too: folded where the rules allow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from armature.rules.data import PROJECT_FIRST, Answer
from armature.trace.base import Args, Kwargs, Value

if TYPE_CHECKING:
    from armature.trace.base import Tracing

OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)  # dispatched to fakes
WHILE_COMPILING = {Answer.TRUE: True, Answer.FALSE: False, Answer.NONE: None}


def check_may_run(tracer: Tracing, fn: object, args: Args, kwargs: Kwargs) -> None:
    """Break before a call with constant arguments about which no rule says anything: it would really run, with its
    effects, because no fake tensor is among its arguments."""
    if isinstance(fn, OPERATORS) or not all(value.is_constant for value in (*args, *kwargs.values())):
        return
    verdict = tracer.calls.verdict(fn)
    # By putting a function in the graph the user promises that it has no effects.
    if verdict.answer is Answer.UNKNOWN and verdict.priority < PROJECT_FIRST:
        tracer.graph_break("unknown-answer", function=getattr(fn, "__name__", str(fn)))


def compile_time_answer(tracer: Tracing, fn: object, args: Args, kwargs: Kwargs) -> Value | None:
    """The value that, according to a rule, a call without arguments returns while compiling."""
    if args or kwargs:
        return None
    answer = tracer.calls.verdict(fn).answer
    return tracer.constant(WHILE_COMPILING[answer]) if answer in WHILE_COMPILING else None


def folded(tracer: Tracing, fn: Callable[..., Any] | str, args: Args, kwargs: Kwargs, result: object) -> Value:
    """The result of a call as a constant. If it depends on more than the arguments, a guard repeats the call."""
    values = (*args, *kwargs.values())
    if not isinstance(fn, str) and all(value.is_constant for value in values):
        answer = tracer.calls.verdict(fn).answer
        if answer is Answer.OF_SETTINGS:
            named = {name: value.as_constant() for name, value in kwargs.items()}
            tracer.guards.answers(fn, tuple(value.as_constant() for value in args), named, result)
        elif answer is Answer.UNKNOWN:
            tracer.graph_break("unknown-answer", function=getattr(fn, "__name__", str(fn)))
    return tracer.as_value(result)
