"""Views of dicts: `d.keys()`, `d.values()` and `d.items()`."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Hashable, Iterator, Mapping
from types import MappingProxyType

import attrs

from armature.plugin_api import (
    COLLECTION_SLOTS,
    Call,
    CallSource,
    DictValue,
    NotConstant,
    Rebuilding,
    Source,
    Tracing,
    TupleValue,
    Value,
    ValueType,
    handles,
    native,
)
from armature_builtin_rules.dict_kinds import MappingProxyValue, mapping_of
from armature_builtin_rules.functions.sets import COMPARING, OPERATORS, Operand, SetLike, compute, listed, operand
from armature_builtin_rules.functions.targets import own_methods

VIEW_TYPES: Mapping[str, type] = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}
ORDERED_VIEW_TYPES: Mapping[str, type] = {
    which: type(getattr(collections.OrderedDict[object, object](), which)()) for which in VIEW_TYPES
}
DICTS: tuple[type, ...] = (dict, collections.OrderedDict, MappingProxyType)


@attrs.define(eq=False)
class DictViewValue(SetLike):
    """`d.keys()`, `d.values()` or `d.items()`, live."""

    owner: DictValue
    which: str

    slots = COLLECTION_SLOTS | OPERATORS.keys() | {"__reversed__"}

    def contents(self) -> object:
        return self.owner

    def shape(self) -> tuple[int, int]:
        return self.owner.shape()

    @property
    def container(self) -> Value:
        return self.owner

    def python_type(self) -> type:
        shown = self.owner.mapping if isinstance(self.owner, MappingProxyValue) else self.owner
        ordered = isinstance(shown, DictValue) and shown.kind is collections.OrderedDict
        return (ORDERED_VIEW_TYPES if ordered else VIEW_TYPES)[self.which]

    def length(self, tracer: Tracing) -> int:
        return self.owner.length(tracer)

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        return self.owner.entry_stream(tracer, ENTRY_VALUES[self.which])

    def backwards(self, tracer: Tracing) -> Iterator[Value]:
        return self.owner.entry_stream(tracer, ENTRY_VALUES[self.which], backwards=True)

    def contains(self, tracer: Tracing, item: Value) -> bool:
        if self.which == "keys":
            return self.owner.contains(tracer, item)
        if self.which == "items" and isinstance(item, TupleValue) and len(item.items) == 2:
            found = self.owner.find(tracer, item.items[0])
            return found is not None and tracer.python.same_or_equal(found, item.items[1])
        return super().contains(tracer, item)

    def as_operand(self, tracer: Tracing) -> Operand:
        """A view of a real dict of the keys, and of the values if they are constants."""
        if self.which == "values":
            return listed(tracer, self)
        held = self.owner.realise(tracer)
        values = (
            dict.fromkeys(held) if self.which == "keys" else {key: constant_of(tracer, held[key][1]) for key in held}
        )
        # CPython uses the dict itself as its keys, unless it is an object of a derived class.
        plain = self.owner.kind is dict and self.owner.owner is None
        view = getattr(values if plain else collections.OrderedDict(values), self.which)()
        entries = {member: ENTRY_VALUES[self.which](held[key]) for member, key in zip(view, held, strict=True)}
        known = self.which == "items" or self.owner.kind is not MappingProxyType
        return Operand(entries, view, TupleValue(list(entries.values())), known)

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if self.which == "values":
            return None
        if name in COMPARING and not isinstance(other, SetLike):
            return None
        function, swapped = OPERATORS[name]
        sides = (self.as_operand(tracer), operand(tracer, other))
        return compute(tracer, function, *(reversed(sides) if swapped else sides))

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return MappingProxyValue({}, mapping=self.owner) if name == "mapping" else super().get_attribute(tracer, name)

    def rebuild(self, out: Rebuilding) -> None:
        out.load(self.owner)
        out.method(self.which)
        out.call(0)


def constant_of(tracer: Tracing, value: Value) -> Hashable:
    """A value of a dict whose items are compared with others."""
    try:
        constant: Hashable = value.as_constant()
        hash(constant)
    except (NotConstant, TypeError):
        tracer.graph_break("key-of-dict", type=value.describe())
    return constant


ENTRY_VALUES: dict[str, Callable[[tuple[Value, Value]], Value]] = {
    "keys": lambda entry: entry[0],
    "values": lambda entry: entry[1],
    "items": lambda entry: TupleValue(list(entry)),
}


@handles(*(method for name in VIEW_TYPES for method in own_methods(name, *DICTS)))
def view(call: Call, owner: Value) -> Value | None:
    """`owner.keys()` and the like."""
    return DictViewValue(owner, call.fn.__name__) if isinstance(owner, DictValue) else None


def of_program(which: str, obj: object, source: Source, tracer: Tracing) -> Value | None:
    """A view of the program, of a dict that the frame may change."""
    owner = native(tracer.objects.wrap(mapping_of(obj), CallSource(source, mapping_of, "<mapping of {}>")))
    return DictViewValue(owner, which, source=source) if isinstance(owner, DictValue) else None


VALUE_TYPES = tuple(
    ValueType(kind, functools.partial(of_program, which))
    for kinds in (VIEW_TYPES, ORDERED_VIEW_TYPES)
    for which, kind in kinds.items()
)
