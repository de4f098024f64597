"""`warnings.catch_warnings` and the filters that are set inside it, both while tracing and in the graph.

A graph may end inside. Its code and that of the next one enter an object of our own instead, which sets the same
filters, and those that code in between has left.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Sequence

import attrs

from armature.plugin_api import (
    Args,
    AttrSource,
    Call,
    EnteredAgain,
    Kwargs,
    PairedContextValue,
    Rebuilding,
    Source,
    Tracing,
    Value,
    ValueGuard,
    ValueType,
    handles,
)

Change = tuple[str, tuple[object, ...]]  # a function that changes filters, by its key in CHANGES, and its arguments
State = tuple[object, ...]
Catching = warnings.catch_warnings  # its class parameter differs between versions of Python's type stubs
SET_BACK = ("filters", "showwarning", "_showwarnmsg_impl")  # attributes of `warnings` that catch_warnings sets back


def state_now() -> State:
    """What catch_warnings sets back, as it is now."""
    return (tuple(warnings.filters), *(getattr(warnings, name) for name in SET_BACK[1:]))


def set_state(*state: object) -> None:
    """Set what `state_now` has told. In place, because C code holds the list of filters."""
    filters, *functions = state
    warnings.resetwarnings()
    vars(warnings)["filters"][:] = filters
    for name, function in zip(SET_BACK[1:], functions):
        setattr(warnings, name, function)


CHANGES: dict[str, Callable[..., None]] = {
    "simplefilter": warnings.simplefilter,
    "filterwarnings": warnings.filterwarnings,
    "resetwarnings": warnings.resetwarnings,
    "state": set_state,
}


def enter_filters(*changes: Change) -> Catching:
    """Change filters until they are set back; returns the entered context manager."""
    entered = warnings.catch_warnings()
    entered.__enter__()
    for name, arguments in changes:
        CHANGES[name](*arguments)
    return entered


def leave_filters(entered: Catching) -> None:
    """Set the filters back."""
    entered.__exit__(None, None, None)


class FiltersAgain(EnteredAgain):
    """The catch_warnings in which a graph has ended, for the code after it and the next graph to enter."""

    arguments: tuple[Change, ...]


def enter_again(*changes: Change) -> tuple[Catching, State]:
    """Set the filters again; returns the entered context manager, and what it sets back as it is inside."""
    entered = enter_filters(*changes)
    return entered, state_now()


def leave_again(opened: tuple[Catching, State]) -> tuple[Change, ...] | None:
    """Set the filters back. Returns how to set what code inside has left; None if it has changed nothing."""
    entered, inside = opened
    now = state_now()
    leave_filters(entered)
    return (("state", now),) if now != inside else None


def entering(*changes: Change) -> Callable[[], Catching]:
    """`enter_filters` of these changes, for a graph: the text of a graph can't have classes among its arguments."""

    def enter() -> Catching:
        return enter_filters(*changes)

    return enter


@attrs.define(eq=False)
class FiltersValue(PairedContextValue):
    """A catch_warnings. used: whether it has been entered, which Python allows once. nested: a context for each change
    of filters inside."""

    changes: tuple[Change, ...] = ()
    used: bool = False
    nested: list[PairedContextValue] = attrs.field(factory=list)

    def enter(self, tracer: Tracing) -> Value:
        if self.used:
            tracer.graph_break("library-without-tensors", function="warnings.catch_warnings.__enter__")  # it raises
        self.used = True
        super().enter(tracer)
        return tracer.constant(None)

    def add(self, tracer: Tracing, change: Change) -> None:
        """Change filters until the context is left."""
        context = PairedContextValue(self.kind, entering(change), (), leave_filters)
        context.enter(tracer)
        tracer.effects.entered.pop(context)  # it is a part of this one
        self.nested.append(context)
        self.changes = (*self.changes, change)

    def leave(self, tracer: Tracing) -> None:
        while self.nested:
            context = self.nested.pop()
            tracer.effects.entered[context] = None
            context.leave(tracer)
        super().leave(tracer)

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        return Value.call(self, tracer, args, kwargs)  # unlike torch's contexts it decorates nothing

    def rebuild(self, out: Rebuilding) -> None:
        if self.used and not self.inside:
            out.cannot(self)
        if not self.inside:
            out.null_function(with_filters)
            out.constant(self.changes)
            out.call(1)
            return
        out.null_function(FiltersAgain)
        for argument in (enter_again, self.changes, leave_again):
            out.constant(argument)
        out.call(3)


def with_filters(changes: tuple[Change, ...]) -> Catching:
    """The context manager itself, which has not been entered."""
    make: Callable[..., Catching] = warnings.catch_warnings
    return make(**dict(zip(("action", "category", "lineno", "append"), changes[0][1]))) if changes else make()


def constants(values: Sequence[Value]) -> tuple[object, ...] | None:
    """Constants and classes of warnings; None if there is another value."""
    if not all(value.is_constant or issubclass(value.python_type(), type) for value in values):
        return None
    return tuple([value.as_constant() if value.is_constant else value.as_object() for value in values])


def change_of(name: str, args: Args, kwargs: Kwargs) -> Change | None:
    """A change of filters, by its arguments in order; None if they are not known, if Python refuses them, or if
    warnings become errors, because compiled code may give no warning where the program does."""
    function = CHANGES[name]
    given = constants((*args, *kwargs.values()))
    if given is None:
        return None
    try:
        bound = inspect.signature(function).bind(*given[: len(args)], **dict(zip(kwargs, given[len(args) :])))
        bound.apply_defaults()
        leave_filters(enter_filters((name, bound.args)))
    except (AssertionError, TypeError, ValueError):
        return None
    return None if "error" in bound.args else (name, bound.args)


def filters_value(*changes: Change) -> FiltersValue:
    """The value of a context that has not been entered."""
    return FiltersValue(warnings.catch_warnings, entering(*changes), (), leave_filters, changes=changes)


@handles(warnings.catch_warnings)
def catch_warnings(
    call: Call,
    *,
    record: Value | None = None,
    module: Value | None = None,
    action: Value | None = None,
    **kwargs: Value,
) -> Value | None:
    """The context manager, if it keeps no list of warnings."""
    unset = (None, False)
    if any(
        value is not None and not (value.is_constant and value.as_constant() in unset) for value in (record, module)
    ):
        return None
    changes: tuple[Change, ...] = ()
    if action is not None and not (action.is_constant and action.as_constant() is None):
        change = change_of("simplefilter", (action,), kwargs)
        if change is None:
            return None
        changes = (change,)
    elif kwargs:
        return None
    if warnings is not sys.modules.get("warnings"):
        return None
    return filters_value(*changes)


@handles(warnings.simplefilter, warnings.filterwarnings, warnings.resetwarnings)
def changes_filters(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """A change of filters inside a catch_warnings that this frame has entered, and that sets them back."""
    open_now = [context for context in call.tracing.effects.entered if isinstance(context, FiltersValue)]
    change = change_of(call.fn.__name__, args, kwargs) if open_now else None
    if change is None:
        return None
    open_now[-1].add(call.tracing, change)
    return call.constant(None)


def of_program(obj: FiltersAgain, source: Source, tracer: Tracing) -> Value:
    """The context in which a graph has ended."""
    tracer.guards.add(ValueGuard(AttrSource(source, "arguments"), obj.arguments))
    value = filters_value(*obj.arguments)
    value.source = source
    return value


VALUE_TYPES = (ValueType(FiltersAgain, of_program),)
