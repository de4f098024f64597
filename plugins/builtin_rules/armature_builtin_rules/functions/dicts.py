"""Making dicts, and their methods."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from types import MappingProxyType

from armature.plugin_api import (
    MISSING,
    Call,
    DictValue,
    TracedTensor,
    Tracing,
    TupleValue,
    UserRaised,
    Value,
    class_member,
    handles,
    is_iterable,
    items_of_mapping,
    method_of,
    native,
)
from armature_builtin_rules.dict_kinds import KINDS, DefaultDictValue, MappingProxyValue, OrderedDictValue
from armature_builtin_rules.functions.targets import own_methods

DICTS: tuple[type, ...] = (dict, collections.OrderedDict, collections.defaultdict)


@method_of(DictValue, *own_methods("get", *DICTS, MappingProxyType))
def get(tracer: Tracing, self: DictValue, key: Value, default: Value | None = None) -> Value | None:
    """The value under a key, or a default."""
    found = self.find(tracer, key)
    return default if found is None else found


@method_of(DictValue, *own_methods("pop", *DICTS))
def pop(tracer: Tracing, self: DictValue, key: Value, default: Value | None = None) -> Value:
    """Remove and return the value under a key."""
    try:
        found = self.find(tracer, key)
    except UserRaised:  # CPython does not hash the key if the dict is empty
        if self.kind is collections.OrderedDict or self.length(tracer):
            raise
        found = None
    if found is not None:
        self.delete_item(tracer, key)
        return found
    if default is None:
        tracer.raise_value(KeyError, (key,))
    return default


@method_of(DictValue, *own_methods("popitem", *DICTS))
def popitem(tracer: Tracing, self: DictValue, last: Value | None = None) -> Value:
    """Remove and return the last entry, or the first of an ordered dict."""
    if last is not None and self.kind is not collections.OrderedDict:
        tracer.raise_error(TypeError, "dict.popitem() takes no arguments (1 given)")
    entries = self.change(tracer)
    if not entries:
        tracer.raise_error(KeyError, "popitem(): dictionary is empty")
    hashed = next(iter(entries)) if last is not None and not last.truth(tracer) else next(reversed(entries))
    self.reshaped += 1
    return TupleValue(list(entries.pop(hashed)))


@method_of(DictValue, *own_methods("setdefault", *DICTS))
def setdefault(tracer: Tracing, self: DictValue, key: Value, default: Value | None = None) -> Value:
    """The value under a key, set to the default if it is missing."""
    found = self.find(tracer, key)
    if found is None:
        found = tracer.constant(None) if default is None else default
        self.set_item(tracer, key, found)
    return found


@method_of(DictValue, *own_methods("update", *DICTS))
def update(tracer: Tracing, self: DictValue, /, *others: Value, **more: Value) -> None:
    """`self.update(other, **more)`."""
    for other in others:
        for key, value in pairs(tracer, other):
            self.set_item(tracer, key, value)
    for name, value in more.items():
        self.set_item(tracer, tracer.constant(name), value)


def pairs(tracer: Tracing, other: Value) -> Iterator[tuple[Value, Value]]:
    """The keys and values of a mapping, or of an iterable of pairs, lazily."""
    if tracer.python.has_attribute(other, "keys"):
        yield from items_of_mapping(tracer, other)
    else:
        for position, pair in enumerate(other.stream(tracer)):
            element = f"dictionary update sequence element #{position}"
            number = isinstance(pair, TracedTensor) and not pair.fake.dim()
            if number or not is_iterable(pair.python_type()):
                tracer.raise_error(TypeError, f"cannot convert {element} to a sequence")
            parts = tracer.python.in_sequence(pair, f"cannot convert {element} to a sequence")
            if len(parts) != 2:
                tracer.raise_error(ValueError, f"{element} has length {len(parts)}; 2 is required")
            yield parts[0], parts[1]


@method_of(DictValue, *own_methods("clear", *DICTS))
def clear(tracer: Tracing, self: DictValue) -> None:
    """Remove all entries."""
    entries = self.change(tracer)
    self.reshaped += bool(entries)
    entries.clear()


@method_of(DictValue, *own_methods("copy", *DICTS, MappingProxyType))
def copy(tracer: Tracing, self: DictValue) -> Value:
    """Another dict with the same entries."""
    return self.like(dict(self.realise(tracer)))


@method_of(DictValue, *own_methods("move_to_end", collections.OrderedDict))
def move_to_end(tracer: Tracing, self: DictValue, key: Value, last: Value | None = None) -> None:
    """Move an entry to the end, or to the beginning."""
    entries = self.change(tracer)
    hashed = key.key(tracer)
    if hashed not in entries:
        tracer.raise_value(KeyError, (key,))
    self.reshaped += hashed != next(reversed(entries) if last is None or last.truth(tracer) else iter(entries))
    entry = entries.pop(hashed)
    if last is None or last.truth(tracer):
        entries[hashed] = entry
    else:
        self.entries = {hashed: entry, **entries}


@method_of(DictValue, *own_methods("__init__", *DICTS))
def initialise(tracer: Tracing, self: DictValue, *others: Value, **more: Value) -> None:
    """Fill the dict, or an object of a derived class, as `__init__` does."""
    if isinstance(self, DefaultDictValue):
        if self.source is not None or self.pending is not None:
            tracer.graph_break("default-dict-init", type=self.describe())
        self.factory, others = factory_of(tracer, *others[:1]), others[1:]
    update(tracer, self, *others, **more)


def factory_of(tracer: Tracing, factory: Value | None = None) -> Value:
    """The factory of a defaultdict. TypeError of the program if it can't be called."""
    given = None if factory is None else factory.python_type()
    if given not in (None, type(None)) and class_member(given, "__call__") is MISSING:
        tracer.raise_error(TypeError, "first argument must be callable or None")
    return tracer.constant(None) if factory is None else factory


@method_of(DictValue, *own_methods("__ior__", *DICTS))
def update_in_place(tracer: Tracing, self: DictValue, other: Value) -> Value:
    """`self |= other`."""
    update(tracer, self, other)
    return self


@method_of(DictValue, *own_methods("__or__", *DICTS, MappingProxyType))
def united(tracer: Tracing, self: DictValue, other: Value) -> Value:
    """`self | other`."""
    more = native(other)
    if self.kind is not MappingProxyType and not issubclass(more.python_type(), dict):
        return tracer.constant(NotImplemented)
    return tracer.python.operate("or_", self, more)


@handles(dict, collections.OrderedDict)
def make_dict(call: Call, other: Value | None = None, /, **more: Value) -> Value:
    """A new dict."""
    made = OrderedDictValue({}) if call.fn is collections.OrderedDict else DictValue({})
    update(call.tracing, made, *(() if other is None else (other,)), **more)
    return made


@handles(collections.defaultdict)
def make_defaultdict(call: Call, factory: Value | None = None, /, *others: Value, **more: Value) -> Value:
    """A new dict that makes missing values."""
    made = DefaultDictValue({}, factory=factory_of(call.tracing, factory))
    update(call.tracing, made, *others, **more)
    return made


@handles(dict.fromkeys)
def from_keys(call: Call, keys: Value, value: Value | None = None) -> Value:
    """A dict whose keys all have the same value."""
    made = DictValue({})
    for key in call.tracing.unpack(keys):
        made.set_item(call.tracing, key, call.constant(None) if value is None else value)
    return made


@handles(MappingProxyType)
def mapping_proxy(call: Call, mapping: Value) -> Value:
    """A read-only view of a dict."""
    if not isinstance(mapping, DictValue) or mapping.kind not in KINDS:
        call.graph_break("mapping-proxy", type=mapping.describe())
    return MappingProxyValue({}, mapping=mapping)
