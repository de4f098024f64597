"""Constants: immutable Python objects that tracing knows completely."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from types import CodeType, EllipsisType, MethodDescriptorType, NotImplementedType
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import torch

from armature.frame.guards.text import shown
from armature.introspection import class_member
from armature.trace.base import Args, BoundMethod, Kwargs, NotConstant, Value
from armature.trace.slots import COLLECTION_SLOTS, UNARY
from armature.trace.values.classes import find_in_class

if TYPE_CHECKING:
    from armature.frame.sources import Source
    from armature.trace.base import Rebuilding, Tracing


class Written(complex):
    """Writes a complex number into a graph. Python's own repr loses the sign of a zero, and can't write NaN."""

    def __repr__(self) -> str:
        return f"complex({self.real!r}, {self.imag!r})"


# Types of immutable objects that compare by value and may be constants of a code object.
SCALARS: frozenset[type] = frozenset({int, float, bool, str, bytes, complex, type(None)})
ATOMS: frozenset[type] = SCALARS | {
    EllipsisType, NotImplementedType, CodeType, torch.dtype, torch.device, torch.layout, torch.memory_format,
    torch.finfo, torch.iinfo, torch.qscheme,
}  # fmt: skip


def is_atom(obj: object) -> bool:
    """Whether an object of the language or of torch is a constant by itself."""
    return type(obj) in ATOMS or issubclass(type(obj), enum.Enum)


@attrs.define(eq=False)
class ConstantValue(Value):
    """An int, float, string, None, dtype, device, enum member, ..."""

    value: object

    is_constant: ClassVar[bool] = True
    plain_items: ClassVar[bool] = True
    slots = COLLECTION_SLOTS | UNARY.keys() | {"__bool__", "__hash__", "__getitem__"}

    def python_type(self) -> type:
        return type(self.value)

    def describe(self) -> str:
        return f"the constant {shown(self.value)}"

    def as_constant(self) -> Any:
        return self.value

    def as_argument(self, tracer: Tracing) -> object:
        return Written(self.value) if type(self.value) is complex else self.value

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        try:
            found = getattr(self.value, name)
        except AttributeError as error:
            tracer.raise_real(error)
        if callable(found) and type(found) is not type:
            return BoundMethod(self, name)
        return tracer.as_value(found)

    def has(self, tracer: Tracing, name: str, operation: Callable[[], object]) -> bool:
        """Whether the class has the method; if not, raises the operation's error in the program."""
        if find_in_class(type(self.value), name) is not None:
            return True
        try:
            operation()
        except TypeError as error:
            tracer.raise_real(error)
        return False

    def get_item(self, tracer: Tracing, key: Value) -> Value:
        return super().get_item(tracer, tracer.python.index(key) if isinstance(self.value, (str, bytes)) else key)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        """Call a handler, or compute the result now if the arguments are constants too."""
        method = class_member(type(self.value), name)
        in_c = type(method) is MethodDescriptorType
        found = tracer.calls.handled(method, (self, *args), kwargs) if in_c else None
        if found is not None:
            return found
        try:
            plain = [arg.as_constant() for arg in args]
            named = {key: arg.as_constant() for key, arg in kwargs.items()}
        except NotConstant:
            tracer.graph_break("method-of-constant", method=f"{type(self.value).__name__}.{name}")
        try:
            # An error of a C method names the class of its object.
            made = method(self.value, *plain, **named) if in_c else getattr(self.value, name)(*plain, **named)
        except Exception as error:
            tracer.raise_real(error)
        # an iterator: each call must return a new one, and tracing would use this one up
        if hasattr(type(made), "__next__"):
            tracer.graph_break("iterator-of-constant", method=f"{type(self.value).__name__}.{name}")
        return tracer.as_value(made)

    def truth(self, tracer: Tracing) -> bool:
        return bool(self.value)

    def length(self, tracer: Tracing) -> int:
        if isinstance(self.value, (str, bytes)):
            return len(self.value)
        held: Any = self.value
        self.has(tracer, "__len__", lambda: len(held))
        return super().length(tracer)

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        if isinstance(self.value, (str, bytes)):
            return (ConstantValue(item) for item in self.value)
        held: Any = self.value
        self.has(tracer, "__iter__", lambda: iter(held))
        return super().stream(tracer)

    def contains(self, tracer: Tracing, item: Value) -> bool:
        return self.holds(tracer, item) if isinstance(self.value, (str, bytes)) else super().contains(tracer, item)

    def holds(self, tracer: Tracing, item: Value) -> bool:
        """Whether a constant is contained, by evaluating `in` on the two."""
        held: Any = self.value
        try:
            return item.as_constant() in held
        except NotConstant:
            tracer.graph_break("contains-unknown", type=item.describe())
        except (TypeError, ValueError) as error:  # bytes hold no number beyond 255
            tracer.raise_real(error)

    def rebuild(self, out: Rebuilding) -> None:
        out.constant(self.value)


class TextValue(ConstantValue):
    """A string of the program. Its text is guarded once it is read, so that code which passes it on serves any."""

    __slots__ = ("text", "tracer")
    source: Source

    def __init__(self, text: str, tracer: Tracing, source: Source) -> None:
        Value.__init__(self, source=source)
        self.text, self.tracer = text, tracer

    def as_constant(self) -> Any:
        self.tracer.guards.equal(self.source, self.text)
        return self.text

    value: object = property(as_constant)

    def python_type(self) -> type:
        return str

    def describe(self) -> str:
        return f"the constant {shown(self.text)}"

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        read = self.as_constant() if hasattr(str, name) else self.text
        return ConstantValue(read).get_attribute(tracer, name)

    def rebuild(self, out: Rebuilding) -> None:
        out.load_source(self.source)


NONE = ConstantValue(None)
TRUE = ConstantValue(True)
FALSE = ConstantValue(False)
