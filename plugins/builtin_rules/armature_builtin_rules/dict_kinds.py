"""Ordered dicts, default dicts, and proxies of dicts."""

from __future__ import annotations

import collections
import gc
from collections.abc import Callable, Hashable, Iterator
from types import MappingProxyType
from typing import ClassVar

import attrs

from armature.plugin_api import AttrSource, CallSource, DictValue, Rebuilding, Source, Tracing, Value, ValueType, Write

Entries = dict[Hashable, tuple[Value, Value]]


@attrs.define(eq=False)
class OrderedDictValue(DictValue):
    """An ordered dict. attributes: for one made in the frame."""

    kind: type[collections.OrderedDict[object, object]] = collections.OrderedDict
    attributes: dict[str, Value] = attrs.field(factory=dict)

    changed_text: ClassVar[str] = "OrderedDict mutated during iteration"
    ordered: ClassVar[bool] = True
    iterators = (
        type(iter(collections.OrderedDict[object, object]())),
        type(reversed(collections.OrderedDict[object, object]())),
    )

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

    kind: type = collections.defaultdict
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
    """A read-only view of a dict, live. mapping: the dict, or another proxy. real: the program's own object there."""

    kind: type = MappingProxyType
    mapping: DictValue = attrs.field(kw_only=True)
    real: object = None

    slots = DictValue.slots - {"__setitem__", "__delitem__"}

    def contents(self) -> object:
        return self.mapping

    def shape(self) -> tuple[int, int]:
        return self.mapping.shape()

    def like(self, entries: Entries) -> DictValue:
        return self.mapping.like(entries)

    def realise(self, tracer: Tracing) -> Entries:
        self._unless_class_changed(tracer)
        return self.mapping.realise(tracer)

    def find(self, tracer: Tracing, key: Value) -> Value | None:
        self._unless_class_changed(tracer)
        return self.mapping.find(tracer, key)

    def missing(self, tracer: Tracing, key: Value) -> Value:
        return self.mapping.missing(tracer, key)

    def length(self, tracer: Tracing) -> int:
        self._unless_class_changed(tracer)
        return self.mapping.length(tracer)

    def entry_stream(
        self, tracer: Tracing, of: Callable[[tuple[Value, Value]], Value], *, backwards: bool = False
    ) -> Iterator[Value]:
        self._unless_class_changed(tracer)
        return self.mapping.entry_stream(tracer, of, backwards=backwards)

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if name == "__ior__":
            tracer.raise_error(TypeError, "'|=' is not supported by mappingproxy; use '|' instead")
        self._unless_class_changed(tracer)
        return self.mapping.binary(tracer, name, other.mapping if isinstance(other, MappingProxyValue) else other)

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(MappingProxyType)
        out.load(self.mapping)
        out.call(1)

    def _unless_class_changed(self, tracer: Tracing) -> None:
        """Break if it shows the attributes of a class that the frame has changed."""
        for cls, _ in tracer.effects.class_attributes:
            if mapping_of(cls.__dict__) is self.real:
                tracer.graph_break("globals-after-change", dict=f"{cls.__qualname__}.__dict__")


def unless_in_other_order(
    tracer: Tracing, mine: DictValue, name: str, other: Value, found: Value | None
) -> Value | None:
    """The result of an operator: two ordered dicts are equal only if their keys have the same order."""
    if name not in ("__eq__", "__ne__") or not isinstance(other, DictValue):
        return found
    if any(side.like({}).kind is not collections.OrderedDict for side in (mine, other)):
        return found
    same = list(mine.realise(tracer)) == list(other.realise(tracer))
    return found if same else tracer.constant(name == "__ne__")


def mapping_of(proxy: object) -> object:
    """The mapping that a proxy shows, found by the garbage collector, the only one to know it."""
    return gc.get_referents(proxy)[0]


def ordered_dict(obj: collections.OrderedDict[object, object], source: Source, tracer: Tracing) -> Value:
    """An ordered dict of the program."""
    return OrderedDictValue({}, pending=obj, source=source)


def base_of_ordered(
    obj: collections.OrderedDict[object, object], kind: type, source: Source, owner: Value, tracer: Tracing
) -> Value:
    """The ordered dict inside an object of a derived class."""
    return OrderedDictValue({}, pending=obj, owner=owner, source=source)


def default_dict(obj: collections.defaultdict[object, object], source: Source, tracer: Tracing) -> Value:
    """A default dict of the program."""
    made = DefaultDictValue({}, pending=obj, source=source)
    tracer.objects.remember(obj, made)
    made.factory = tracer.objects.wrap(obj.default_factory, AttrSource(source, "default_factory"))
    return made


def base_of_default(
    obj: collections.defaultdict[object, object], kind: type, source: Source, owner: Value, tracer: Tracing
) -> Value:
    """The default dict inside an object of a derived class."""
    factory = tracer.objects.wrap(obj.default_factory, AttrSource(source, "default_factory"))
    return DefaultDictValue({}, pending=obj, owner=owner, factory=factory, source=source)


def mapping_proxy(obj: object, source: Source, tracer: Tracing) -> Value | None:
    """A proxy of a dict, which the frame may change under another name."""
    real = mapping_of(obj)
    if type(real) not in KINDS:
        return None
    mapping = tracer.objects.wrap(real, CallSource(source, mapping_of, "<mapping of {}>"))
    return MappingProxyValue({}, mapping=mapping, real=real, source=source) if isinstance(mapping, DictValue) else None


KINDS: tuple[type, ...] = (dict, collections.OrderedDict, collections.defaultdict, MappingProxyType)
VALUE_TYPES = (
    ValueType(collections.OrderedDict, ordered_dict, base=base_of_ordered),
    ValueType(collections.defaultdict, default_dict, base=base_of_default),
    ValueType(MappingProxyType, mapping_proxy),
)
