"""Writes of one learned value under a mask, such as `x[mask] = mask_token`.

Their backward gathers the gradients under the mask, a tensor whose size depends on the mask, and sums it. Written as a
choice between two tensors of one shape, all sizes are known, and the loops are ordinary.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping

import attrs
import torch
from torch import Tensor, fx
from torch.fx.node import Argument

WHOLE = slice(None)
NAMED = frozenset(("indices", "values", "accumulate"))


@attrs.frozen
class Write:
    """Writes `values` to `target` at `indices`. new: to a copy; accumulate: added to the old values."""

    target: Argument
    indices: Argument
    values: Argument
    accumulate: Argument = False
    new: bool = False


def _into_copy(target: Argument, indices: Argument, values: Argument, accumulate: Argument = False) -> Write:
    return Write(target, indices, values, accumulate, new=True)


WRITES: Mapping[object, Callable[..., Write]] = {
    operator.setitem: Write,
    "index_put_": Write,
    "index_put": _into_copy,
    torch.index_put_: Write,
    torch.index_put: _into_copy,
    Tensor.index_put_: Write,
    Tensor.index_put: _into_copy,
}


def choose_by_mask(module: object, ctx: object) -> object:
    """The pass: turn such writes into choices."""
    if isinstance(module, fx.GraphModule):
        for node in list(module.graph.nodes):
            if (write := write_of(node)) is not None and (mask := mask_of(write)) is not None:
                replace(module.graph, node, write, mask)
    return module


def write_of(node: fx.Node) -> Write | None:
    """What the node writes, if it calls one of WRITES."""
    called = node.op in ("call_function", "call_method") and node.target in WRITES and node.kwargs.keys() <= NAMED
    return WRITES[node.target](*node.args, **node.kwargs) if called else None


def gathers_unknown_number(node: fx.Node) -> bool:
    """Whether the gradient of what the node writes is gathered at a mask and other tensors together: how many elements
    the mask has is then a size of no result, which torch's fakes refuse."""
    write = write_of(node)
    value = _value(write.values) if write is not None else None
    if write is None or value is None or not value.requires_grad or not isinstance(write.indices, (tuple, list)):
        return False
    indices = [index for index in map(_value, write.indices) if index is not None and index.dim()]
    return len(indices) > 1 and any(index.dtype in (torch.bool, torch.uint8) for index in indices)


def mask_of(write: Write) -> fx.Node | None:
    """The mask, if the write depends on nothing else, and the value is learned and the same at all positions."""
    first, *more = write.indices if isinstance(write.indices, (tuple, list)) and write.indices else (write.indices,)
    target, value, mask = (_value(part) for part in (write.target, write.values, first))
    if target is None or value is None or mask is None or not all(_is_whole(part) for part in more):
        return None
    if mask.dtype != torch.bool or not mask.dim() or not value.requires_grad or not isinstance(write.accumulate, bool):
        return None
    rest = target.dim() - mask.dim()
    alike = (target.dtype, target.device) == (value.dtype, value.device) and mask.device == value.device
    fits = _same_sizes(mask.shape, target.shape[: mask.dim()]) and value.dim() <= rest + 1
    sizes = (1, *target.shape[mask.dim() :])[rest + 1 - value.dim() :] if fits else ()
    return first if alike and fits and _same_sizes(value.shape, sizes, also=1) else None


def replace(graph: fx.Graph, node: fx.Node, write: Write, mask: fx.Node) -> None:
    """Replace a write by a choice."""
    target, value, chosen = _value(write.target), _value(write.values), _value(mask)
    if target is None or value is None or chosen is None:
        return

    def call(name: str, *args: Argument) -> fx.Node:
        made = graph.call_method(name, args)
        made.meta.update({key: said for key, said in node.meta.items() if key != "example_value"})
        return made

    with graph.inserting_before(node):
        rest, wide = target.dim() - chosen.dim(), mask
        for _ in range(rest):
            wide = call("unsqueeze", wide, -1)
        given = call("squeeze", write.values, 0) if value.dim() > rest else write.values
        written = call("clone", write.target) if write.new else write.target
        new = call("add", written, given) if write.accumulate else call("expand_as", given, written)
        last = call("copy_", written, call("where", new, wide, written))
    if "example_value" in node.meta:
        last.meta["example_value"] = node.meta["example_value"]
    node.replace_all_uses_with(last)
    graph.erase_node(node)


def _same_sizes(given: Iterable[object], wanted: Iterable[object], also: int | None = None) -> bool:
    """Whether the sizes are the same numbers or symbols; each may be `also` instead."""
    pairs = zip(given, wanted, strict=True)
    return all((type(a) is int and a == also) or (type(a) is type(b) and str(a) == str(b)) for a, b in pairs)


def _is_whole(part: object) -> bool:
    return isinstance(part, slice) and part == WHOLE


def _value(part: object) -> Tensor | None:
    value = part.meta.get("example_value") if isinstance(part, fx.Node) else None
    return value if isinstance(value, Tensor) else None
