"""Reduces the memory that forward saves for backward: changes of the joint graph, before it is partitioned.

The partitioner saves as few bytes as it can; these passes offer it choices that backward operators do not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import CheckpointPolicy

from armature_aten_lowerings.windows import Window

aten = torch.ops.aten


def drop_detached(module: object, ctx: object) -> object:
    """In the joint graph autograd has done its work: `detach` of a value is the value itself.

    A backward formula that uses the operator's result reads it detached, by an operator that is not a loop, so the
    value would have to be saved instead of recomputed.
    """
    if not isinstance(module, fx.GraphModule):
        return module
    for target in (aten.detach.default, aten.alias.default):
        for node in module.graph.find_nodes(op="call_function", target=target):
            if all(user.op != "output" for user in node.users):  # two results are two tensors
                node.replace_all_uses_with(node.all_input_nodes[0])
                module.graph.erase_node(node)
    return module


def keep_signs(module: object, ctx: object) -> object:
    """The derivative of `relu` only needs to know where the result is positive: one byte per element."""
    if not isinstance(module, fx.GraphModule):
        return module
    for node in module.graph.find_nodes(op="call_function", target=aten.threshold_backward.default):
        grad, result, limit = node.args
        if grad.meta["val"].dtype == node.meta["val"].dtype == result.meta["val"].dtype:
            (made,) = inlined(node, where_above(limit), grad, result)
            node.replace_all_uses_with(made)
            module.graph.erase_node(node)
    return module


def where_above(limit: float) -> Callable[[Tensor, Tensor], Tensor]:
    """`threshold_backward` as a comparison and a choice."""
    return lambda grad, result: torch.where(result <= limit, grad.new_zeros(()), grad)


def keep_window_positions(module: object, ctx: object) -> object:
    """The position of a maximum within its window fits in a byte, its position in the image takes eight. Backward of
    `max_pool2d` only needs the size and layout of the image otherwise, for which any memory will do."""
    if not isinstance(module, fx.GraphModule):
        return module
    for node in module.graph.find_nodes(op="call_function", target=aten.max_pool2d_with_indices_backward.default):
        grad, image, kernel, stride, padding, dilation, _, places = node.args
        if not has_numbers(image) or not has_numbers(places):
            continue
        node.replace_input_with(image, memory_like(image, grad, node))
        window = Window(image.meta["val"], kernel, stride or kernel, padding, dilation)
        if window.can_pack and all(user.target is node.target for user in places.users):
            packed = compared(places, image, window) or inlined(places.next, window.packed, places)[0]
            if window.has_few_holders and on_cpu_with_channels_last(node):
                gradient = functools.partial(window.gradient, size=node.meta["val"].shape[-2:])
                (found,) = inlined(node, gradient, grad, packed, recompute=True)
                node.replace_all_uses_with(found)
                module.graph.erase_node(node)
            else:
                (found,) = inlined(node, window.unpacked, packed, recompute=True)
                node.replace_input_with(places, found)
    return module


def on_cpu_with_channels_last(node: fx.Node) -> bool:
    """Whether vectors run along the channels of an image. Along rows, each lane of a vector would read windows of its
    own, of which the library reads each only once."""
    value = node.meta["val"]
    last = value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last)
    return bool(value.device.type == "cpu" and last and not value.is_contiguous())


def compared(places: fx.Node, image: fx.Node, window: Window) -> fx.Node | None:
    """The position of each maximum in its window, from comparisons that replace the pooling operator. None for large
    windows, which read each element too often."""
    pool = places.args[0]
    if not window.is_small or not isinstance(pool, fx.Node) or pool.target is not aten.max_pool2d_with_indices.default:
        return None
    largest, element = inlined(pool, functools.partial(window.largest, size=places.meta["val"].shape[-2:]), image)
    if largest.meta["val"].stride() != places.meta["val"].stride():
        return None
    for user in list(pool.users):
        if user.args[1] == 0:
            user.replace_all_uses_with(largest)
    return element


def memory_like(node: fx.Node, source: fx.Node, before: fx.Node) -> fx.Node:
    """New, unwritten memory with a node's size and layout, made from `source` (which determines when)."""
    value = node.meta["val"]
    size, strides = list(value.shape), list(value.stride())
    with before.graph.inserting_before(before):
        made = before.graph.call_function(
            aten.new_empty_strided.default, (source, size, strides), {"dtype": value.dtype}
        )
    made.meta.update(before.meta)
    made.meta["val"] = value.new_empty_strided(size, strides)
    return made


def has_numbers(node: Any) -> bool:
    """Whether sizes and strides are known at compile time."""
    value = node.meta.get("val")
    return isinstance(value, Tensor) and all(isinstance(n, int) for n in (*value.shape, *value.stride()))


def inlined(
    before: fx.Node, function: Callable[..., Any], *given: fx.Node, recompute: bool = False
) -> tuple[fx.Node, ...]:
    """The results of `function` on the nodes' values, with its operators inserted before a node. recompute: they belong
    to backward."""
    values = [node.meta["val"] for node in given]
    with values[0].fake_mode:
        traced = make_fx(lambda given: function(*given))(values)
    known: dict[fx.Node, fx.Node] = dict(zip(traced.graph.find_nodes(op="placeholder"), given, strict=True))
    origin: dict[str, Any] = {key: before.meta[key] for key in ("origin", "stack_trace") if key in before.meta}
    for node in traced.graph.nodes:
        if node.op == "output":
            return tuple(known[result] for result in node.all_input_nodes)
        if node.op == "placeholder":
            continue
        with before.graph.inserting_before(before):
            made = known[node] = before.graph.node_copy(node, known.__getitem__)
        made.meta = {**origin, "val": node.meta["val"]}
        if recompute:
            made.meta["recompute"] = CheckpointPolicy.PREFER_RECOMPUTE
    raise ValueError("a graph without an output")
