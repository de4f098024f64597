"""`Tracer`: the FX graph while it grows, its inputs, and what values and opcodes may ask of the trace."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import attrs
from torch import fx

from armature.breaks.types import BreakEvent, BreakType, FrameSummary
from armature.errors import UnknownBreakType
from armature.frame.data import FrameRequest
from armature.frame.sources import (
    DictOfSource,
    GlobalSource,
    ItemSource,
    ObjectSource,
    Source,
    object_source,
)
from armature.introspection import dict_of
from armature.torch_abi.fake import FakeWorld
from armature.trace import calls
from armature.trace.effects import Effects
from armature.trace.errors import GraphBreak, UserRaised
from armature.trace.frame_state import Frame, Trace
from armature.trace.guards import GuardRecorder
from armature.trace.places import Moment, Place, places_of
from armature.trace.recording import graph_calls
from armature.trace.recording.overriding import Overrides
from armature.trace.recording.sizes import Sizes, new_world
from armature.trace.recording.torch_function import dispatched
from armature.trace.semantics import inlining, iteration, operators, text
from armature.trace.trust import trusted_module
from armature.trace.user_stack import Extent, UserStack
from armature.trace.values.base import Args, Kwargs, Value
from armature.trace.values.classes import ClassValue, class_attribute, overrides
from armature.trace.values.constant import FALSE, NONE, TRUE, ConstantValue
from armature.trace.values.exception import ExceptionValue, raising
from armature.trace.values.floats import FloatValue
from armature.trace.values.function import CellValue, ClosureValue
from armature.trace.values.mapping import DictValue
from armature.trace.values.precomputed import EarlyCalls
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue
from armature.trace.values.user_object import UserObjectValue
from armature.trace.wrap import as_value, wrap

if TYPE_CHECKING:
    from armature.config import Config
    from armature.context import CompileContext
    from armature.rules.book import Verdict


V = TypeVar("V", bound=Value)
Held = TypeVar("Held")


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
    effects: Effects = attrs.field(factory=Effects)
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
    stop: Moment | None = None  # where to stop tracing
    too_deep: tuple[Place, ...] = ()  # where the Python that traces came to its limit
    extent: Extent = attrs.field(factory=Extent)
    has_handlers: bool = False  # some function that was traced has `try` or `with`
    mutates: bool = False  # an operator in place is in the graph
    regions: int = 0  # calls being traced that go in the graph whole or not at all
    parts: int = 0  # of these, calls whose nodes go in graphs of their own
    doubts: list[GraphBreak] = attrs.field(factory=list)  # where the graph ends if the frame can't run again
    buried: dict[TensorValue, tuple[Place, ...]] = attrs.field(factory=dict)  # made in such a call; where that was
    sizes: Sizes = attrs.field(default=attrs.Factory(lambda self: Sizes(self, self.fakes), takes_self=True))
    floats: dict[Source, FloatValue] = attrs.field(factory=dict)
    asking: set[Source] = attrs.field(factory=set)  # of objects whose classes look up attributes themselves
    keeps_floats: bool = False  # arguments that are floats of the program stay nodes
    early: EarlyCalls = attrs.field(factory=EarlyCalls)
    modules: dict[str, fx.GraphModule] = attrs.field(factory=dict)
    overrides: Overrides = attrs.field(factory=Overrides)
    _guards: GuardRecorder | None = None
    _globals: dict[tuple[int, str], Value] = attrs.field(factory=dict)
    _constants: dict[int, tuple[object, Value]] = attrs.field(factory=dict)
    _plans: dict[int, calls.Plan] = attrs.field(factory=dict)

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

    def code_constant(self, obj: object) -> Value:
        """The value of a constant of a code object: the same object gives the same value."""
        held = self._constants.get(id(obj))
        if held is None:
            held = self._constants[id(obj)] = (obj, self.constant(obj))
        return held[1]

    def remember(self, obj: object, value: V) -> V:
        """Keep the value of an object that has an identity."""
        self.by_id[id(obj)] = (obj, value)
        return value

    def remember_value(self, obj: Held, value: Value) -> Held:
        """Keep the value that an object stands for."""
        self.by_id[id(obj)] = (obj, value)
        return obj

    def iterator(self, value: Value) -> Value:
        """`iter(value)`."""
        return iteration.iterator(self, value)

    def unpack(self, value: Value) -> list[Value]:
        """All items of an iterable."""
        return list(value.stream(self))

    def taken(self, value: Value) -> Iterator[Value]:
        """The items of an iterable, of which Python makes a list or tuple."""
        return iteration.taken(self, value)

    def in_sequence(self, value: Value, refusal: str) -> list[Value]:
        """The items of a list or tuple, or of a list that Python makes of an iterator; `refusal`: of what is none."""
        return iteration.in_sequence(self, value, refusal)

    # Dicts of the program.

    def module_variables(self, namespace: dict[str, object]) -> DictValue:
        """The variables of a module as a dict, which is not to be changed."""
        held = self.by_id.get(id(namespace))
        if held is not None and isinstance(held[1], DictValue):
            return held[1]
        source = ObjectSource(namespace, "globals()")
        return self.remember(namespace, DictValue({}, dict, None, namespace, fixed=True, source=source))

    # Guards.

    # Globals.

    def load_global(self, frame: Frame, name: str) -> Value:
        """A global or builtin of a frame."""
        key = (id(frame.namespace), name)
        if self.effects.globals_:
            stored = self.effects.global_of(frame.namespace, name)
            if stored is not None:
                return stored[1] or self._builtin(frame, name)
        if key not in self._globals:
            self._globals[key] = self._wrap_global(frame, name)
        return self._globals[key]

    def _wrap_global(self, frame: Frame, name: str) -> Value:
        namespace = frame.namespace
        if name not in namespace:
            if not frame.trusted:
                source = frame.globals_source or ObjectSource(namespace, "globals()")
                self.guards.absent(source, name)
            return self._builtin(frame, name)
        obj = namespace[name]
        if frame.trusted or trusted_module(str(namespace.get("__name__", ""))):
            return wrap(self, obj, ObjectSource(obj, f"{namespace.get('__name__')}.{name}"))
        if frame.globals_source is None:
            return wrap(self, obj, GlobalSource(name))
        return wrap(self, obj, ItemSource(frame.globals_source, name))

    def _builtin(self, frame: Frame, name: str) -> Value:
        source = self.guards.builtin(frame.builtins, name)
        if source is None:
            self.raise_error(NameError, f"name '{name}' is not defined")
        return wrap(self, frame.builtins[name], source)

    # Calls.

    def call_object(self, fn: Callable[..., Any], value: Value, args: Args, kwargs: Kwargs) -> Value:
        """Call a Python function or one written in C, as handlers, polyfills and rules say."""
        return calls.call_object(self, fn, value, args, kwargs)

    def instantiate(self, value: ClassValue, args: Args, kwargs: Kwargs) -> Value:
        """Make an object of a class by `__new__` and `__init__`."""
        return calls.instantiate(self, value, args, kwargs)

    def call_class(self, value: ClassValue, args: Args, kwargs: Kwargs) -> Value:
        """Call a class."""
        return calls.call_class(self, value, args, kwargs)

    def handled(self, fn: object, args: Args, kwargs: Kwargs) -> Value | None:
        """What a handler or polyfill of `fn` gives, None when there is none or it declines."""
        return calls.handled(self, self.plan(fn), args, kwargs)

    def plan(self, fn: object) -> calls.Plan:
        """What plugins say of a callable; asked once."""
        known = self._plans.get(id(fn))
        if known is None:
            known = self._plans[id(fn)] = calls.plan_for(self, fn)
        return known

    def has_handler(self, fn: object) -> bool:
        """Whether a handler or a polyfill knows a callable."""
        plan = self.plan(fn)
        return plan.handler is not None or plan.polyfill is not None

    def goes_first(self, fn: object) -> bool:
        """Whether a handler, a polyfill, or a rule that goes before these, knows a callable."""
        return self.plan(fn).speaks

    def verdict(self, fn: object) -> Verdict:
        """What the rules say of a callable. That it was asked for is kept: the code is as good as the answer."""
        self.ctx.asked[id(fn)] = fn
        return self.tables.rule_book.verdict(fn)  # type: ignore[no-any-return]

    def inline_closure(self, function: ClosureValue, args: Args, kwargs: Kwargs) -> Value:
        """Call a function made in the frame."""
        return inlining.inline_closure(self, function, args, kwargs)

    def inline_python(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
        """Trace into a Python function that stands in for another."""
        return calls.inline_python(self, fn, args, kwargs)

    def call_whole(self, fn: Value | Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
        """Trace into a function; what breaks in it breaks at the call of it."""
        return calls.call_whole(self, fn, args, kwargs)

    def resume(self, frame: Frame) -> Value:
        """Run a suspended frame to its next value."""
        return inlining.run_frame(self, frame)

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

    def index(self, value: Value) -> Value:
        """`operator.index(value)` of an object that has `__index__`; any other value as it is."""
        if not isinstance(value, UserObjectValue) or issubclass(value.cls, int):
            return value
        method = value.method(self, "__index__")
        return value if method is None else operators.must_be_int(self, method.call(self, (), {}))

    def method_or_none(self, owner: Value, name: str) -> Value | None:
        """A special method as the language looks it up, in the class only; None when the class has none."""
        return owner.method(self, name) if isinstance(owner, UserObjectValue) else None

    def iterates_plainly(self, value: Value) -> bool:
        """Whether the class of an object derives from a builtin type and iterates as that does."""
        return value.base is not None and not overrides(value.python_type(), "__iter__")

    def has_attribute(self, value: Value, name: str) -> bool:
        """Whether an object has an attribute. Of one of the program's classes it is read, as C code does."""
        if isinstance(value, UserObjectValue):
            return self.attribute_or_none(value, name) is not None
        return hasattr(value.python_type(), name)

    def new_instance_dict(self, owner: UserObjectValue | ClosureValue) -> DictValue:
        """`owner.__dict__` as the program has it."""
        if isinstance(owner, ClosureValue) or owner.obj is None:
            return DictValue({}, instance=owner)
        real, source = dict_of(owner.obj), DictOfSource(owner.source or object_source(owner.obj))
        made = DictValue({}, dict, None, real, source=source)
        return self.wrap(real, source) if id(real) in self.by_id else self.remember(real, made)  # type: ignore[return-value]

    def class_attribute(self, owner: Value, cls: type, name: str) -> Value:
        """An attribute that the classes of an object know."""
        return class_attribute(self, owner, cls, name)

    def attribute_or_none(self, value: Value, name: str) -> Value | None:
        """An attribute, None where reading it raises AttributeError."""
        try:
            return value.get_attribute(self, name)
        except UserRaised as raised:
            if issubclass(raised.value.python_type(), AttributeError):
                return None
            raise

    # Operators.

    def operate(self, name: str, left: Value, right: Value) -> Value:
        """`left <op> right`."""
        return operators.operate(self, name, left, right)

    def operate_in_place(self, name: str, left: Value, right: Value) -> Value:
        """`left <op>= right`."""
        return operators.operate_in_place(self, name, left, right)

    def operate_unary(self, name: str, value: Value) -> Value:
        """`-value` and the like."""
        return operators.operate_unary(self, name, value)

    def compare(self, op: str, left: Value, right: Value) -> Value:
        """A comparison."""
        return operators.compare(self, op, left, right)

    def same_or_equal(self, left: Value, right: Value) -> bool:
        """How containers compare members."""
        return operators.same_or_equal(self, left, right)

    def identical(self, left: Value, right: Value) -> bool:
        """`left is right`."""
        return operators.identical(self, left, right)

    def text_of(self, value: Value, convert: Callable[..., str], spec: Value | None = None) -> Value:
        """`str(value)` and the like."""
        return text.text_of(self, value, convert, spec)

    def format_method(self, template: str, args: Args, kwargs: Kwargs) -> Value:
        """`template.format(*args, **kwargs)`."""
        return text.format_method(self, template, args, kwargs)

    def join_text(self, parts: list[Value]) -> Value:
        """The parts of an f-string in one."""
        return text.join(parts)

    # Effects, exceptions, breaks.

    def mutate(self, value: Value) -> None:
        """The object of the value is about to change."""
        if isinstance(value.source, ObjectSource) and isinstance(value, DictValue) and value.fixed:
            self.graph_break("unsupported-mutation", operation="changing globals()", type=value.describe())
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
            value = self.call_class(value, (), {})
        if not isinstance(value, ExceptionValue):
            self.graph_break("unsupported-operation", operation="raise", type=value.describe())
        return value

    def graph_break(self, type_id: str, **facts: object) -> NoReturn:
        """Stop: this can't go in one graph."""
        try:
            kind: BreakType = self.tables.break_type(type_id)
        except UnknownBreakType:
            named = ", ".join(f"{name}: {{{name}}}" for name in facts)
            kind = BreakType(type_id, type_id, named or type_id, ("No plugin describes this break.",))
        event = BreakEvent(kind, facts, self.where.summaries(), values=self.where.values())
        raise GraphBreak(event, places_of(self.frames))

    # Where we are.

    def origin(self) -> tuple[FrameSummary, str, str]:
        """The innermost line of the user's code: its summary, its text as in a traceback, and "model.py:41"."""
        return self.where.origin()
