"""Slices and ranges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from armature.trace.base import Value
from armature.trace.slots import COLLECTION_SLOTS
from armature.trace.values.methods import BuiltinObject, ContainerValue
from armature.trace.values.sequence import index_of

if TYPE_CHECKING:
    from armature.trace.base import Rebuilding, Tracing


@attrs.define(eq=False)
class SliceValue(BuiltinObject):
    """slice(start, stop, step)."""

    parts: tuple[Value, Value, Value]

    def python_type(self) -> type:
        return slice

    def as_constant(self) -> Any:
        return slice(*(part.as_constant() for part in self.parts))

    def as_argument(self, tracer: Tracing) -> object:
        return slice(*(part.as_argument(tracer) for part in self.parts))

    def as_fake(self, tracer: Tracing) -> object:
        return slice(*(part.as_fake(tracer) for part in self.parts))

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)]
        return super().get_attribute(tracer, name)

    def rebuild(self, out: Rebuilding) -> None:
        for part in self.parts:
            out.load(part)
        out.build("BUILD_SLICE", 3)


@attrs.define(eq=False)
class RangeValue(ContainerValue):
    """A range of known bounds."""

    value: range

    slots = COLLECTION_SLOTS | {"__getitem__", "__reversed__", "__hash__"}

    def python_type(self) -> type:
        return range

    def as_constant(self) -> Any:
        return self.value

    def length(self, tracer: Tracing) -> int:
        try:
            return len(self.value)
        except OverflowError as error:
            tracer.raise_real(error)

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        return map(tracer.constant, self.value)

    def contains(self, tracer: Tracing, item: Value) -> bool:
        return item.as_constant() in self.value

    def get_item(self, tracer: Tracing, key: Value) -> Value:
        try:
            return tracer.as_value(self.value[index_of(tracer, key, range)])
        except IndexError as error:
            tracer.raise_real(error)

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return tracer.as_value(getattr(self.value, name))
        return super().get_attribute(tracer, name)

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(range)
        for bound in (self.value.start, self.value.stop, self.value.step):
            out.constant(bound)
        out.call(3)
