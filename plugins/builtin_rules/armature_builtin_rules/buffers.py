"""bytearray and memoryview while tracing: a copy with the current bytes, on which the real methods run.

Bytes of the program's objects are guarded. A change of a bytearray of the program breaks the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from types import MethodDescriptorType, WrapperDescriptorType
from typing import ClassVar

import attrs

from armature.plugin_api import (
    COLLECTION_SLOTS,
    Args,
    AttrSource,
    BoundMethod,
    Call,
    CallSource,
    ConstantValue,
    Kwargs,
    ListValue,
    NotConstant,
    Rebuilding,
    Source,
    Tracing,
    TupleValue,
    UserRaised,
    Value,
    ValueType,
    handles,
)

NO_KEYWORDS: Kwargs = {}
Step = tuple[MethodDescriptorType | WrapperDescriptorType, tuple[object, ...]]
OPERATORS = {
    f"__{name}__": getattr(operator, name)
    for name in ("add", "mul", "mod", "eq", "ne", "lt", "le", "gt", "ge", "iadd", "imul")
} | {"__rmul__": operator.mul}


@attrs.define(eq=False)
class BufferValue(Value):
    """A bytearray or memoryview. content: tracing's own copy, with the same bytes."""

    content: bytearray | memoryview

    mutable: ClassVar[bool] = True
    slots = COLLECTION_SLOTS | OPERATORS.keys() | {"__bool__", "__getitem__", "__setitem__", "__delitem__"}

    def python_type(self) -> type:
        return type(self.content)

    # a tensor would have to share the program's memory, not the copy's
    def as_argument(self, tracer: Tracing) -> object:
        tracer.graph_break("buffer-as-argument", type=self.describe())

    def owner(self) -> BufferValue | None:
        """The bytearray that owns the bytes, None if they are immutable."""
        return None

    def truth(self, tracer: Tracing) -> bool:
        return bool(self.content)

    def length(self, tracer: Tracing) -> int:
        return len(self.content)

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        self.look(tracer)
        return (ConstantValue(item) for item in self.content)

    def look(self, tracer: Tracing) -> None:
        """Called before the bytes are read. Breaks the graph if a tensor over the program's memory may have changed
        them, which tracing would not notice."""
        owner = self.owner()
        if tracer.recorder.mutates and owner is not None and owner.source is not None:
            tracer.graph_break("bytes-after-change")

    def contains(self, tracer: Tracing, item: Value) -> bool:
        return bool(self.run(tracer, operator.contains, (item,)).as_constant())

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        found = getattr(self.content, name, self)
        if name == "__class__":
            return tracer.as_value(found)
        if callable(found):
            return BoundMethod(self, name)
        if type(found) in (int, bool, str, tuple):
            return tracer.constant(found)
        return super().get_attribute(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in ("release", "__enter__", "__exit__", "__buffer__", "__iter__", "__reduce__", "__reduce_ex__"):
            return super().call_method(tracer, name, args, kwargs)
        method = getattr(type(self.content), name, None)
        # an inherited method, not one of the object
        if not isinstance(method, (MethodDescriptorType, WrapperDescriptorType)):
            return super().call_method(tracer, name, args, kwargs)
        return self.run(tracer, method, args, kwargs)

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        try:
            return self.run(tracer, OPERATORS[name], (other,))
        except UserRaised as raised:
            if raised.value.python_type() is not TypeError:
                raise
        tracer.graph_break("buffer-operator", operation=name, type=other.describe())

    def run(self, tracer: Tracing, function: Callable[..., object], args: Args, kwargs: Kwargs = NO_KEYWORDS) -> Value:
        """The result of a function on it; changes are recorded."""
        self.look(tracer)
        plain = [plain_bytes(tracer, arg) for arg in args]
        named = {name: plain_bytes(tracer, value) for name, value in kwargs.items()}
        owner = self.owner()
        before = None if owner is None else bytes(owner.content)
        try:
            found = function(self.content, *plain, **named)
        except BufferError:  # the copy may have views that live longer in tracing than in the program
            tracer.graph_break("buffer-resize", type=self.describe())
        except Exception as error:
            if isinstance(error, TypeError) and any(isinstance(arg, BufferValue) for arg in args):
                tracer.graph_break("buffer-operator", operation="a method", type=self.describe())
            tracer.raise_real(error)
        finally:
            if owner is not None and bytes(owner.content) != before:
                owner.changed(tracer)
        return self.result(tracer, found, function, (*plain, *named.values()))

    def result(self, tracer: Tracing, found: object, function: object, args: tuple[object, ...]) -> Value:
        """The value of a method's result."""
        if found is self.content:
            return self
        if isinstance(found, bytearray):
            return BytearrayValue(found)
        if isinstance(found, (list, tuple)):
            items = [self.result(tracer, item, function, ()) for item in found]
            return ListValue(items) if isinstance(found, list) else TupleValue(items)
        return tracer.constant(found)

    def changed(self, tracer: Tracing) -> None:
        """Record that the bytes have changed."""


@attrs.define(eq=False)
class BytearrayValue(BufferValue):
    """A bytearray."""

    def as_constant(self) -> bytearray:
        if self.source is not None:
            raise NotConstant(self)
        return bytearray(self.content)

    def owner(self) -> BufferValue | None:
        return self

    def changed(self, tracer: Tracing) -> None:
        # a tensor over its memory would see the change too late, and tracing does not know of such a tensor
        if self.source is not None:
            tracer.graph_break("changes-bytearray")

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(bytearray)
        out.constant(bytes(self.content))
        out.call(1)


@attrs.define(eq=False)
class MemoryviewValue(BufferValue):
    """A memoryview of bytes or of a bytearray. steps: the methods, with their arguments, that made it from a view of
    the whole object."""

    over: Value = attrs.field(kw_only=True)
    steps: tuple[Step, ...] = ()

    def as_constant(self) -> bytearray | memoryview:
        if self.owner() is not None:
            raise NotConstant(self)
        return self.content

    def owner(self) -> BufferValue | None:
        return self.over if isinstance(self.over, BytearrayValue) else None

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return self.over if name == "obj" else super().get_attribute(tracer, name)

    def result(self, tracer: Tracing, found: object, function: object, args: tuple[object, ...]) -> Value:
        if isinstance(found, memoryview) and isinstance(function, (MethodDescriptorType, WrapperDescriptorType)):
            return MemoryviewValue(found, over=self.over, steps=(*self.steps, (function, args)))
        return super().result(tracer, found, function, args)

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(view_of)
        out.load(self.over)
        out.constant(self.steps)
        out.call(2)


def view_of(over: bytes | bytearray, steps: tuple[Step, ...]) -> memoryview:
    """The view that the steps lead to."""
    view = memoryview(over)
    for function, args in steps:
        view = function(view, *args)
    return view


def plain_bytes(tracer: Tracing, value: Value) -> object:
    """The Python object of an argument."""
    if isinstance(value, BufferValue):
        value.look(tracer)
        return bytes(value.content)
    if value.python_type() in (list, tuple):
        return value.python_type()(plain_bytes(tracer, item) for item in tracer.unpack(value))
    return tracer.python.index(value).as_constant()


@handles(bytearray)
def make_bytearray(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """`bytearray(...)`."""
    try:
        plain = [plain_bytes(call.tracing, arg) for arg in args]
        return BytearrayValue(bytearray(*plain, **{key: value.as_constant() for key, value in kwargs.items()}))
    except NotConstant:
        raise
    except Exception as error:
        call.tracing.raise_real(error)


@handles(memoryview)
def make_memoryview(call: Call, object: Value) -> Value | None:
    """`memoryview(object)`."""
    if isinstance(object, BytearrayValue) or object.python_type() is bytes:
        held = object.content if isinstance(object, BytearrayValue) else object.as_constant()
        return MemoryviewValue(memoryview(held), over=object)
    if isinstance(object, MemoryviewValue):
        return MemoryviewValue(memoryview(object.content), over=object.over, steps=object.steps)
    return None


@handles(bytes)
def make_bytes(call: Call, object: Value) -> Value | None:
    """`bytes(object)`."""
    return call.constant(plain_bytes(call.tracing, object)) if isinstance(object, BufferValue) else None


def bytes_of(obj: bytes | bytearray | memoryview) -> bytes:
    """The bytes."""
    return bytes(obj)


def form_of(view: memoryview) -> tuple[object, ...]:
    """The properties of a view besides its bytes."""
    return view.format, view.shape, view.strides, type(view.obj)


def bytearray_of_program(obj: bytearray, source: Source, tracer: Tracing) -> Value:
    """A bytearray of the program."""
    tracer.guards.equal(CallSource(source, bytes_of, "bytes({})"), bytes(obj))
    made: Value = tracer.objects.remember(obj, BytearrayValue(bytearray(obj), source=source))
    return made


def memoryview_of_program(obj: memoryview, source: Source, tracer: Tracing) -> Value:
    """A memoryview of the program: of all the bytes of an object that does not change."""
    if type(obj.obj) is not bytes or form_of(obj)[:3] != ("B", (len(obj),), (1,)):
        tracer.graph_break("memoryview-of-changing")
    tracer.guards.equal(CallSource(source, form_of, "shape and format of {}"), form_of(obj))
    tracer.guards.equal(CallSource(source, bytes_of, "bytes({})"), bytes(obj))
    over = tracer.objects.wrap(obj.obj, AttrSource(source, "obj"))
    made: Value = tracer.objects.remember(obj, MemoryviewValue(memoryview(bytes(obj)), over=over, source=source))
    return made


VALUE_TYPES = (ValueType(bytearray, bytearray_of_program), ValueType(memoryview, memoryview_of_program))
