"""`Tracer`: the FX graph while it grows, its inputs, and what values and opcodes may ask of the trace."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import attrs
from torch import fx

from armature.breaks.types import BreakEvent, BreakType, FrameSummary
from armature.errors import UnknownBreakType
from armature.frame.data import FrameRequest
from armature.frame.sources import (
    DictOfSource,
    ObjectSource,
    Source,
    object_source,
)
from armature.introspection import dict_of
from armature.torch_abi.fake import FakeWorld
from armature.trace import effects as changes
from armature.trace.call_verbs import Calls
from armature.trace.errors import GraphBreak
from armature.trace.frame_state import Frame, Trace
from armature.trace.guards import GuardRecorder
from armature.trace.names import Names
from armature.trace.places import Moment, Place, places_of
from armature.trace.plans import Plan
from armature.trace.python_rules import PythonRules
from armature.trace.recording import graph_calls
from armature.trace.recording.overriding import Overrides
from armature.trace.recording.sizes import Sizes, new_world
from armature.trace.recording.torch_function import dispatched
from armature.trace.user_stack import Extent, UserStack
from armature.trace.values.base import Args, Effects, Kwargs, Precalls, Value
from armature.trace.values.classes import ClassValue
from armature.trace.values.constant import FALSE, NONE, TRUE, ConstantValue
from armature.trace.values.exception import ExceptionValue, raising
from armature.trace.values.floats import FloatValue
from armature.trace.values.function import CellValue, ClosureValue
from armature.trace.values.mapping import DictValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue
from armature.trace.values.user_object import UserObjectValue
from armature.trace.wrap import as_value, wrap

if TYPE_CHECKING:
    from armature.config import Config
    from armature.context import CompileContext
    from armature.rules.data import Verdict


V = TypeVar("V", bound=Value)


@attrs.define(eq=False, repr=False)  # holds all there is, each value by many ways
class Tracer(Trace):
    """One trace of one frame. Everything that tracing knows and has changed is here, and dies with it.

    by_id: values of the program's objects that have an identity, with the objects themselves so that ids stay theirs.
    """

    ctx: CompileContext
    request: FrameRequest
    strict: bool
    fakes: FakeWorld = attrs.field(default=attrs.Factory(lambda self: new_world(self.ctx), takes_self=True))
    graph: fx.Graph = attrs.field(factory=fx.Graph)
    effects: Effects = attrs.field(factory=changes.Effects)
    frames: list[Frame] = attrs.field(factory=list)
    where: UserStack = attrs.field(default=attrs.Factory(lambda self: UserStack(self.frames), takes_self=True))
    by_id: dict[int, tuple[object, Value]] = attrs.field(factory=dict)
    by_fake: dict[int, TensorValue] = attrs.field(factory=dict)
    cells: dict[int, CellValue] = attrs.field(factory=dict)  # of the program, that are known
    called: set[int] = attrs.field(factory=set)  # ids of modules that were called
    class_values: dict[Hashable, Value] = attrs.field(factory=dict)
    inputs: list[TensorValue | SymbolicValue] = attrs.field(factory=list)
    on_abort: list[tuple[Callable[[Any], Any], Any]] = attrs.field(factory=list)
    frames_cells: dict[str, CellValue] = attrs.field(factory=dict)  # free variables of the outermost frame
    generators: list[Value] = attrs.field(factory=list)
    keys: dict[Value, None] = attrs.field(factory=dict)  # looked up in dicts and sets by their identity
    held_weakly: dict[Value, bool] = attrs.field(factory=dict)  # by weak references made; whether one calls back
    end_checks: dict[Callable[[Any, Any, Value | None], None], None] = attrs.field(factory=dict)
    stop: Moment | None = None  # where to stop tracing
    too_deep: tuple[Place, ...] = ()  # where the Python that traces came to its limit
    extent: Extent = attrs.field(factory=Extent)
    has_handlers: bool = False  # some function that was traced has `try` or `with`
    mutates: bool = False  # an operator in place is in the graph
    atomic_depth: int = 0  # calls being traced that go in the graph whole or not at all
    subgraph_depth: int = 0  # of these, calls whose nodes go in graphs of their own
    rerun_breaks: list[GraphBreak] = attrs.field(factory=list)  # where the graph ends if the frame can't run again
    subgraph_tensors: dict[TensorValue, tuple[Place, ...]] = attrs.field(factory=dict)
    sizes: Sizes = attrs.field(default=attrs.Factory(lambda self: Sizes(self, self.fakes), takes_self=True))
    floats: dict[Source, FloatValue] = attrs.field(factory=dict)
    own_lookups: set[Source] = attrs.field(factory=set)  # of objects whose classes look up attributes themselves
    keeps_floats: bool = False  # arguments that are floats of the program stay nodes
    rewrites: dict[Callable[[str, Args, Kwargs], tuple[Args, Kwargs]], None] = attrs.field(factory=dict)
    precalls: Precalls = attrs.field(factory=changes.Precalls)
    modules: dict[str, fx.GraphModule] = attrs.field(factory=dict)
    overrides: Overrides = attrs.field(factory=Overrides)
    _guards: GuardRecorder | None = None
    plans: dict[int, Plan] = attrs.field(factory=dict)
    names: Names = attrs.field(default=attrs.Factory(lambda self: Names(self, self.effects), takes_self=True))
    python: PythonRules = attrs.field(default=attrs.Factory(PythonRules, takes_self=True))
    calls: Calls = attrs.field(default=attrs.Factory(Calls, takes_self=True))

    def end(self) -> None:
        """The trace is over: let go of all that it knows, so that asking it anything is an AttributeError.

        Values lead to the trace by their frames and by the streams that they read, and the trace to them. What they
        hold, inputs of the program among it, would otherwise stay until garbage is collected.
        """
        for field in attrs.fields(type(self)):
            delattr(self, field.name)

    @property
    def guards(self) -> GuardRecorder:
        """The guards recorded so far."""
        if self._guards is None:
            self._guards = GuardRecorder(self.where.line)
        return self._guards

    @property
    def config(self) -> Config:
        """The settings of this compilation."""
        return self.ctx.config

    @property
    def tables(self) -> Any:
        """What plugins know."""
        return self.ctx.tables

    # Making values.

    def wrap(self, obj: object, source: Source) -> Value:
        """The value of an object of the program found at `source`."""
        return wrap(self, obj, source)

    def as_value(self, obj: object) -> Value:
        """The value of an object made or found by tracing itself; a Value stays as it is."""
        return obj if issubclass(type(obj), Value) else as_value(self, obj)  # type: ignore[return-value]

    def constant(self, obj: object) -> Value:
        """The value of a constant."""
        if obj is None:
            return NONE
        if obj is True:
            return TRUE
        if obj is False:
            return FALSE
        return as_value(self, obj)

    def remember(self, obj: object, value: V) -> V:
        """Keep the value of an object that has an identity."""
        self.by_id[id(obj)] = (obj, value)
        return value

    def unpack(self, value: Value) -> list[Value]:
        """All items of an iterable."""
        return list(value.stream(self))

    # Rules and calls.

    def verdict(self, fn: object) -> Verdict:
        """What the rules say of a callable. That it was asked for is kept: the code is as good as the answer."""
        self.ctx.asked[id(fn)] = fn
        found: Verdict = self.tables.rule_book.verdict(fn)
        return found

    def graph_call(
        self, fn: Callable[..., Any] | str, args: Args, kwargs: Kwargs, fake: Callable[..., Any] | None = None
    ) -> Value:
        """Put a call in the graph; its result is known from a run of it, or of `fake`, on fake tensors."""
        return graph_calls.graph_call(self, fn, args, kwargs, fake)

    def dispatched(self, fn: Callable[..., Any] | str, args: Args, kwargs: Kwargs) -> Value | None:
        """What `__torch_function__` of modes or of arguments makes of a call; None: nobody takes it over."""
        return dispatched(self, fn, args, kwargs)

    def state_call(self, fn: Callable[..., Any], arguments: tuple[Any, ...], leave: Any = None) -> fx.Node:
        """Put a call that changes torch's state in the graph; arguments are constants, nodes. leave: takes it back."""
        return graph_calls.state_call(self, fn, arguments, leave)

    def lift(self, value: TensorValue | SymbolicValue) -> fx.Node:
        """The graph input of a tensor or int of the program."""
        return graph_calls.lift(self, value)

    def new_instance_dict(self, owner: UserObjectValue | ClosureValue) -> DictValue:
        """`owner.__dict__` as the program has it."""
        if isinstance(owner, ClosureValue) or owner.obj is None:
            return DictValue({}, instance=owner)
        real, source = dict_of(owner.obj), DictOfSource(owner.source or object_source(owner.obj))
        made = DictValue({}, dict, None, real, source=source)
        return self.wrap(real, source) if id(real) in self.by_id else self.remember(real, made)  # type: ignore[return-value]

    # Effects, exceptions, breaks.

    def mutate(self, value: Value) -> None:
        """The object of the value is about to change."""
        if isinstance(value.source, ObjectSource) and isinstance(value, DictValue) and value.fixed:
            self.graph_break("changes-globals")
        self.effects.record(value)

    def raise_error(self, kind: type[BaseException], message: str) -> NoReturn:
        """The program raises `kind(message)` here."""
        raise raising(self, ExceptionValue(kind, [ConstantValue(message)]))

    def raise_value(self, kind: type[BaseException], args: tuple[Value, ...]) -> NoReturn:
        """The program raises `kind(*args)` here."""
        raise raising(self, ExceptionValue(kind, list(args)))

    def raise_real(self, error: Exception) -> NoReturn:
        """The program raises what a function run on constants has raised."""
        raise raising(self, ExceptionValue(type(error), [self.as_value(arg) for arg in error.args])) from None

    def as_exception(self, value: Value) -> ExceptionValue:
        """The exception to raise for the operand of `raise`."""
        if isinstance(value, ClassValue) and issubclass(value.cls, BaseException):
            value = self.calls.call_class(value, (), {})
        if not isinstance(value, ExceptionValue):
            self.graph_break("raises-no-exception", type=value.describe())
        return value

    def graph_break(self, type_id: str, **facts: object) -> NoReturn:
        """Stop: this can't go in one graph."""
        raise self.break_at(None, type_id, **facts)

    def break_at(self, places: tuple[Place, ...] | None, type_id: str, **facts: object) -> GraphBreak:
        """The graph break to raise, or to keep. places: where the graph is to end; None: here."""
        try:
            kind: BreakType = self.tables.break_type(type_id)
        except UnknownBreakType:
            named = ", ".join(f"{name}: {{{name}}}" for name in facts)
            kind = BreakType(type_id, type_id, named or type_id, ("No plugin describes this break.",))
        event = BreakEvent(kind, facts, self.where.summaries(), values=self.where.values())
        return GraphBreak(event, places_of(self.frames) if places is None else places)

    # Where we are.

    def origin(self) -> tuple[FrameSummary, str, str]:
        """The innermost line of the user's code: its summary, its text as in a traceback, and "model.py:41"."""
        return self.where.origin()

    def expression(self) -> str:
        """The expression of the user's code that is run: its text, as far as it stands on one line."""
        return self.where.expression()
