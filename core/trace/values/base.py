"""What the tracer pushes on its stack: a value stands for a Python object of the traced program."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeAlias, TypeVar

import attrs

from armature.introspection import MISSING, class_member
from armature.trace import effects, protocols
from armature.trace.emit import object_writer
from armature.trace.semantics.slots import LACKING, is_iterable
from armature.trace.signals import TraceSignal

if TYPE_CHECKING:
    from torch import fx

    from armature.breaks.types import FrameSummary
    from armature.config import Config
    from armature.frame.data import FrameRequest
    from armature.frame.sources import Source
    from armature.torch_abi.fake import FakeWorld
    from armature.trace.guards import GuardRecorder

Args = Sequence["Value"]
Kwargs = Mapping[str, "Value"]
V = TypeVar("V", bound="Value")


class NotConstant(TraceSignal):
    """A value is not a constant of the traced program."""


class Described:
    """What people, and a search for what an object leads to, see of a value."""

    __slots__ = ()

    def python_type(self) -> type:
        """`type(obj)`."""
        raise NotImplementedError(type(self).__name__)

    def describe(self) -> str:
        """For people, in break reports."""
        return f"a {self.python_type().__name__}"

    def contents(self) -> object:
        """What the object holds, which keeps that alive: a value, or values in lists, tuples and mappings."""
        return ()


@attrs.define(eq=False)
class Value(Described):
    """Base of all values. `source` says where the object can be loaded again, None for one made while tracing.

    Plugins subclass this for third-party types and override the verbs that the type supports; a verb that is not
    overridden breaks the graph with a catalogue id. `tracer` arguments give access to the graph, guards and tables.

    One Python object that has an identity (a list, a module, a tensor) is one Value: `is` on objects is `is` on values.
    """

    source: Source | None = attrs.field(default=None, kw_only=True)
    # Of an object whose class derives from a builtin type: the value of what it is as an object of that type.
    base: Value | None = attrs.field(default=None, kw_only=True)

    is_tensor: ClassVar[bool] = False
    is_constant: ClassVar[bool] = False
    is_symbolic: ClassVar[bool] = False  # a number that only a call will tell
    plain_items: ClassVar[bool] = False  # iterating it runs no code of the program, and does not raise
    mutable: ClassVar[bool] = False  # an object that is made anew must be made once, however often it is used

    # What it is.

    @property
    def outlives_frame(self) -> bool:
        """Whether its object is the program's, and not made in the frame."""
        return self.source is not None

    def as_constant(self) -> Any:
        """The Python object, where tracing knows it whole (also lists and slices of constants). Raises NotConstant.

        Any: of which type it is, the program decides.
        """
        raise NotConstant(self)

    def as_argument(self, tracer: Tracing) -> object:
        """What stands for it among the arguments of an FX node: a node, a constant, or a nest of these."""
        try:
            return self.as_constant()
        except NotConstant:
            tracer.graph_break("argument-not-in-graph", type=self.describe())

    def as_fake(self, tracer: Tracing) -> object:
        """What stands for it when a graph call is run on fake tensors."""
        return self.as_argument(tracer)

    def as_object(self) -> Any:
        """The Python object it stands for, as an identity (a function, class or module). Raises NotConstant."""
        return self.as_constant()

    def as_key(self) -> object:
        """The Python object, for a look-up in a dict of the program by its identity or value. Raises NotConstant."""
        return self.as_object()

    def key(self, tracer: Tracing) -> Hashable:
        """What stands for it as the key of a dict or member of a set: equal keys are equal objects."""
        try:
            constant: Hashable = self.as_constant()
            hash(constant)
        except (NotConstant, TypeError):
            tracer.graph_break("key-of-dict", type=self.describe())
        if is_nan(constant):
            tracer.graph_break("nan-as-key")
        return constant

    def rely_on(self, tracer: Tracing) -> None:
        """Guard that the same object comes next time, an equal one where it is a constant."""
        if self.source is None:
            return
        if self.is_symbolic:
            self.as_constant()
        elif self.is_constant:
            tracer.guards.equal(self.source, self.as_constant())
        else:
            tracer.guards.same(self.source, self.as_object())

    # Attributes, items, calls.

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        """`obj.name`."""
        tracer.graph_break("attribute-of-value", name=name, type=self.describe())

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        """`obj.name = value`."""
        tracer.graph_break("sets-attribute", name=name, type=self.describe())

    def delete_attribute(self, tracer: Tracing, name: str) -> None:
        """`del obj.name`."""
        tracer.graph_break("deletes-attribute", name=name, type=self.describe())

    def open_dict(self, tracer: Tracing) -> Value:
        """The `__dict__`, in which all attributes are looked up from then on."""
        tracer.graph_break("dict-of-object", type=self.describe())

    def get_item(self, tracer: Tracing, key: Value) -> Value:
        """`obj[key]`."""
        return self.call_method(tracer, "__getitem__", (key,), {})

    def set_item(self, tracer: Tracing, key: Value, value: Value) -> None:
        """`obj[key] = value`."""
        self.call_method(tracer, "__setitem__", (key, value), {})

    def delete_item(self, tracer: Tracing, key: Value) -> None:
        """`del obj[key]`."""
        self.call_method(tracer, "__delitem__", (key,), {})

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        """`obj(*args, **kwargs)`."""
        tracer.graph_break("call-of-object", type=self.describe())

    def direct_code(self, tracer: Tracing) -> CodeType | None:
        """The code of which a frame is all there is to a call of it, None when there is none or more than that."""
        return None

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        """`obj.name(*args, **kwargs)`."""
        tracer.graph_break("method-of-value", name=name, type=self.describe())

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        """What the method of an operator gives ("__add__", "__radd__", "__iadd__", "__lt__"); None: NotImplemented.

        Which operand is asked first is no matter of the value: see `semantics/slots.py`.
        """
        return None

    # Protocols.

    def truth(self, tracer: Tracing) -> bool:
        """`bool(obj)`."""
        return True

    def length(self, tracer: Tracing) -> int:
        """`len(obj)`."""
        tracer.graph_break("length-of-object", type=self.describe())

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        """The values that iterating gives, one by one; what the program changes meanwhile is seen."""
        tracer.graph_break("iteration-of-object", type=self.describe())

    def contains(self, tracer: Tracing, item: Value) -> bool:
        """`item in obj`."""
        if class_member(self.python_type(), "__contains__") is MISSING and not is_iterable(self.python_type()):
            raise_lacking(tracer, self, "__contains__")
        return any(tracer.python.same_or_equal(other, item) for other in self.stream(tracer))

    # The end of the frame.

    def rebuild(self, out: Rebuilding) -> None:
        """Emit bytecode that pushes the object. Called only for values without a source."""
        out.cannot(self)

    def writes(self, out: Rebuilding) -> list[Write]:
        """The calls that bring an object of the program, which the frame has changed, to its last state."""
        out.cannot(self)


class Tracing(Protocol):
    """The trace as values, handlers and value types see it: verbs, and the parts that know what was traced.

    A verb that stands for something the program does may raise `UserRaised` (the program raises) and `GraphBreak`.

    guards: what the compiled code relies on. effects: what the frame has changed. frames: those being traced, the
    outermost first. graph: the FX graph as far as it has grown. fakes: makes fake tensors. request: the frame to
    compile. config: the settings. overrides: who overrides torch's functions. sizes: symbolic numbers. precalls: calls
    before the graph. by_id: values of objects that have an identity, with the objects. by_fake: tensors by the ids of
    their fakes. keys: looked up in dicts and sets by their identity. class_values: of attributes of classes.
    held_weakly: objects of weak references made; whether one calls back. end_checks: called where the graph ends, with
    the frame and what it returns, or with None at a break: whether the code may be used.
    on_abort: functions and arguments that take back what tracing has done to torch's state, if it ends here.
    atomic_depth: how many calls are being traced that go in the graph whole or not at all; subgraph_depth: of these,
    calls whose nodes go in graphs of their own. subgraph_tensors: made in such a call, with where that was. modules:
    graphs that nodes call. mutates: whether an operator
    in place is in the graph. cells: of functions of the program, by id. called: ids of modules that were called before.
    own_lookups: of objects whose classes look up attributes themselves. keeps_floats: whether arguments that are floats
    of the program stay nodes. rewrites: put other arguments in the place of those of a call that goes in the graph, by
    the name of what it calls.
    """

    effects: Effects
    frames: Sequence[FrameView]
    graph: fx.Graph
    fakes: FakeWorld
    request: FrameRequest
    overrides: OverridingNow
    sizes: SymbolicSizes
    precalls: Precalls
    by_id: dict[int, tuple[object, Value]]
    by_fake: dict[int, Any]
    floats: dict[Source, Any]
    own_lookups: set[Source]
    keys: dict[Value, None]
    class_values: dict[Hashable, Value]
    cells: dict[int, Any]
    called: set[int]
    held_weakly: dict[Value, bool]
    end_checks: dict[EndCheck, None]
    on_abort: list[tuple[Callable[[Any], Any], Any]]
    atomic_depth: int
    subgraph_depth: int
    subgraph_tensors: dict[Any, Any]
    modules: dict[str, fx.GraphModule]
    mutates: bool
    keeps_floats: bool
    rewrites: dict[Callable[[str, Args, Kwargs], tuple[Args, Kwargs]], None]

    @property
    def python(self) -> PythonVerbs:
        """What Python does with values."""

    @property
    def calls(self) -> CallVerbs:
        """Calls of functions and classes that are known as objects."""

    @property
    def guards(self) -> GuardRecorder:
        """What the compiled code relies on."""

    @property
    def config(self) -> Config:
        """The settings of this compilation."""

    # Making values.

    def wrap(self, obj: object, source: Source) -> Value:
        """The value of an object of the program found at `source`, with the guards that it needs."""

    def as_value(self, obj: object) -> Value:
        """The value of an object made or found by tracing itself; a Value stays as it is."""

    def constant(self, obj: object) -> Value:
        """The value of a constant: an int, str, None, dtype, device, torch.Size, tuples of these, ..."""

    def remember(self, obj: object, value: V) -> V:
        """Keep the value of an object that has an identity; wrapping the object gives this value from then on."""

    # What the program does.

    def unpack(self, value: Value) -> list[Value]:
        """All items of an iterable."""

    def mutate(self, value: Value) -> None:
        """The object of the value is about to change: to be told before each change."""

    # The graph.

    def graph_call(
        self, fn: Callable[..., Any] | str, args: Args, kwargs: Kwargs, fake: Callable[..., Any] | None = None
    ) -> Value:
        """Put a call in the graph; its result is known from a run of it, or of `fake`, on fake tensors."""

    def state_call(self, fn: Callable[..., Any], arguments: tuple[Any, ...], leave: Any = None) -> fx.Node:
        """Put a call that changes torch's state in the graph; arguments are constants, nodes. leave: takes it back."""

    # Errors.

    def raise_error(self, kind: type[BaseException], message: str) -> NoReturn:
        """The program raises `kind(message)` here."""

    def raise_value(self, kind: type[BaseException], args: tuple[Value, ...]) -> NoReturn:
        """The program raises `kind(*args)` here."""

    def raise_real(self, error: Exception) -> NoReturn:
        """The program raises what a function run on constants has raised."""

    def graph_break(self, type_id: str, **facts: object) -> NoReturn:
        """Stop: this can't go in one graph. The break type of the catalogue, and the facts its explanation names."""

    # Verbs of values.

    def new_instance_dict(self, owner: Any) -> Any:
        """`owner.__dict__` as the program has it."""

    def dispatched(self, fn: Callable[..., Any] | str, args: Args, kwargs: Kwargs) -> Value | None:
        """What `__torch_function__` of modes or of arguments makes of a call; None: nobody takes it over."""

    def lift(self, value: Any) -> fx.Node:
        """The graph input of a tensor or int of the program."""

    def as_exception(self, value: Value) -> Any:
        """The exception to raise for the operand of `raise`."""

    def origin(self) -> tuple[FrameSummary, str, str]:
        """The innermost line of the user's code: its summary, its text as in a traceback, and "model.py:41"."""

    def expression(self) -> str:
        """The expression of the user's code that is run: its text, as far as it stands on one line."""


@attrs.frozen(eq=False)
class Write:
    """A call of a function written in C on values: `function(*operands)`, made after the graph has run."""

    function: Callable[..., object]
    operands: tuple[Value, ...]


FrameView: TypeAlias = "protocols.FrameView[Value]"
EndCheck: TypeAlias = Callable[[Tracing, "FrameView | None", Value | None], None]
Effects: TypeAlias = "effects.Effects[Value, Write]"
OverridingNow: TypeAlias = "protocols.OverridingNow[Value, Write, Tracing]"
SymbolicSizes: TypeAlias = "protocols.SymbolicSizes[Value]"
Precalls: TypeAlias = "effects.Precalls[Value]"
PythonVerbs: TypeAlias = "protocols.PythonVerbs[Value]"
CallVerbs: TypeAlias = "protocols.CallVerbs[Value]"
Rebuilding: TypeAlias = "object_writer.ObjectWriter[Value, Write, Tracing]"


IMMUTABLE = 1 << 8  # in the flags of a class: written in C, so its errors give its module as well
METHOD_TYPES: dict[type, type] = {WrapperDescriptorType: MethodWrapperType, FunctionType: MethodType}


def shares_dict(tracer: Tracing, owner: Value, held: dict[str, object]) -> bool:
    """Whether the frame has the dict of an object by another way too: then attributes are looked up in its value.

    Where it only comes later, wrapping it sees to that.
    """
    tracer.effects.owners[id(held)] = owner
    if id(held) not in tracer.by_id:
        return False
    owner.open_dict(tracer)
    return True


def is_nan(constant: object) -> bool:
    """Whether it is found by what object it is, and there is a new one each time that it is computed."""
    if isinstance(constant, (tuple, frozenset)):
        return any(map(is_nan, constant))
    return isinstance(constant, (float, complex)) and constant != constant


def says_not_implemented(result: Value) -> bool:
    """Whether the method of an operator leaves the answer to the other operand (data model, 3.3.8)."""
    return result.is_constant and result.as_constant() is NotImplemented


def unless_not_implemented(result: Value) -> Value | None:
    """What the method of an operator gave, None where that is NotImplemented."""
    return None if says_not_implemented(result) else result


def raise_lacking(tracer: Tracing, value: Value, method: str) -> NoReturn:
    """The TypeError of the program for an operation whose special method the class of an object does not have."""
    text = LACKING.get(method, f"'{{0}}' object does not support {method}")
    tracer.raise_error(TypeError, text.format(type_name(value.python_type())))


def raise_unordered(tracer: Tracing, symbol: str, left: Value, right: Value) -> NoReturn:
    """The TypeError of the program for `left <op> right`, of objects that have no order."""
    kinds = f"'{type_name(left.python_type())}' and '{type_name(right.python_type())}'"
    tracer.raise_error(TypeError, f"'{symbol}' not supported between instances of {kinds}")


def type_name(kind: type) -> str:
    """A class as errors of CPython call it."""
    qualified = kind.__flags__ & IMMUTABLE and kind.__module__ != "builtins"
    return f"{kind.__module__}.{kind.__qualname__}" if qualified else kind.__name__


def raise_missing(tracer: Tracing, kind: type, name: str) -> NoReturn:
    """The AttributeError of the program for an attribute that its object has not."""
    tracer.raise_error(AttributeError, f"'{type_name(kind)}' object has no attribute '{name}'")


def attribute_of_builtin(tracer: Tracing, value: Value, name: str) -> Value:
    """`value.name`, of an object without attributes of its own whose class is written in C."""
    kind = value.python_type()
    if name == "__class__":
        return tracer.as_value(kind)
    held = class_member(kind, name)
    if held is MISSING:
        raise_missing(tracer, kind, name)
    if callable(held) or isinstance(held, staticmethod | classmethod):
        return BoundMethod(value, name)
    if hasattr(type(held), "__get__"):
        tracer.graph_break("attribute-in-c", name=name, type=value.describe())
    return tracer.as_value(held)


@attrs.define(eq=False)
class BoundMethod(Value):
    """`owner.name`, looked up and not yet called, of a value that answers `call_method`."""

    owner: Value
    name: str

    def python_type(self) -> type:
        return METHOD_TYPES.get(type(class_member(self.owner.python_type(), self.name)), BuiltinFunctionType)

    def describe(self) -> str:
        return f"method {self.name} of {self.owner.describe()}"

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        if not tracer.python.takes(class_member(self.owner.python_type(), self.name), 1 + len(args), kwargs):
            tracer.graph_break("method-arguments", function=self.describe())
        return self.owner.call_method(tracer, self.name, args, kwargs)

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return tracer.constant(self.name)
        return super().get_attribute(tracer, name)

    def rebuild(self, out: Rebuilding) -> None:
        out.load(self.owner)
        out.attribute(self.name)


@attrs.define(eq=False)
class Null(Value):
    """The NULL that calls of CPython 3.11 and later put on the stack."""

    def python_type(self) -> type:
        return type(None)


NULL = Null()
OF_METHOD = Null()  # beside what LOAD_METHOD found: CPython calls the function of a class with the object


@attrs.define(eq=False)
class LastInstruction(Value):
    """The offset of the instruction that raised, on the stack of a handler. Only RERAISE takes it."""

    def python_type(self) -> type:
        return int


LAST_INSTRUCTION = LastInstruction()
