"""Calls, for the modules that stand below those that make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import attrs

from armature.trace import calls
from armature.trace.semantics import inlining
from armature.trace.values.base import Args, Kwargs, Value

if TYPE_CHECKING:
    from armature.trace.frame_state import Frame, Trace
    from armature.trace.values.classes import ClassValue
    from armature.trace.values.function import ClosureValue


@attrs.define(eq=False)
class Calls:
    """Calls for the modules that stand below `calls.py`."""

    trace: Trace

    def call_object(self, fn: Callable[..., Any], value: Value, args: Args, kwargs: Kwargs) -> Value:
        """Call a Python function or one written in C, as handlers, polyfills and rules say."""
        return calls.call_object(self.trace, fn, value, args, kwargs)

    def call_class(self, value: ClassValue, args: Args, kwargs: Kwargs) -> Value:
        """Call a class."""
        return calls.call_class(self.trace, value, args, kwargs)

    def instantiate(self, value: ClassValue, args: Args, kwargs: Kwargs) -> Value:
        """Make an object of a class by `__new__` and `__init__`."""
        return calls.instantiate(self.trace, value, args, kwargs)

    def handled(self, fn: object, args: Args, kwargs: Kwargs) -> Value | None:
        """What a handler or polyfill of `fn` gives, None when there is none or it declines."""
        return calls.handled(self.trace, calls.plan_of(self.trace, fn), args, kwargs)

    def has_handler(self, fn: object) -> bool:
        """Whether a handler or a polyfill knows a callable."""
        plan = calls.plan_of(self.trace, fn)
        return bool(plan.handlers) or plan.polyfill is not None

    def goes_first(self, fn: object) -> bool:
        """Whether a handler, a polyfill, or a rule that goes before these, knows a callable."""
        return calls.plan_of(self.trace, fn).speaks

    def read_in_c(self, cls: type, lookup: object, name: str) -> NoReturn:
        """Break the graph where an attribute is read of an object whose class looks it up in C."""
        calls.read_in_c(self.trace, cls, lookup, name)

    def inline_closure(self, function: ClosureValue, args: Args, kwargs: Kwargs) -> Value:
        """Call a function made in the frame."""
        return inlining.inline_closure(self.trace, function, args, kwargs)

    def inline_python(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
        """Trace into a Python function that stands in for another."""
        return calls.inline_python(self.trace, fn, args, kwargs)

    def call_whole(self, fn: Value | Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
        """Trace into a function; what breaks in it breaks at the call of it."""
        return calls.call_whole(self.trace, fn, args, kwargs)

    def resume(self, frame: Frame) -> Value:
        """Run a suspended frame to its next value."""
        return inlining.run_frame(self.trace, frame)
