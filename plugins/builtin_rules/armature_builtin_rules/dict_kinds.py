"""Ordered dicts, default dicts, and proxies of dicts."""

from __future__ import annotations

import collections
import functools
import gc
from collections.abc import Hashable
from types import MappingProxyType
from typing import Any, ClassVar

import attrs

from armature.plugin_api import AttrSource, DictValue, Rebuilding, Source, Tracing, Value, ValueType, Write

Entries = dict[Hashable, tuple[Value, Value]]


@attrs.define(eq=False)
class OrderedDictValue(DictValue):
    """An ordered dict. attributes: for one made in the frame."""

    kind: Any = collections.OrderedDict
    attributes: dict[str, Value] = attrs.field(factory=dict)

    changed_text: ClassVar[str] = "OrderedDict mutated during iteration"
    ordered: ClassVar[bool] = True
    iterators = (type(iter(collections.OrderedDict[Any, Any]())), type(reversed(collections.OrderedDict[Any, Any]())))

    def like(self, entries: Entries) -> DictValue:
        return OrderedDictValue(entries)

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        return unless_in_other_order(tracer, self, name, other, super().binary(tracer, name, other))

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return self.attributes[name] if name in self.attributes else super().get_attribute(tracer, name)

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        if self.source is not None or hasattr(self.kind, name):
            super().set_attribute(tracer, name, value)
        self.attributes[name] = value

    def rebuild(self, out: Rebuilding) -> None:
        super().rebuild(out)
        for name, value in self.attributes.items():
            out.store_attribute(name, value)

    def writes(self, out: Rebuilding) -> list[Write]:
        # Not `update`: it is Python code, and calls methods of a derived class.
        items, cleared = self.entries.values(), [Write(self.kind.clear, (self,))] if self.reshaped else []
        return [*cleared, *(Write(self.kind.__setitem__, (self, key, value)) for key, value in items)]


@attrs.define(eq=False)
class DefaultDictValue(DictValue):
    """A dict that makes missing values by calling `factory`."""

    kind: Any = collections.defaultdict
    factory: Value | None = None

    def like(self, entries: Entries) -> DictValue:
        return DefaultDictValue(entries, factory=self.factory)

    def missing(self, tracer: Tracing, key: Value) -> Value:
        if self.factory is None or self.factory.is_constant:
            return super().missing(tracer, key)
        made = self.factory.call(tracer, (), {})
        self.set_item(tracer, key, made)
        return made

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name == "default_factory":
            return self.factory or tracer.constant(None)
        return super().get_attribute(tracer, name)

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(collections.defaultdict)
        out.load(self.factory if self.factory is not None else out.none)
        DictValue(self.entries).rebuild(out)
        out.call(2)

    def fill(self, out: Rebuilding, owner: Value) -> list[Write]:
        found = super().fill(out, owner)
        if self.factory is not None:
            found.append(Write(collections.defaultdict.__init__, (owner, self.factory)))
        return found


@attrs.define(eq=False)
class MappingProxyValue(DictValue):
    """A read-only view of a dict. shown: the class of the mapping it shows."""

    kind: Any = MappingProxyType
    shown: type = dict

    def like(self, entries: Entries) -> DictValue:
        return DictValue(entries) if self.shown is dict else OrderedDictValue(entries)

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        return unless_in_other_order(tracer, self, name, other, super().binary(tracer, name, other))

    def change(self, tracer: Tracing) -> Entries:
        tracer.raise_error(TypeError, "'mappingproxy' object does not support item assignment")

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(MappingProxyType)
        if self.shown is not dict:
            out.null_function(self.shown)
        DictValue(self.entries).rebuild(out)
        if self.shown is not dict:
            out.call(1)
        out.call(1)

    def writes(self, out: Rebuilding) -> list[Write]:
        out.cannot(self)


def unless_in_other_order(
    tracer: Tracing, mine: DictValue, name: str, other: Value, found: Value | None
) -> Value | None:
    """The result of an operator: two ordered dicts are equal only if their keys have the same order."""
    if name not in ("__eq__", "__ne__") or not isinstance(other, DictValue):
        return found
    if any(side.like({}).kind is not collections.OrderedDict for side in (mine, other)):
        return found
    return found if list(mine.entries) == list(other.entries) else tracer.constant(name == "__ne__")


def shown_by(proxy: object) -> type:
    """The class of the mapping that a mapping proxy shows, found by the garbage collector, the only one to know it."""
    return type(gc.get_referents(proxy)[0])


def shows(kind: type, proxy: object) -> bool:
    """Whether a mapping proxy shows an object of this class."""
    return shown_by(proxy) is kind


def ordered_dict(obj: Any, source: Source, tracer: Tracing) -> Value:
    """An ordered dict of the program."""
    return OrderedDictValue({}, pending=obj, source=source)


def base_of_ordered(obj: Any, kind: type, source: Source, owner: Value, tracer: Tracing) -> Value:
    """The ordered dict inside an object of a derived class."""
    return OrderedDictValue({}, pending=obj, owner=owner, source=source)


def default_dict(obj: Any, source: Source, tracer: Tracing) -> Value:
    """A default dict of the program."""
    made = DefaultDictValue({}, pending=obj, source=source)
    tracer.objects.remember(obj, made)
    made.factory = tracer.objects.wrap(obj.default_factory, AttrSource(source, "default_factory"))
    return made


def base_of_default(obj: Any, kind: type, source: Source, owner: Value, tracer: Tracing) -> Value:
    """The default dict inside an object of a derived class."""
    factory = tracer.objects.wrap(obj.default_factory, AttrSource(source, "default_factory"))
    return DefaultDictValue({}, pending=obj, owner=owner, factory=factory, source=source)


def mapping_proxy(obj: Any, source: Source, tracer: Tracing) -> Value | None:
    """A proxy of a dict or an ordered dict."""
    shown = shown_by(obj)
    if shown not in (dict, collections.OrderedDict):
        return None
    tracer.guards.metadata(source, functools.partial(shows, shown))
    return MappingProxyValue({}, pending=obj, shown=shown, source=source)


VALUE_TYPES = (
    ValueType(collections.OrderedDict, ordered_dict, base=base_of_ordered),
    ValueType(collections.defaultdict, default_dict, base=base_of_default),
    ValueType(MappingProxyType, mapping_proxy),
)
