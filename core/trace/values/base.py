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
from typing import TYPE_CHECKING, ClassVar, NoReturn

import attrs

from armature.introspection import MISSING, class_member
from armature.trace.errors import NotConstant
from armature.trace.semantics.keywords import takes
from armature.trace.values.keys import is_nan

if TYPE_CHECKING:
    from armature.frame.sources import Source
    from armature.trace.emit.rebuild import Rebuilder
    from armature.trace.tracer import Tracer

Args = Sequence["Value"]
Kwargs = Mapping[str, "Value"]


@attrs.define(eq=False)
class Value:
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

    def python_type(self) -> type:
        """`type(obj)`."""
        raise NotImplementedError(type(self).__name__)

    def describe(self) -> str:
        """For people, in break reports."""
        return f"a {self.python_type().__name__}"

    def as_constant(self) -> object:
        """The Python object, where tracing knows it whole (also lists and slices of constants). Raises NotConstant."""
        raise NotConstant(self)

    def as_argument(self, tracer: Tracer) -> object:
        """What stands for it among the arguments of an FX node: a node, a constant, or a nest of these."""
        try:
            return self.as_constant()
        except NotConstant:
            tracer.graph_break("unsupported-argument", type=self.describe())

    def as_fake(self, tracer: Tracer) -> object:
        """What stands for it when a graph call is run on fake tensors."""
        return self.as_argument(tracer)

    def as_object(self) -> object:
        """The Python object it stands for, as an identity (a function, class or module). Raises NotConstant."""
        return self.as_constant()

    def as_key(self) -> object:
        """The Python object, for a look-up in a dict of the program by its identity or value. Raises NotConstant."""
        return self.as_object()

    def key(self, tracer: Tracer) -> Hashable:
        """What stands for it as the key of a dict or member of a set: equal keys are equal objects."""
        try:
            constant = self.as_constant()
            hash(constant)
        except (NotConstant, TypeError):
            tracer.graph_break("unsupported-key", type=self.describe())
        if is_nan(constant):
            tracer.graph_break("unsupported-key", type=self.describe())
        return constant

    # Attributes, items, calls.

    def get_attribute(self, tracer: Tracer, name: str) -> Value:
        """`obj.name`."""
        tracer.graph_break("unsupported-attribute", name=name, type=self.describe())

    def set_attribute(self, tracer: Tracer, name: str, value: Value) -> None:
        """`obj.name = value`."""
        tracer.graph_break("unsupported-mutation", operation=f"setting attribute {name}", type=self.describe())

    def delete_attribute(self, tracer: Tracer, name: str) -> None:
        """`del obj.name`."""
        tracer.graph_break("unsupported-mutation", operation=f"deleting attribute {name}", type=self.describe())

    def open_dict(self, tracer: Tracer) -> Value:
        """The `__dict__`, in which all attributes are looked up from then on."""
        tracer.graph_break("unsupported-attribute", name="__dict__", type=self.describe())

    def shares_dict(self, tracer: Tracer, held: dict[str, object]) -> bool:
        """Whether the frame has the dict of the object by another way too: then attributes are looked up in its value.

        Where it only comes later, wrapping it sees to that.
        """
        tracer.effects.owners[id(held)] = self
        if id(held) not in tracer.by_id:
            return False
        self.open_dict(tracer)
        return True

    def get_item(self, tracer: Tracer, key: Value) -> Value:
        """`obj[key]`."""
        return self.call_method(tracer, "__getitem__", (key,), {})

    def set_item(self, tracer: Tracer, key: Value, value: Value) -> None:
        """`obj[key] = value`."""
        self.call_method(tracer, "__setitem__", (key, value), {})

    def delete_item(self, tracer: Tracer, key: Value) -> None:
        """`del obj[key]`."""
        self.call_method(tracer, "__delitem__", (key,), {})

    def call(self, tracer: Tracer, args: Args, kwargs: Kwargs) -> Value:
        """`obj(*args, **kwargs)`."""
        tracer.graph_break("unsupported-call", callable=self.describe())

    def direct_code(self, tracer: Tracer) -> CodeType | None:
        """The code of which a frame is all there is to a call of it, None when there is none or more than that."""
        return None

    def call_method(self, tracer: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        """`obj.name(*args, **kwargs)`."""
        tracer.graph_break("unsupported-attribute", name=name, type=self.describe())

    def binary(self, tracer: Tracer, name: str, other: Value) -> Value | None:
        """`obj <op> other` by the method of this name ("__add__", "__radd__", "__lt__"); None: NotImplemented."""
        return None

    # Protocols.

    def truth(self, tracer: Tracer) -> bool:
        """`bool(obj)`."""
        return True

    def length(self, tracer: Tracer) -> int:
        """`len(obj)`."""
        tracer.graph_break("unsupported-operation", operation="len()", type=self.describe())

    def stream(self, tracer: Tracer) -> Iterator[Value]:
        """The values that iterating gives, one by one; what the program changes meanwhile is seen."""
        tracer.graph_break("unsupported-operation", operation="iteration", type=self.describe())

    def contains(self, tracer: Tracer, item: Value) -> bool:
        """`item in obj`."""
        if class_member(self.python_type(), "__contains__") is MISSING and not is_iterable(self.python_type()):
            raise_unsupported(tracer, self, "argument of type '{0}' is not iterable")
        return any(tracer.same_or_equal(other, item) for other in self.stream(tracer))

    # The end of the frame.

    def rebuild(self, out: Rebuilder) -> None:
        """Emit bytecode that pushes the object. Called only for values without a source."""
        out.cannot(self)

    def writes(self, out: Rebuilder) -> list[Write]:
        """The calls that bring an object of the program, which the frame has changed, to its last state."""
        out.cannot(self)


@attrs.frozen(eq=False)
class Write:
    """A call of a function written in C on values: `function(*operands)`, made after the graph has run."""

    function: Callable[..., object]
    operands: tuple[Value, ...]


IMMUTABLE = 1 << 8  # in the flags of a class: written in C, so its errors give its module as well
METHOD_TYPES: dict[type, type] = {WrapperDescriptorType: MethodWrapperType, FunctionType: MethodType}


def raise_unsupported(tracer: Tracer, value: Value, text: str) -> NoReturn:
    """The TypeError of the program for an operation that the class of an object does not have."""
    tracer.raise_error(TypeError, text.format(type_name(value.python_type())))


def is_iterable(kind: type) -> bool:
    """Whether `iter()` takes objects of a class."""
    own = class_member(kind, "__iter__")
    return own is not None and (own is not MISSING or class_member(kind, "__getitem__") is not MISSING)


def type_name(kind: type) -> str:
    """A class as errors of CPython call it."""
    qualified = kind.__flags__ & IMMUTABLE and kind.__module__ != "builtins"
    return f"{kind.__module__}.{kind.__qualname__}" if qualified else kind.__name__


def raise_missing(tracer: Tracer, kind: type, name: str) -> NoReturn:
    """The AttributeError of the program for an attribute that its object has not."""
    tracer.raise_error(AttributeError, f"'{type_name(kind)}' object has no attribute '{name}'")


def attribute_of_builtin(tracer: Tracer, value: Value, name: str) -> Value:
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
        tracer.graph_break("unsupported-attribute", name=name, type=value.describe())
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

    def call(self, tracer: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if not takes(class_member(self.owner.python_type(), self.name), 1 + len(args), kwargs):
            tracer.graph_break("unsupported-call", callable=f"{self.describe()} with these arguments")
        return self.owner.call_method(tracer, self.name, args, kwargs)

    def get_attribute(self, tracer: Tracer, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return tracer.constant(self.name)
        return super().get_attribute(tracer, name)

    def rebuild(self, out: Rebuilder) -> None:
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
