"""Sorting: `sorted` and `list.sort`."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING

import attrs

from armature.plugin_api import Call, ListValue, NotConstant, Tracing, Value, class_member, derives, handles, method_of
from armature_builtin_rules.functions.sets import in_any_order

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison


@attrs.frozen(eq=False)
class TracedOrder:
    """A sort key whose `<` is traced."""

    value: Value
    tracer: Tracing

    def __lt__(self, other: TracedOrder) -> bool:
        kind = self.value.python_type()
        if kind is other.value.python_type() and isinstance(class_member(kind, "__lt__"), FunctionType):
            found = self.value.binary(self.tracer, "__lt__", other.value)
            if found is None:  # C code may compare the same pair again
                self.tracer.graph_break("sort-comparisons", type=self.value.describe())
            return found.truth(self.tracer)
        return self.tracer.python.compare("<", self.value, other.value).truth(self.tracer)


def sorted_items(tracer: Tracing, items: list[Value], key: Value | None, reverse: Value | None) -> list[Value]:
    """The items sorted by their keys."""
    plain = key is None or (key.is_constant and key.as_constant() is None)
    by = items if key is None or plain else [key.call(tracer, (item,), {}) for item in items]
    try:
        keys: list[SupportsRichComparison] = [value.as_constant() for value in by]
    except NotConstant:
        keys = [TracedOrder(value, tracer) for value in by]
    backwards = reverse is not None and reverse.truth(tracer)
    try:
        order = sorted(range(len(items)), key=keys.__getitem__, reverse=backwards)
    except TypeError as error:
        if any(map(derives, by)):  # the error names the program's classes
            tracer.graph_break("sort-of-derived-class")
        tracer.raise_real(error)
    return [items[position] for position in order]


@handles(sorted)
def in_order(call: Call, items: Value, *, key: Value | None = None, reverse: Value | None = None) -> Value:
    """A sorted list; the order in which items arrive matters if some may be equal."""
    ordered = key is not None or not items.plain_items
    given = list(call.tracing.python.collect_items(items)) if ordered else in_any_order(call.tracing, items)
    return ListValue(sorted_items(call.tracing, given, key, reverse))


@method_of(ListValue, list.sort)
def sort(tracer: Tracing, self: ListValue, *, key: Value | None = None, reverse: Value | None = None) -> None:
    """Sort in place. Meanwhile the list is empty, and changing it is an error."""
    tracer.mutate(self)
    ordered = held = list(self.items)
    self.items.clear()
    try:
        ordered = sorted_items(tracer, held, key, reverse)
    finally:
        changed = bool(self.items)
        self.items[:] = ordered
    if changed:
        tracer.raise_error(ValueError, "list modified during sort")
