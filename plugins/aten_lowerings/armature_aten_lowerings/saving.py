"""Reduces the memory that forward saves for backward: changes of the joint graph, before it is partitioned.

The partitioner saves as few bytes as it can; these passes offer it choices that backward operators do not.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import CheckpointPolicy

from armature.backend_api import compute_dtype
from armature_aten_lowerings.kernel_layouts import Arguments
from armature_aten_lowerings.layouts import args_of
from armature_aten_lowerings.windows import Window

aten = torch.ops.aten
Result = TypeVar("Result")
OF_ACTIVATIONS = (  # backward operators of activations that are elementwise, although torch does not tag them so
    aten.elu_backward.default, aten.hardsigmoid_backward.default, aten.hardswish_backward.default,
    aten.hardtanh_backward.default, aten.leaky_relu_backward.default, aten.log_sigmoid_backward.default,
    aten.mish_backward.default, aten.softplus_backward.default,
)  # fmt: skip
OF_SIZES = (  # backward operators that read only the size and layout of their second argument, the image
    aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default,
    aten._adaptive_avg_pool2d_backward.default, aten._adaptive_avg_pool3d_backward.default,
    aten.reflection_pad1d_backward.default, aten.reflection_pad2d_backward.default,
    aten.reflection_pad3d_backward.default, aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default, aten.replication_pad3d_backward.default,
)  # fmt: skip

OF_NORMS: Mapping[object, int] = {aten.native_layer_norm_backward.default: 1}
"""Backward operators of norms that are loops, and the position of the argument that they read element by element."""


def drop_detached(module: object, ctx: object) -> object:
    """Remove `detach` from the joint graph, where gradients are explicit.

    A backward formula that uses an operator's result reads it through `detach`. That is not a loop, so the partitioner
    would save the value instead of recomputing it.
    """
    if not isinstance(module, fx.GraphModule):
        return module
    for target in (aten.detach.default, aten.alias.default):
        for node in module.graph.find_nodes(op="call_function", target=target):
            if all(user.op != "output" for user in node.users):  # two results are two tensors
                node.replace_all_uses_with(node.all_input_nodes[0])
                module.graph.erase_node(node)
    drop_copies(module.graph)
    return module


def drop_copies(graph: fx.Graph) -> None:
    """Remove the copies that in-place activations make of their arguments for backward: nothing writes to those now."""
    backward = depending_on_tangents(graph)
    for node in graph.find_nodes(op="call_function", target=aten.clone.default):
        (source,) = node.all_input_nodes
        if same_strides(node, source) and all(user in backward and is_elementwise(user) for user in node.users):
            node.replace_all_uses_with(source)
            graph.erase_node(node)


def same_strides(node: fx.Node, other: fx.Node) -> bool:
    """Whether two values have the same strides for all sizes, compared as texts, because that adds no guard."""
    strides = [list(map(str, each.meta["val"].stride())) for each in (node, other)]
    return strides[0] == strides[1]


def keep_signs(module: object, ctx: object) -> object:
    """The derivative of `relu` only needs to know where the result is positive: one byte per element."""
    if not isinstance(module, fx.GraphModule):
        return module
    for node in module.graph.find_nodes(op="call_function", target=aten.threshold_backward.default):
        grad, result, limit = node.args
        if (
            not isinstance(limit, fx.Node)
            and grad.meta["val"].dtype == node.meta["val"].dtype == result.meta["val"].dtype
        ):
            (made,) = inlined(node, where_above(limit), grad, result)
            node.replace_all_uses_with(made)
            module.graph.erase_node(node)
    return module


def where_above(limit: float) -> Callable[[Tensor, Tensor], Tensor]:
    """`threshold_backward` as a comparison and a choice."""
    return lambda grad, result: torch.where(result <= limit, grad.new_zeros(()), grad)


def keep_window_positions(module: object, ctx: object) -> object:
    """Save the position of each maximum within its window, one byte, instead of its position in the image, eight.

    Of the image, backward of `max_pool2d` only needs the size and layout, so it is given new memory in its place.
    """
    if not isinstance(module, fx.GraphModule):
        return module
    for node in module.graph.find_nodes(op="call_function", target=aten.max_pool2d_with_indices_backward.default):
        grad, image, kernel, stride, padding, dilation, _, places = args_of(node)
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


def keep_sizes(module: object, ctx: object) -> object:
    """Backward of averages in windows and of padding only needs the size and layout of the image, so it is given new
    memory in its place, which loops don't allocate."""
    if not isinstance(module, fx.GraphModule):
        return module
    backward = depending_on_tangents(module.graph)
    for target in OF_SIZES:
        for node in module.graph.find_nodes(op="call_function", target=target):
            grad, image = args_of(node)[:2]
            if image.op == "placeholder" or image in backward or not has_numbers(image):
                continue
            if all(reader is node or is_elementwise(reader) for reader in readers_in(backward, image)):
                node.replace_input_with(image, memory_like(image, grad, node))
    return module


def recompute_norms(module: object, ctx: object) -> object:
    """In backward, recompute the result of a normalisation, and activations of it, instead of saving them.

    They are cheap functions of the normalisation's input and statistics, which its own backward needs anyway. Backward
    of another normalisation of them recomputes them too.
    """
    if not isinstance(module, fx.GraphModule):
        return module
    backward = depending_on_tangents(module.graph)
    places = {node: place for place, node in enumerate(module.graph.nodes)}
    for node in list(module.graph.nodes):
        if node.op != "call_function" or node.target not in NORMALIZED:
            continue
        results = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        exact = has_exact_statistics(results)
        if not exact and not can_be_exact(node, results):
            continue
        values = functions_of(results[0], backward, places)
        readers = {value: found for value in values if (found := cheap_readers(value, backward))}
        if readers:
            first = min((reader for found in readers.values() for reader in found), key=places.__getitem__)
            new = results if exact else with_exact_statistics(node, results)
            compute_for({new[0] if k is results[0] else k: v for k, v in readers.items()}, first, node, new)
    return module


def can_be_exact(node: fx.Node, results: Mapping[int, fx.Node]) -> bool:
    """Whether a normalisation of 16-bit values rounds its statistics to 16 bits, and can be asked for them in 32."""
    return len(results) == 3 and node.target in WIDENED and results[1].meta["val"].numel() > 0


def with_exact_statistics(node: fx.Node, results: Mapping[int, fx.Node]) -> dict[int, fx.Node]:
    """The results of the same normalisation of the arguments in 32 bits, its first one rounded: kernels compute so
    anyway. Backward still gets rounded statistics, as eager mode's does."""
    out, rounded = (results[k].meta["val"].dtype for k in (0, 1))
    given = [arg for arg in node.args if isinstance(arg, fx.Node)]
    # The partitioner takes what a normalisation reads to be in memory, and would save it there in 32 bits.
    exact = [inlined(node, lambda value: value.to(compute_dtype(value.dtype)), arg, recompute=True)[0] for arg in given]

    def wide(*given: Tensor) -> tuple[Tensor, ...]:
        value, mean, rstd = of_given(lambda args: WIDENED[node.target](*args), node.args, *given)
        return value.to(out), mean, rstd, mean.to(rounded), rstd.to(rounded)

    value, mean, rstd, *others = inlined(node, wide, *exact)
    for old, new in zip((results[k] for k in range(3)), (value, *others), strict=True):
        old.replace_all_uses_with(new)
    return {0: value, 1: mean, 2: rstd}


def functions_of(value: fx.Node, backward: set[fx.Node], places: Mapping[fx.Node, int]) -> list[fx.Node]:
    """The value, and the nodes that forward computes elementwise from it alone, in the order of the graph."""
    found, todo = {value}, [value]
    while todo:
        for user in set(todo.pop().users) - found - backward:
            if is_elementwise(user) and found.issuperset(user.all_input_nodes):
                found.add(user)
                todo.append(user)
    return sorted(found, key=places.__getitem__)


def cheap_readers(value: fx.Node, backward: set[fx.Node]) -> list[fx.Node]:
    """The nodes of backward that read a value; empty if one of them needs it in memory."""
    readers = readers_in(backward, value)
    return readers if all(reader in value.users and reads_elements(reader, value) for reader in readers) else []


def reads_elements(reader: fx.Node, value: fx.Node) -> bool:
    """Whether an operator can compute the value's elements itself: it is elementwise, or backward of a norm of it."""
    place = OF_NORMS.get(reader.target)
    normed = place is not None and all((arg is value) == (k == place) for k, arg in enumerate(reader.args))
    return normed or is_elementwise(reader)


def compute_for(
    readers: Mapping[fx.Node, Sequence[fx.Node]], first: fx.Node, node: fx.Node, results: Mapping[int, fx.Node]
) -> None:
    """Recompute the values of `readers` from the input of the normalisation `node`, before their first reader.

    results: the nodes of its results, by position. The saved values stay in use if the others would have other layouts.
    """
    given = [arg for arg in node.args if isinstance(arg, fx.Node)]
    norm = functools.partial(of_given, NORMALIZED[node.target], node.args)
    (made,) = inlined(first, norm, *given, results[1], results[2])
    if not same_strides(made, results[0]):
        return
    copies = {results[0]: made}

    def copied(value: fx.Node) -> fx.Node:
        if value not in copies:
            for source in value.all_input_nodes:
                copied(source)
            with first.graph.inserting_before(first):
                copies[value] = first.graph.node_copy(value, copies.__getitem__)
        return copies[value]

    for value, found in readers.items():
        for reader in found:
            reader.replace_input_with(value, copied(value))


def recompute_dropout(module: object, ctx: object) -> object:
    """Recompute results of dropout in backward. The result is the argument times the mask, which has one byte per
    element and is needed by dropout's own backward anyway. The backward of a product recomputes the result from these
    if the argument is cheap to compute or saved as well."""
    if not isinstance(module, fx.GraphModule):
        return module
    backward = depending_on_tangents(module.graph)
    for node in module.graph.find_nodes(op="call_function", target=aten.native_dropout.default):
        given, chance, training = node.args
        results = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        source = behind_views(given)
        cheap = is_elementwise(source) or any(user in backward for user in source.users)
        cheap = cheap and "recompute" not in source.meta  # such a value and this one would be large at the same time
        if len(results) < 2 or training is False or chance >= 1 or not cheap or not is_on_cpu(given):
            continue
        if readers := viewed(results[0], backward):
            first = next(each for each in module.graph.nodes if each in readers)
            again = functools.partial(dropped_out, scale=1 / (1 - chance))
            (made,) = inlined(first, again, given, results[1], recompute=True)
            if same_strides(made, results[0]):
                read_instead(readers, results[0], made, first)
    return module


def dropped_out(value: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The first result of `native_dropout`, as the kernel computes it."""
    return value * mask * scale


def behind_views(node: fx.Node) -> fx.Node:
    """The value at the start of a chain of views."""
    while isinstance(node.target, torch._ops.OpOverload) and node.target.is_view:
        node = node.all_input_nodes[0]
    return node


def is_on_cpu(node: fx.Node) -> bool:
    """Whether a value is on the CPU. On other devices a kernel draws the same random numbers again, and needs no
    mask."""
    value = node.meta["val"]
    return bool(isinstance(value, Tensor) and value.device.type == "cpu")


def viewed(value: fx.Node, backward: set[fx.Node]) -> dict[fx.Node, fx.Node]:
    """The nodes of backward that read a value, with that value or the view of it that each reads. Empty if one of
    these views depends on more than the value."""
    found: dict[fx.Node, fx.Node] = {}
    for user in value.users:
        if user in backward:
            found[user] = value
        elif isinstance(user.target, torch._ops.OpOverload) and user.target.is_view:
            below = viewed(user, backward)
            if below and user.all_input_nodes != [value]:
                return {}
            found |= below
    return found


def read_instead(readers: Mapping[fx.Node, fx.Node], old: fx.Node, new: fx.Node, first: fx.Node) -> None:
    """Make these nodes read another value, or copies of the views that they read; the copies are made before the first
    of the nodes."""
    copies = {old: new}

    def copied(view: fx.Node) -> fx.Node:
        if view not in copies:
            copied(view.all_input_nodes[0])
            with first.graph.inserting_before(first):
                copies[view] = first.graph.node_copy(view, copies.__getitem__)
                copies[view].meta["recompute"] = CheckpointPolicy.PREFER_RECOMPUTE
        return copies[view]

    for reader, view in readers.items():
        reader.replace_input_with(view, copied(view))


def depending_on_tangents(graph: fx.Graph) -> set[fx.Node]:
    """The nodes of backward in a joint graph."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        of_loss = node.op == "placeholder" and str(node.target).startswith("tangents")
        if of_loss or not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def readers_in(backward: set[fx.Node], node: fx.Node) -> list[fx.Node]:
    """The nodes of backward that read a value, or a view of it made in forward."""
    found: list[fx.Node] = []
    for user in node.users:
        if user in backward:
            found.append(user)
        elif isinstance(user.target, torch._ops.OpOverload) and user.target.is_view:
            found += readers_in(backward, user)
    return found


def is_elementwise(node: fx.Node) -> bool:
    """Whether an operator computes element by element, so that it can compute its operands too."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and (
        torch.Tag.pointwise in target.tags or target in OF_ACTIVATIONS
    )


def has_exact_statistics(results: Mapping[int, fx.Node]) -> bool:
    """Whether the saved statistics are exact: on a CPU they may have been rounded to the input's dtype."""
    values = [results[k].meta["val"] for k in range(3) if k in results]
    return len(values) == 3 and values[1].numel() > 0 and values[1].dtype == compute_dtype(values[0].dtype)


def of_given(function: Callable[..., Result], args: Sequence[object], *given: Tensor) -> Result:
    """The function of an operator's arguments, whose tensors are the first ones of `given`, and the rest of `given`."""
    tensors = iter(given)
    whole = [next(tensors) if isinstance(arg, fx.Node) else arg for arg in args]
    return function(whole, *tensors)


def layer_norm_of(args: Arguments, mean: Tensor, rstd: Tensor) -> Tensor:
    """The first result of `native_layer_norm`."""
    x, _, weight, bias, _ = args
    return scaled((x.to(mean.dtype) - mean) * rstd, weight, bias).to(x.dtype)


def group_norm_of(args: Arguments, mean: Tensor, rstd: Tensor) -> Tensor:
    """The first result of `native_group_norm`, whose statistics are of shape (batch, groups)."""
    x, weight, bias, *_, groups, _ = args
    each = x.shape[1] // groups
    middle, factor = (by_channel(value.repeat_interleave(each, 1), x.dim()) for value in (mean, rstd))
    affine = [None if value is None else by_channel(value, x.dim()) for value in (weight, bias)]
    return scaled((x.to(mean.dtype) - middle) * factor, *affine).to(x.dtype)


def batch_norm_of(args: Arguments, mean: Tensor, rstd: Tensor) -> Tensor:
    """The first result of a batch normalisation in training."""
    x, weight, bias, *_ = args
    affine = [None if value is None else by_channel(value, x.dim()) for value in (weight, bias)]
    return scaled((x.to(mean.dtype) - by_channel(mean, x.dim())) * by_channel(rstd, x.dim()), *affine).to(x.dtype)


def by_channel(value: Tensor, dims: int) -> Tensor:
    """Values of channels, or of the channels of each image, to be broadcast over pixels."""
    return value[(..., *[None] * (dims - 2))]


def scaled(value: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """`value * weight + bias`, without what is missing."""
    value = value if weight is None else value * weight
    return value if bias is None else value + bias


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


def has_numbers(node: fx.Node) -> bool:
    """Whether sizes, strides and offset are known at compile time."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return False
    return all(isinstance(n, int) for n in (*value.shape, *value.stride(), value.storage_offset()))


def inlined(
    before: fx.Node, function: Callable[..., object], *given: fx.Node, recompute: bool = False
) -> tuple[fx.Node, ...]:
    """The results of `function` on the nodes' values, with its operators inserted before a node. recompute: they belong
    to backward."""
    values = [node.meta["val"] for node in given]
    with values[0].fake_mode:
        traced = make_fx(lambda given: function(*given))(values)
    known: dict[fx.Node, fx.Node] = dict(zip(traced.graph.find_nodes(op="placeholder"), given, strict=True))
    origin: dict[str, object] = {key: before.meta[key] for key in ("origin", "stack_trace") if key in before.meta}
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


NORMALIZED: Mapping[object, Callable[..., Tensor]] = {
    aten.native_layer_norm.default: layer_norm_of,
    aten.native_group_norm.default: group_norm_of,
    aten._native_batch_norm_legit_functional.default: batch_norm_of,
    aten._native_batch_norm_legit.no_stats: batch_norm_of,
}
WIDENED: Mapping[object, Callable[..., tuple[Tensor, ...]]] = {
    aten.native_layer_norm.default: torch.native_layer_norm,
    aten.native_group_norm.default: torch.native_group_norm,
}
