"""How a frame is traced: as its columns. Attribute lookup is implemented here, not traced into."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import tinyframe
import torch

from armature.plugin_api import (
    AttrSource,
    Rebuilding,
    Source,
    Tracing,
    Value,
    ValueType,
)


@attrs.define(eq=False)
class FrameValue(Value):
    """A frame. `columns`: the dict of its columns; for a frame of the program it is guarded as any dict is."""

    columns: Value

    slots = frozenset({"__len__", "__iter__", "__getitem__"})

    def python_type(self) -> type:
        """Frames have no subclasses here: a value type is for one exact type."""
        return tinyframe.Frame

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        """A column, or the names of all columns."""
        if name == "_columns":
            return self.columns
        if name == "names":
            return tracer.as_value(tuple(key.as_constant() for key in self.columns.stream(tracer)))
        key = tracer.constant(name)
        if self.columns.contains(tracer, key):
            return self.columns.get_item(tracer, key)
        tracer.raise_error(AttributeError, f"there is no column {name!r}")

    def get_item(self, tracer: Tracing, key: Value) -> Value:
        """A column."""
        return self.columns.get_item(tracer, key)

    def length(self, tracer: Tracing) -> int:
        """The number of columns."""
        return self.columns.length(tracer)

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        """The columns, in order."""
        for key in self.columns.stream(tracer):
            yield self.columns.get_item(tracer, key)

    def rebuild(self, out: Rebuilding) -> None:
        """A frame made in the compiled function is rebuilt at its end, from its final columns."""
        out.null_function(from_columns)
        out.load(self.columns)
        out.call(1)


def from_columns(columns: dict[str, torch.Tensor]) -> tinyframe.Frame:
    """The frame with these columns."""
    return tinyframe.Frame(**columns)


def build(obj: Any, source: Source, tracer: Tracing) -> Value:
    """The value of a frame, whose columns are read from their slot."""
    return FrameValue(tracer.objects.wrap(obj._columns, AttrSource(source, "_columns")), source=source)


VALUE_TYPES = [ValueType(tinyframe.Frame, build)]
