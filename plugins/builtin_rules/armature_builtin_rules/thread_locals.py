"""`threading.local`: attributes that are separate for each thread."""

from __future__ import annotations

import threading
from typing import Any

import attrs

from armature.plugin_api import (
    AttrSource,
    ObjectValue,
    Rebuilding,
    Source,
    Tracing,
    Value,
    ValueType,
    Write,
)


def lacks(obj: threading.local, name: str) -> bool:
    """Whether this thread has no such attribute."""
    return name not in obj.__dict__


@attrs.define(eq=False)
class ThreadLocalValue(ObjectValue):
    """A `threading.local` of the program. Guards read the calling thread's attributes."""

    source: Source = attrs.field(kw_only=True)

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name.startswith("__"):
            return super().get_attribute(tracer, name)
        if name in self.attributes:
            known = self.attributes[name]
            if known is not None:
                return known
        elif lacks(self.obj, name):
            tracer.guards.answers(lacks, (self.obj, name), {}, True)
        if name in self.attributes or lacks(self.obj, name):
            raise tracer.raise_error(AttributeError, f"'_thread._local' object has no attribute '{name}'")
        found: Value = tracer.objects.wrap(getattr(self.obj, name), AttrSource(self.source, name))
        self.attributes[name] = found
        return found

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        if name.startswith("__"):
            super().set_attribute(tracer, name, value)
            return
        self.attributes[name] = value
        self.written[name] = False
        tracer.mutate(self)

    def delete_attribute(self, tracer: Tracing, name: str) -> None:
        self.get_attribute(tracer, name)  # raises if it is missing
        self.attributes[name] = None
        self.written[name] = False
        tracer.mutate(self)

    def writes(self, out: Rebuilding) -> list[Write]:
        found = []
        for name in self.written:
            held = self.attributes[name]
            if held is not None:
                found.append(Write(threading.local.__setattr__, (self, out.value(name), held)))
            elif not lacks(self.obj, name):
                found.append(Write(threading.local.__delattr__, (self, out.value(name))))
        return found


def of_program(obj: Any, source: Source, tracer: Tracing) -> Value:
    """A `threading.local` itself: an instance of a subclass runs its `__init__` in each thread."""
    tracer.guards.same(source, obj)
    return ThreadLocalValue(type(obj), obj, source=source)


VALUE_TYPES = (ValueType(threading.local, of_program),)
