"""`Tracer`: the parts of a trace with the verbs that values, opcodes and plugins may ask of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import attrs

from armature.frame.sources import DictOfSource, object_source
from armature.introspection import dict_of
from armature.trace import callables, inlining
from armature.trace.base import Tracing, Value
from armature.trace.frame_state import Recorder, Trace
from armature.trace.plans import Knowledge
from armature.trace.python_rules import PythonRules
from armature.trace.recording import graph_nodes
from armature.trace.recording.torch_function import dispatched
from armature.trace.stack import Breaks
from armature.trace.values.classes import ClassValue
from armature.trace.values.constant import FALSE, NONE, TRUE, ConstantValue
from armature.trace.values.exception import ExceptionValue, raising
from armature.trace.values.function import ClosureValue
from armature.trace.values.mapping import DictValue
from armature.trace.values.user_object import UserObjectValue
from armature.trace.wrap import as_value, wrap


class Calls:
    """Implements `protocols.CallVerbs`, which documents each verb."""

    def __init__(self, trace: Trace, knowledge: Knowledge) -> None:
        self.call_object = partial(callables.call_object, knowledge, trace)
        self.call_class = partial(callables.call_class, knowledge, trace)
        self.instantiate = partial(callables.instantiate, trace)
        make = partial(inlining.new_frame, trace)
        self.inline_function = partial(inlining.inline_function, trace, make)
        self.inline_closure = partial(inlining.inline_closure, trace, make)
        self.inline_python = partial(callables.inline_python, trace)
        self.call_whole = partial(callables.call_whole, trace)
        self.resume: Callable[[Any], Value] = inlining.run_frame
        self.handled = partial(callables.handled_by_plugins, knowledge, trace)
        self.handled_as = partial(callables.handled_as, knowledge, trace)
        self.dispatched = partial(dispatched, trace)
        self.read_in_c = partial(callables.read_in_c, trace)
        self.has_handler, self.goes_first, self.verdict = knowledge.has_handler, knowledge.goes_first, knowledge.verdict


class Graph:
    """Implements `protocols.GraphVerbs`, which documents each verb."""

    def __init__(self, tracing: Tracing, recorder: Recorder, breaks: Breaks) -> None:
        self.call = partial(graph_nodes.graph_call, tracing, breaks)
        self.change_state = partial(graph_nodes.state_call, tracing)
        self.lift = partial(graph_nodes.lift, recorder, breaks)


@attrs.define(eq=False, repr=False)  # no repr: it would print the whole trace, and each value many times
class Tracer(Trace):
    """One trace of one frame, with the verbs for values, opcodes and plugins."""

    python: PythonRules = attrs.field(init=False)
    calls: Calls = attrs.field(init=False)
    graph: Graph = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.python = PythonRules(self, self.names, self.knowledge.tables)
        self.calls = Calls(self, self.knowledge)
        self.graph = Graph(self, self.recorder, self.breaks)
        self.objects.wrap = partial(wrap, self.knowledge.tables, self)

    # Making values.

    def as_value(self, obj: object) -> Value:
        """The value of an object made or found by tracing itself; a Value is returned unchanged."""
        return obj if issubclass(type(obj), Value) else as_value(self.knowledge.tables, self, obj)  # type: ignore[return-value]

    def constant(self, obj: object) -> Value:
        """The value of a constant."""
        if obj is None:
            return NONE
        if obj is True:
            return TRUE
        if obj is False:
            return FALSE
        return as_value(self.knowledge.tables, self, obj)

    def unpack(self, value: Value) -> list[Value]:
        """All items of an iterable."""
        return list(value.stream(self))

    def new_instance_dict(self, owner: UserObjectValue | ClosureValue) -> DictValue:
        """`owner.__dict__` as the program has it."""
        if isinstance(owner, ClosureValue) or owner.obj is None:
            return DictValue({}, instance=owner)
        real, source = dict_of(owner.obj), DictOfSource(owner.source or object_source(owner.obj))
        made = DictValue({}, dict, real, source=source)
        known = self.objects.by_id
        return self.objects.wrap(real, source) if id(real) in known else self.objects.remember(real, made)  # type: ignore[return-value]

    # Effects, exceptions, breaks.

    def mutate(self, value: Value) -> None:
        """Record that the value's object is about to change."""
        if isinstance(value, DictValue) and value.fixed:
            self.graph_break("changes-globals")
        self.effects.record(value)

    def raise_error(self, kind: type[BaseException], message: str) -> NoReturn:
        """Raise `kind(message)` in the program."""
        raise raising(self, ExceptionValue(kind, [ConstantValue(message)]))

    def raise_value(self, kind: type[BaseException], args: tuple[Value, ...]) -> NoReturn:
        """Raise `kind(*args)` in the program."""
        raise raising(self, ExceptionValue(kind, list(args)))

    def raise_real(self, error: Exception) -> NoReturn:
        """Raise, in the program, an error that a function run on constants has raised."""
        raise raising(self, ExceptionValue(type(error), [self.as_value(arg) for arg in error.args])) from None

    def as_exception(self, value: Value) -> ExceptionValue:
        """The exception to raise for the operand of `raise`."""
        if isinstance(value, ClassValue) and issubclass(value.cls, BaseException):
            value = self.calls.call_class(value, (), {})
        if not isinstance(value, ExceptionValue):
            self.graph_break("raises-no-exception", type=value.describe())
        return value

    def graph_break(self, type_id: str, **facts: object) -> NoReturn:
        """Break the graph here."""
        raise self.breaks.break_at(None, type_id, **facts)
