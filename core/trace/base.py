"""The values on the interpreter's stack: each represents a Python object of the traced program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, MethodWrapperType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeAlias

import attrs

from armature.errors import UndeclaredSlots
from armature.introspection import MISSING, class_member
from armature.trace import effects, objects, protocols, recorder, type_rules
from armature.trace.bytecode import object_writer
from armature.trace.signals import TraceSignal
from armature.trace.slots import LACKING, VERBS, is_iterable

if TYPE_CHECKING:
    from armature.config import Config
    from armature.frame.data import FrameRequest
    from armature.frame.sources import Source
    from armature.torch_abi.fake import FakeWorld
    from armature.trace.guards import GuardRecorder

Args = Sequence["Value"]
Kwargs = Mapping[str, "Value"]


class NotConstant(TraceSignal):
    """A value is not a constant of the traced program."""


class Described:
    """The part of a value that reports and searches of the object graph need."""

    __slots__ = ()

    def python_type(self) -> type:
        """`type(obj)`."""
        raise NotImplementedError(type(self).__name__)

    def describe(self) -> str:
        """The text that break reports show to people."""
        return f"a {self.python_type().__name__}"

    def contents(self) -> object:
        """Values that the object keeps alive: a value, or values in lists, tuples and mappings."""
        return ()


class Operations(Described):
    """The operations of the language, each by a verb that a value class may override if it declares a slot for it."""

    __slots__ = ()

    is_constant: ClassVar[bool] = False
    # The slots (`slots.py`) that the objects support: an operation uses no others.
    slots: ClassVar[frozenset[str]] = frozenset()

    def get_item(self, tracer: Tracing, key: Value) -> Value:
        """`obj[key]`."""
        return self.by_method(tracer, "__getitem__", key)

    def set_item(self, tracer: Tracing, key: Value, value: Value) -> None:
        """`obj[key] = value`."""
        self.by_method(tracer, "__setitem__", key, value)

    def delete_item(self, tracer: Tracing, key: Value) -> None:
        """`del obj[key]`."""
        self.by_method(tracer, "__delitem__", key)

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        """`obj(*args, **kwargs)`."""
        if self.is_constant:
            raise_lacking(tracer, self, "__call__")
        tracer.graph_break("call-of-object", type=self.describe())

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        """`obj.name(*args, **kwargs)`."""
        tracer.graph_break("method-of-value", name=name, type=self.describe())

    def by_method(self, tracer: Tracing, name: str, *args: Value) -> Value:
        """An operation of the language by the method for it, if that is in `slots`."""
        if class_member(self.python_type(), name) is MISSING:
            raise_lacking(tracer, self, name)
        if name not in self.slots:
            tracer.graph_break("method-of-value", name=name, type=self.describe())
        return self.call_method(tracer, name, args, {})

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        """The result of an operator's method ("__add__", "__radd__", "__iadd__", "__lt__"), one of those in `slots`.
        None stands for NotImplemented. The order of the operands is decided in `slots.py`."""
        return None

    def unary(self, tracer: Tracing, name: str) -> Value:
        """The result of a unary operator's method ("__neg__")."""
        return self.by_method(tracer, name)

    def truth(self, tracer: Tracing) -> bool:
        """`bool(obj)`: without `__bool__` by the length, without that True (data model, 3.3.1)."""
        return truth_of(tracer, self, None, "__len__" in self.slots)

    def length(self, tracer: Tracing) -> int:
        """`len(obj)`."""
        tracer.graph_break("length-of-object", type=self.describe())

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        """The values that iterating yields, one by one; changes that the program makes meanwhile are seen."""
        tracer.graph_break("iteration-of-object", type=self.describe())

    def advance(self, tracer: Tracing) -> Value:
        """`next(obj)`. Raises StopIteration of the tracer itself, not of the program."""
        return next(self.stream(tracer))

    def backwards(self, tracer: Tracing) -> Iterator[Value] | None:
        """The values in reverse order; None if its class has no `__reversed__`."""
        return None

    def contains(self, tracer: Tracing, item: Value) -> bool:
        """`item in obj`."""
        if class_member(self.python_type(), "__contains__") is MISSING and not is_iterable(self.python_type()):
            raise_lacking(tracer, self, "__contains__")
        return any(tracer.python.same_or_equal(other, item) for other in self.stream(tracer))


@attrs.define(eq=False)
class Value(Operations):
    """Base class of all values. `source` says where the object can be loaded again; None for an object made while
    tracing.

    Plugins subclass this for third-party types, declare in `slots` which operations of the language the type supports,
    and override the verbs; a verb that is not overridden breaks the graph. `tracer` arguments give access to the
    graph, guards and tables.

    A Python object that has an identity (a list, a module, a tensor) is represented by exactly one Value: `is` on
    objects is `is` on values.
    """

    source: Source | None = attrs.field(default=None, kw_only=True)
    # The value of the builtin part of an object whose class derives from a builtin type.
    base: Value | None = attrs.field(default=None, kw_only=True)

    is_tensor: ClassVar[bool] = False
    is_symbolic: ClassVar[bool] = False  # a number that is only known at run time
    is_choice: ClassVar[bool] = False  # one of several objects; operators with it are its own
    plain_items: ClassVar[bool] = False  # iterating it runs no code of the program, and does not raise
    mutable: ClassVar[bool] = False  # has an identity, so it must be rebuilt once, however often it is used

    def __init_subclass__(cls) -> None:
        declared = {VERBS.get(name) for name in cls.slots}
        if unknown := sorted(cls.slots - VERBS.keys()):
            raise UndeclaredSlots(name=cls.__qualname__, problem=f"declares unknown slots: {', '.join(unknown)}")
        if undeclared := sorted({verb for verb in VERBS.values() if verb in vars(cls)} - declared):
            problem = f"declares no slot for what it overrides: {', '.join(undeclared)}"
            raise UndeclaredSlots(name=cls.__qualname__, problem=problem)

    # Identity and kind.

    @property
    def outlives_frame(self) -> bool:
        """Whether its object belongs to the program, rather than being made in the frame."""
        return self.source is not None

    def as_constant(self) -> Any:
        """The Python object, if tracing knows it completely (also lists and slices of constants). Raises NotConstant.

        Returns Any because the program decides the type.
        """
        raise NotConstant(self)

    def as_argument(self, tracer: Tracing) -> object:
        """Its representation among the arguments of an FX node: a node, a constant, or a nest of these."""
        try:
            return self.as_constant()
        except NotConstant:
            tracer.graph_break("argument-not-in-graph", type=self.describe())

    def as_fake(self, tracer: Tracing) -> object:
        """Its representation when a graph call is run on fake tensors."""
        return self.as_argument(tracer)

    def as_object(self) -> Any:
        """The Python object itself, if it is known by identity (a function, class or module). Raises NotConstant."""
        return self.as_constant()

    def as_key(self) -> object:
        """The Python object, for lookup in a dict of the program by identity or value. Raises NotConstant."""
        return self.as_object()

    def key(self, tracer: Tracing) -> Hashable:
        """Its representation as a dict key or set member: keys are equal exactly if the objects are."""
        if class_member(self.python_type(), "__hash__") is None:
            raise_lacking(tracer, self, "__hash__")
        try:
            constant: Hashable = self.as_constant()
            hash(constant)
        except (NotConstant, TypeError):
            tracer.graph_break("key-of-dict", type=self.describe())
        if is_nan(constant):
            tracer.graph_break("nan-as-key")
        return constant

    def rely_on(self, tracer: Tracing) -> None:
        """Guard that the next call sees the same object, or an equal one if it is a constant."""
        if self.source is None:
            return
        if self.is_symbolic:
            self.as_constant()
        elif self.is_constant:
            tracer.guards.equal(self.source, self.as_constant())
        else:
            tracer.guards.same(self.source, self.as_key())

    # Attributes.

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
        """The `__dict__`. From then on, attributes are looked up in it."""
        tracer.graph_break("dict-of-object", type=self.describe())

    def direct_code(self, tracer: Tracing) -> CodeType | None:
        """The code whose frame is the entire effect of calling it; None if there is none or the call does more."""
        return None

    # The end of the frame.

    def rebuild(self, out: Rebuilding) -> None:
        """Emit bytecode that pushes the object. Called only for values without a source."""
        out.cannot(self)

    def writes(self, out: Rebuilding) -> list[Write]:
        """The calls that bring an object of the program, which the frame has changed, to its final state."""
        out.cannot(self)


class Tracing(Protocol):
    """The trace as values, handlers and value types see it: its verbs and parts.

    A verb that does something on the program's behalf may raise `UserRaised` (the program raises) and `GraphBreak`.

    guards: the facts that the compiled code relies on. effects: the frame's deferred changes. objects: the values of
    the program's objects. stack: the frames being traced. recorder: the graph so far. sizes: symbolic numbers.
    overrides: the `__torch_function__` overrides in effect. precalls: calls before the graph. ending: what to undo and
    to check at the end. fakes: makes fake tensors. types: what classes inherit from types written in C. request: the
    frame to compile. config: the settings.
    """

    request: FrameRequest
    config: Config
    fakes: FakeWorld
    types: TypeRules
    guards: GuardRecorder
    effects: Effects
    objects: Objects
    stack: FramesNow
    recorder: Recorder
    sizes: SymbolicSizes
    overrides: OverridingNow
    precalls: Precalls
    ending: Ending

    @property
    def python(self) -> PythonVerbs:
        """Python's semantics for values."""

    @property
    def calls(self) -> CallVerbs:
        """Calls of functions and classes that are known as objects."""

    @property
    def graph(self) -> GraphVerbs:
        """Nodes of the graph."""

    # Making values.

    def as_value(self, obj: object) -> Value:
        """The value of an object made or found by tracing itself; a Value is returned unchanged."""

    def constant(self, obj: object) -> Value:
        """The value of a constant: an int, str, None, dtype, device, torch.Size, tuples of these, ..."""

    # What the program does.

    def unpack(self, value: Value) -> list[Value]:
        """All items of an iterable."""

    def mutate(self, value: Value) -> None:
        """Record that the value's object is about to change; call it before each change."""

    # Errors.

    def raise_error(self, kind: type[BaseException], message: str) -> NoReturn:
        """Raise `kind(message)` in the program."""

    def raise_value(self, kind: type[BaseException], args: tuple[Value, ...]) -> NoReturn:
        """Raise `kind(*args)` in the program."""

    def raise_real(self, error: Exception) -> NoReturn:
        """Raise, in the program, an error that a function run on constants has raised."""

    def graph_break(self, type_id: str, **facts: object) -> NoReturn:
        """Break the graph here, with a break type of the catalogue and the facts for its explanation."""

    # Verbs for value classes.

    def new_instance_dict(self, owner: Any) -> Any:
        """`owner.__dict__` as the program has it."""

    def as_exception(self, value: Value) -> Any:
        """The exception to raise for the operand of `raise`."""


@attrs.frozen(eq=False)
class Write:
    """A call of a C function on values, `function(*operands)`, made after the graph has run."""

    function: Callable[..., object]
    operands: tuple[Value, ...]


FrameView: TypeAlias = "protocols.FrameView[Value]"
FramesNow: TypeAlias = "protocols.FramesNow[Value]"
EndCheck: TypeAlias = Callable[[Tracing, "FrameView | None", Value | None], None]
Effects: TypeAlias = "effects.Effects[Value, Write]"
Ending: TypeAlias = "effects.Ending[EndCheck]"
Recorder: TypeAlias = "recorder.GraphRecorder[Value, Any, Any]"
Objects: TypeAlias = "objects.Objects[Value, Any, Any]"
OverridingNow: TypeAlias = "protocols.OverridingNow[Value, Write]"
SymbolicSizes: TypeAlias = "protocols.SymbolicSizes[Value, Tracing]"
Precalls: TypeAlias = "effects.Precalls[Value]"
TypeRules: TypeAlias = "type_rules.TypeRules[Value]"
PythonVerbs: TypeAlias = "protocols.PythonVerbs[Value]"
CallVerbs: TypeAlias = "protocols.CallVerbs[Value]"
GraphVerbs: TypeAlias = "protocols.GraphVerbs[Value]"
Rebuilding: TypeAlias = "object_writer.ObjectWriter[Value, Write, Tracing]"


IMMUTABLE = 1 << 8  # class flag of types written in C, whose errors also name the module
METHOD_TYPES: dict[type, type] = {WrapperDescriptorType: MethodWrapperType, FunctionType: MethodType}


def shares_dict(tracer: Tracing, owner: Value, held: dict[str, object]) -> bool:
    """Whether the frame also has the object's `__dict__` as a value; then attributes are looked up in that value. If
    the dict is only found later, wrapping it takes care of that."""
    tracer.effects.owners[id(held)] = owner
    if id(held) not in tracer.objects.by_id:
        return False
    owner.open_dict(tracer)
    return True


def is_nan(constant: object) -> bool:
    """Whether containers find it by identity only (a NaN), so that a recomputed one is not found."""
    if isinstance(constant, (tuple, frozenset)):
        return any(map(is_nan, constant))
    return isinstance(constant, (float, complex)) and constant != constant


def is_not_implemented(result: Value) -> bool:
    """Whether an operator's method defers to the other operand (data model, 3.3.8)."""
    return result.is_constant and result.as_constant() is NotImplemented


def unless_not_implemented(result: Value) -> Value | None:
    """The result of an operator's method, or None for NotImplemented."""
    return None if is_not_implemented(result) else result


def refuse_result(tracer: Tracing, method: str, result: Value) -> NoReturn:
    """Break at a special method whose result CPython refuses, so that C code words the error."""
    tracer.graph_break("special-method-result", method=method, type=result.describe())


def truth_of(tracer: Tracing, value: Operations, made: Value | None, sized: bool) -> bool:
    """`bool(value)`. made: what its `__bool__` returned, None without one. sized: whether it has a `__len__`."""
    if made is None:
        return not sized or bool(value.length(tracer))
    return made.truth(tracer) if made.python_type() is bool else refuse_result(tracer, "__bool__", made)


def length_of(tracer: Tracing, made: Value) -> int:
    """The length that a `__len__` returned, which must be an integer of at least 0 (data model, 3.3.7)."""
    made = tracer.python.index(made)
    found: int = made.as_constant() if issubclass(made.python_type(), int) else -1
    return found if 0 <= found <= sys.maxsize else refuse_result(tracer, "__len__", made)


def raise_lacking(tracer: Tracing, value: Described, method: str) -> NoReturn:
    """Raise the program's TypeError for an operation whose special method the object's class lacks."""
    text = LACKING.get(method, f"'{{0}}' object does not support {method}")
    tracer.raise_error(TypeError, text.format(type_name(value.python_type())))


def raise_unordered(tracer: Tracing, symbol: str, left: Value, right: Value) -> NoReturn:
    """Raise the program's TypeError for `left <op> right` on objects that have no order."""
    kinds = f"'{type_name(left.python_type())}' and '{type_name(right.python_type())}'"
    tracer.raise_error(TypeError, f"'{symbol}' not supported between instances of {kinds}")


def type_name(kind: type) -> str:
    """A class's name as CPython's errors write it."""
    qualified = kind.__flags__ & IMMUTABLE and kind.__module__ != "builtins"
    return f"{kind.__module__}.{kind.__qualname__}" if qualified else kind.__name__


def raise_missing(tracer: Tracing, kind: type, name: str) -> NoReturn:
    """Raise the program's AttributeError for a missing attribute."""
    tracer.raise_error(AttributeError, f"'{type_name(kind)}' object has no attribute '{name}'")


def attribute_of_builtin(tracer: Tracing, value: Value, name: str) -> Value:
    """`value.name`, for an object without a `__dict__` whose class is written in C."""
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
    """`owner.name`, looked up but not yet called, for a value that implements `call_method`."""

    owner: Value
    name: str

    slots = frozenset({"__call__"})

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
    """The NULL that a call puts on the stack in CPython 3.11 and later."""

    def python_type(self) -> type:
        return type(None)


NULL = Null()
OF_METHOD = Null()  # next to the result of LOAD_METHOD: CPython passes the object to the class's function


@attrs.define(eq=False)
class LastInstruction(Value):
    """The offset of the instruction that raised, on a handler's stack. Only RERAISE uses it."""

    def python_type(self) -> type:
        return int


LAST_INSTRUCTION = LastInstruction()
