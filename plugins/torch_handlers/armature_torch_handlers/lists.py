"""`torch.tensor` of lists that hold tensors: eager mode reads the number from each, the graph stacks them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from armature.plugin_api import Call, TracedTensor, TupleValue, Value, VaryingNumber, known_before_graph

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
REALS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
# The dtype as which eager mode reads numbers before it converts them to the result's dtype.
TAKEN_AS: dict[torch.dtype, torch.dtype] = {
    torch.bool: torch.bool,
    **dict.fromkeys(INTEGERS, torch.int64),
    **dict.fromkeys(REALS, torch.float64),
    **dict.fromkeys(COMPLEX, torch.complex128),
}


def leaves(call: Call, data: Value) -> Iterator[Value]:
    """The values in nested lists and tuples."""
    if not is_list(data):
        yield data
        return
    for item in call.tracing.unpack(data):
        yield from leaves(call, item)


def is_list(data: Value) -> bool:
    """Whether it is a list or tuple."""
    return issubclass(data.python_type(), (list, tuple))


def of_tensors(call: Call, data: Value, options: dict[str, Value]) -> Value | None:
    """The tensor of nested lists that contain tensors, or of numbers of which some vary; otherwise None. Breaks the
    graph if eager mode raises, or makes something that a graph cannot."""
    items = list(leaves(call, data))
    tensors = is_list(data) and any(item.is_tensor for item in items)
    if not tensors and not any(map(varies, items)):
        return None
    made = stacked(call, data, options)
    if made is None and tensors:
        call.graph_break("tensor-of-tensors", operation=f"torch.{call.fn.__name__}")
    return made


def stacked(call: Call, data: Value, options: dict[str, Value]) -> Value | None:
    """Like `of_tensors`, or None if it can't be traced."""
    given, sizes = list(leaves(call, data)), sizes_of(call, data)
    kinds = [dtype_of(item) for item in given]
    known = all(value.is_constant for value in options.values())
    if sizes is None or not known or call.tracing.ending.undo or call.tracing.overrides.present:
        return None
    chosen = {name: value.as_constant() for name, value in options.items() if value.as_constant()}
    dtype = chosen.get("dtype") or promoted(kinds)
    if (
        chosen.keys() - {"dtype", "device"}
        or not isinstance(dtype, torch.dtype)
        or not all(fits(k, dtype) for k in kinds)
    ):
        return None
    device = call.constant(chosen.get("device", torch.get_default_device()))
    taken, to = {"device": device, "dtype": call.constant(TAKEN_AS[dtype])}, {"dtype": call.constant(dtype)}
    parts = [part(call, item, taken) for item in given]
    whole = call.graph_call(torch.stack, TupleValue(parts))
    return call.graph_call("to", call.graph_call("reshape", whole, call.constant(sizes)), **to)


def part(call: Call, item: Value, options: dict[str, Value]) -> Value:
    """An item as a tensor without axes. A float that varies is an input of the graph."""
    if item.is_tensor:
        return call.graph_call("to", call.graph_call("detach", item), **options)
    if not varies(item):
        return call.tracing.graph.call(torch.tensor, (item,), options)
    if item.python_type() is int or not isinstance(item, VaryingNumber):
        return call.graph_call(torch.full, TupleValue([]), item, **options)
    return call.graph_call("to", call.graph_call("detach", item.as_tensor()), **options)


def varies(item: Value) -> bool:
    """Whether it is an int or float that varies from call to call, and is known before the graph."""
    if item.is_constant or item.is_tensor or item.python_type() not in (int, float):
        return False
    return known_before_graph(item)


def fits(kind: torch.dtype | None, dtype: torch.dtype) -> bool:
    """Whether eager mode can convert every number of a kind to a dtype, with the same result as in the graph."""
    if kind is None or dtype not in TAKEN_AS:
        return False
    return torch.promote_types(kind, dtype) is dtype or (dtype in REALS and kind in REALS)


def sizes_of(call: Call, data: Value) -> tuple[int, ...] | None:
    """The lengths of nested lists, None if they are ragged."""
    if not is_list(data):
        return ()
    inner = {sizes_of(call, item) for item in call.tracing.unpack(data)}
    first = inner.pop() if len(inner) == 1 else None
    return None if first is None else (len(call.tracing.unpack(data)), *first)


def dtype_of(item: Value) -> torch.dtype | None:
    """The dtype that a number counts as; None if it is not supported."""
    if isinstance(item, TracedTensor):
        plain = item.fake.dim() == 0 and item.dtype in TAKEN_AS and item.device.type != "meta"
        return item.dtype if plain else None
    if varies(item):
        return torch.int64 if item.python_type() is int else torch.get_default_dtype()
    number = item.as_constant() if item.is_constant else None
    if type(number) is int and not -(2**63) <= number < 2**63:
        return None
    kinds = {bool: torch.bool, int: torch.int64, float: torch.get_default_dtype()}
    return kinds.get(type(number))


def promoted(kinds: list[torch.dtype | None]) -> torch.dtype | None:
    """The dtype of the result if none is given."""
    found = kinds[0]
    for kind in kinds[1:]:
        found = torch.promote_types(found, kind) if found is not None and kind is not None else None
    return found
