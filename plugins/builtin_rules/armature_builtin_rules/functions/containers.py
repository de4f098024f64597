"""Containers of Python: how they are made, their length, their items in order."""

from __future__ import annotations

import collections
from types import MappingProxyType
from typing import Any

import torch

from armature.plugin_api import (
    Call,
    DictValue,
    ListValue,
    RangeValue,
    SetValue,
    SliceValue,
    TracedTensor,
    TupleValue,
    Value,
    factory_of,
    handles,
    in_any_order,
    set_of,
    sorted_items,
    update_dict,
)


@handles(list)
def make_list(call: Call, items: Value | None = None) -> Value:
    """A new list."""
    return ListValue([] if items is None else list(call.tracing.python.taken(items)))


@handles(tuple)
def make_tuple(call: Call, items: Value | None = None) -> Value:
    """A tuple; one is itself."""
    if isinstance(items, TupleValue) and items.kind is tuple:
        return items
    return TupleValue([] if items is None else list(call.tracing.python.taken(items)))


@handles(torch.Size)
def make_size(call: Call, items: Value | None = None) -> Value:
    """The sizes of a tensor, which are ints."""
    sizes = [] if items is None else list(call.tracing.python.taken(items))
    if not all(issubclass(size.python_type(), int) for size in sizes):
        call.graph_break("size-of-no-ints")
    return TupleValue(sizes, torch.Size)


@handles(set, frozenset)
def make_set(call: Call, items: Value | None = None) -> Value:
    """A new set."""
    kind = call.fn if isinstance(call.fn, type) else set
    return SetValue({}, kind) if items is None else set_of(call.tracing, items, kind)


@handles(dict, collections.OrderedDict)
def make_dict(call: Call, other: Value | None = None, /, **more: Value) -> Value:
    """A new dict."""
    made = DictValue({}, call.fn if isinstance(call.fn, type) else dict)
    update_dict(call.tracing, made, *(() if other is None else (other,)), **more)
    return made


@handles(collections.defaultdict)
def make_defaultdict(call: Call, factory: Value | None = None, /, *others: Value, **more: Value) -> Value:
    """A new dict that makes values which it lacks."""
    made = DictValue({}, collections.defaultdict, factory_of(call.tracing, factory))
    update_dict(call.tracing, made, *others, **more)
    return made


@handles(dict.fromkeys)
def from_keys(call: Call, keys: Value, value: Value | None = None) -> Value:
    """A dict of keys that all have one value."""
    made = DictValue({})
    for key in call.tracing.unpack(keys):
        made.set_item(call.tracing, key, call.constant(None) if value is None else value)
    return made


@handles(MappingProxyType)
def mapping_proxy(call: Call, mapping: Value) -> Value:
    """A dict to be read only."""
    if not isinstance(mapping, DictValue) or mapping.kind not in (dict, collections.OrderedDict):
        call.graph_break("mapping-proxy", type=mapping.describe())
    return DictValue(mapping.realise(call.tracing), MappingProxyType, shown=mapping.kind)


@handles(slice)
def make_slice(call: Call, first: Value, second: Value | None = None, step: Value | None = None, /) -> Value:
    """Of `start, stop, step`, or of `stop` alone."""
    none = call.constant(None)
    if second is None:
        return SliceValue((none, first, none))
    return SliceValue((first, second, none if step is None else step))


@handles(range)
def make_range(call: Call, *bounds: Value) -> Value:
    """Of bounds that are known while tracing."""
    if any(bound.is_tensor for bound in bounds):
        call.graph_break("range-of-tensor")
    try:
        plain: list[Any] = [call.tracing.python.index(bound).as_constant() for bound in bounds]
        return RangeValue(range(*plain))
    except (TypeError, ValueError) as error:
        call.tracing.raise_real(error)


@handles(len)
def length(call: Call, obj: Value) -> Value:
    """That of a tensor is its first size, which may be a symbol."""
    if isinstance(obj, TracedTensor) and obj.fake.shape and not call.tracing.overrides.present:
        return call.new_value(obj.fake.shape[0])
    return call.constant(obj.length(call.tracing))


@handles(sorted)
def in_order(call: Call, items: Value, *, key: Value | None = None, reverse: Value | None = None) -> Value:
    """A sorted list; which order the items come in matters where some may be equal."""
    ordered = key is not None or not items.plain_items
    given = list(call.tracing.python.taken(items)) if ordered else in_any_order(call.tracing, items)
    return ListValue(sorted_items(call.tracing, given, key, reverse))
