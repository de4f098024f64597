"""`threading.local`: attributes that are separate for each thread."""

from __future__ import annotations

import threading
from typing import NoReturn

import attrs

from armature.plugin_api import (
    MISSING,
    AttrSource,
    ObjectValue,
    Rebuilding,
    Source,
    Tracing,
    Value,
    ValueType,
    Write,
    class_member,
)


def lacks(obj: threading.local, name: str) -> bool:
    """Whether this thread has no such attribute."""
    return name not in obj.__dict__


@attrs.define(eq=False)
class ThreadLocalValue(ObjectValue):
    """A `threading.local` of the program. Guards read the calling thread's attributes. If the thread has not used the
    object before, that runs the `__init__` of its class."""

    source: Source = attrs.field(kw_only=True)
    table: Value | None = attrs.field(default=None, kw_only=True)  # `__dict__`, once it was read

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name == "__dict__":
            return self.open_table(tracer)
        if name.startswith("__"):
            return super().get_attribute(tracer, name)
        if self.table is not None:
            self.refuse(tracer, name)
        found = self.plain_attribute(tracer, name)
        return self.missing(tracer, name) if found is None else found

    def open_table(self, tracer: Tracing) -> Value:
        """The calling thread's attributes as a dict. Breaks the graph if the frame has stored some before."""
        if self.table is None:
            if self.written:
                self.refuse(tracer, "__dict__")
            self.table = tracer.objects.wrap(self.obj.__dict__, AttrSource(self.source, "__dict__"))
        return self.table

    def refuse(self, tracer: Tracing, name: str) -> NoReturn:
        """Break the graph."""
        tracer.graph_break("attribute-in-c", name=name, type="threading.local")

    def own_attribute(self, tracer: Tracing, name: str) -> Value | None:
        if name in self.written:
            return self.attributes[name]
        if lacks(self.obj, name):
            tracer.guards.answers(lacks, (self.obj, name), {}, True)
            return None
        # in a thread without it, the attribute of the class would be read
        if class_member(self.cls, name) is not MISSING:
            tracer.guards.answers(lacks, (self.obj, name), {}, False)
        found: Value = tracer.objects.wrap(getattr(self.obj, name), AttrSource(self.source, name))
        self.attributes[name] = found
        return found

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        held = class_member(self.cls, name)
        if isinstance(held, property):
            self.store(tracer, name, value)
            return
        if name.startswith("__") or hasattr(type(held), "__set__"):
            super().set_attribute(tracer, name, value)
            return
        if self.table is not None:
            self.refuse(tracer, name)
        self.attributes[name] = value
        self.written[name] = False
        tracer.mutate(self)

    def delete_attribute(self, tracer: Tracing, name: str) -> None:
        if self.own_attribute(tracer, name) is None:
            self.missing(tracer, name)
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


def of_program(obj: object, source: Source, tracer: Tracing) -> Value | None:
    """A `threading.local`, unless its class looks up or stores attributes in its own way."""
    cls = type(obj)
    if any(getattr(cls, name) is not getattr(threading.local, name) for name in LOOKUPS):
        return None
    tracer.guards.same(source, obj)
    return ThreadLocalValue(cls, obj, source=source)


LOOKUPS = ("__getattribute__", "__setattr__", "__delattr__")
VALUE_TYPES = (ValueType(threading.local, of_program, derived=True),)
