"""Channels last for the convolutions of a CPU that set a graph's peak of memory, and for their gradients.

oneDNN copies an image by rows to a layout of its own, and its result back from there: for as long as the convolution
runs, both are in memory twice. With channels last it reads and writes them where they are.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping

import attrs
import torch
from torch import Tensor, fx

from armature.plugin_api import GraphKind, fake_of
from armature_aten_lowerings.common import add_call
from armature_aten_lowerings.layouts import (
    ChannelsLast,
    args_of,
    attempt,
    is_channels_last,
    is_image,
    is_view,
    worth_on_cpu,
)
from armature_aten_lowerings.libraries import LIBRARIES
from armature_aten_lowerings.workspaces import WORKSPACES, are_by_rows, of_image_by_rows, of_turned_image

aten = torch.ops.aten
BACKWARD = aten.convolution_backward.default
SPARE = "spare"  # in the meta of a backward graph's input that nobody else is likely to hold
MOST_COPIED = 2  # bytes for each one that a convolution may have copied to become faster
WORTH_COPIES = 1 / 16  # part of the peak that has to be saved
WEIGHT_IN_IMAGE = 4  # times its bytes an image has that is copied for the gradient of a weight: wide ones take longer
MOST_TURNED = 4  # convolutions, each of which takes a copy of the graph


def turn_the_peak(module: object, ctx: object) -> object:
    """The pass: in inference, give channels last to the convolutions at the peak of memory, one after another, for as
    long as that lowers it and few bytes are copied for it."""
    if not isinstance(module, fx.GraphModule) or module.meta.get("kind") is not GraphKind.INFERENCE:
        return module
    if not module.graph.find_nodes(op="call_function", target=aten.convolution.default):
        return module
    allowed = copied = 0
    for _ in range(MOST_TURNED):
        before, highest = peak_of(module.graph)
        saved = worth_on_cpu(highest) if highest is not None and is_by_rows(highest) else 0
        found = attempt(module, {highest: saved}, ChannelsLast) if highest is not None and saved else None
        if found is None:
            break
        relayout, _ = found
        allowed, copied = allowed + MOST_COPIED * saved, copied + relayout.copied
        after, _ = peak_of(relayout.graph)
        if copied > allowed or after > before * (1 - WORTH_COPIES):
            break
        module.graph = relayout.graph
        module.recompile()
    return module


def turn_gradients_at_the_peak(module: object, ctx: object) -> object:
    """The pass: in backward on a CPU, let the gradients of images that set the peak of memory have channels last.

    Of the image itself that call reads only sizes and strides, so it is given the same memory with other strides. The
    incoming gradient is copied, as oneDNN would, and the result is read where it is, by what computes the next one.
    """
    if not isinstance(module, fx.GraphModule) or module.meta.get("kind") is not GraphKind.BACKWARD:
        return module
    calls = [n for n in module.graph.find_nodes(op="call_function", target=BACKWARD) if is_of_image_by_rows(n)]
    if not calls:
        return module
    held = _Line.of(module.graph).bytes_at_calls()
    near = max(held.values()) * (1 - WORTH_COPIES)
    chosen = [n for n in calls if held[n] >= near and gets_smaller(n)][:MOST_TURNED]
    for call in chosen:
        _turn(call)
    if chosen:
        _turn_weights(module.graph)
    return module


def _turn(call: fx.Node) -> None:
    """Let a call compute the gradient of an image with channels last, and what reads that copy it by rows."""
    gradient, image, *rest = args_of(call)
    _, channels, height, width = shape = fake_of(image).shape
    strides = (channels * height * width, 1, width * channels, channels)
    with call.graph.inserting_before(call):
        described = add_call(call, aten.as_strided.default, image, list(shape), list(strides))
        turned = add_call(call, aten.clone.default, gradient, memory_format=torch.channels_last)
        made = add_call(call, BACKWARD, turned, described, *rest)
        if not is_channels_last(made.meta["val"][0]):  # torch calls no oneDNN for it
            return
        result = add_call(call, operator.getitem, made, 0)
        by_rows = add_call(call, aten.clone.default, result, memory_format=torch.contiguous_format)
    for user in list(call.users):
        user.replace_all_uses_with(by_rows)
        call.graph.erase_node(user)
    call.graph.erase_node(call)


def _turn_weights(graph: fx.Graph) -> None:
    """Where the gradient of a weight sets the peak then, let it read the copy of the incoming gradient that is there
    for that of the image, and a copy of the image: oneDNN's copies of both would be there too."""
    held = _Line.of(graph).bytes_at_calls()
    near = max(held.values()) * (1 - WORTH_COPIES)
    for call in [n for n in held if n.target is BACKWARD and held[n] >= near]:
        gradient, image, weight, *rest = args_of(call)
        copied = [user for user in gradient.users if is_turned_copy(user)]
        if rest[-1][0] or not copied or len(copied) + 1 < len(gradient.users) or not has_small_weight(call):
            continue
        with graph.inserting_before(call):
            by_pixels = add_call(call, aten.clone.default, image, memory_format=torch.channels_last)
            turned = add_call(call, aten.clone.default, gradient, memory_format=torch.channels_last)
            made = add_call(call, BACKWARD, turned, by_pixels, weight, *rest)
            for user in [user for user in call.users if user.users]:
                result = add_call(user, operator.getitem, made, user.args[1])
                if fake_of(result).stride() != fake_of(user).stride():
                    result = add_call(user, aten.clone.default, result, memory_format=torch.contiguous_format)
                user.replace_all_uses_with(result)
        for user in list(call.users):
            graph.erase_node(user)
        graph.erase_node(call)
        for copy in copied:
            copy.replace_all_uses_with(turned)
            graph.erase_node(copy)


def is_turned_copy(node: fx.Node) -> bool:
    """Whether a node copies an image to channels last for others."""
    turned = node.target is aten.clone.default and is_image(node) and is_channels_last(fake_of(node))
    return turned and bool(node.users)


def has_small_weight(call: fx.Node) -> bool:
    """Whether a call computes gradients of images by rows, whose weight has few bytes in comparison."""
    gradient, image, weight = (fake_of(n) for n in args_of(call)[:3])
    return are_by_rows(gradient, image, weight) and WEIGHT_IN_IMAGE * weight.nbytes <= image.nbytes


def is_of_image_by_rows(node: fx.Node) -> bool:
    """Whether a call computes the gradient of an image by rows, and only that."""
    gradient, image, _, _, _, _, _, transposed, _, _, mask = args_of(node)
    return list(mask) == [True, False, False] and not transposed and are_by_rows(fake_of(gradient), fake_of(image))


def gets_smaller(call: fx.Node) -> bool:
    """Whether the gradient of an image takes less memory with channels last."""
    gradient, image, weight = (fake_of(n) for n in args_of(call)[:3])
    return of_turned_image(gradient, weight) < of_image_by_rows(gradient, image, weight)


def is_by_rows(node: fx.Node) -> bool:
    """Whether a call is a convolution of images for which oneDNN copies them."""
    if node.target is not aten.convolution.default or not isinstance(node.args[0], fx.Node):
        return False
    image = node.args[0]
    return is_image(node) and is_image(image) and not is_channels_last(fake_of(image))


def peak_of(graph: fx.Graph) -> tuple[int, fx.Node | None]:
    """The most bytes in memory while a library runs, but for inputs that others hold, and the call that takes them.
    Results of libraries are in memory, what they read, and what the graph returns; all else is part of kernels."""
    found = _Line.of(graph).bytes_at_calls()
    highest = max(found, key=lambda node: found[node], default=None)
    return (0, None) if highest is None else (found[highest], highest)


@attrs.frozen(eq=False)
class _Line:
    """The nodes of a graph in their order. calls: those of libraries. bytes_held: those of each value in memory. ends:
    the place of the last call or kernel that reads it."""

    position_of: Mapping[fx.Node, int]
    calls: tuple[fx.Node, ...]
    bytes_held: Mapping[fx.Node, int]
    ends: Mapping[fx.Node, int]

    @classmethod
    def of(cls, graph: fx.Graph) -> _Line:
        """What is in memory, and until when."""
        places = {node: place for place, node in enumerate(graph.nodes)}
        calls = tuple(node for node in places if node.target in LIBRARIES)
        read = [owner(n) for node in (*calls, graph.output_node()) for n in node.all_input_nodes]
        held = {n: bytes_of(n) for n in dict.fromkeys((*calls, *read)) if n.op == "call_function"}
        held |= {n: bytes_of(n) for n in graph.find_nodes(op="placeholder") if n.meta.get(SPARE)}
        ends: dict[fx.Node, int] = {}
        for node in reversed(places):
            ends[node] = max((_read_at(user, held, places, ends) for user in node.users), default=places[node])
        return cls(places, calls, held, ends)

    def bytes_at_calls(self) -> dict[fx.Node, int]:
        """Bytes in memory while each call runs."""
        changes = [0] * (len(self.position_of) + 1)
        for node, size in self.bytes_held.items():
            changes[self.position_of[node]] += size
            changes[self.ends[node] + 1] -= size
        there = tuple(itertools.accumulate(changes))
        return {call: there[self.position_of[call]] + copied_by(call) for call in self.calls}


def _read_at(
    user: fx.Node, held: Mapping[fx.Node, int], places: Mapping[fx.Node, int], ends: Mapping[fx.Node, int]
) -> int:
    """The place where a user reads a value: where what it is a part of is stored."""
    return places[user] if user.op == "output" or (user in held and not is_view(user)) else ends[user]


def owner(node: fx.Node) -> fx.Node:
    """The value whose memory a view shares."""
    while node.op == "call_function" and is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def bytes_of(node: fx.Node) -> int:
    """Bytes of a node's results, of those with sizes that are numbers."""
    value = node.meta.get("val")
    parts = value if isinstance(value, (list, tuple)) else (value,)
    tensors = [part for part in parts if isinstance(part, Tensor) and all(type(n) is int for n in part.shape)]
    return sum(part.nbytes for part in tensors)


def copied_by(call: fx.Node) -> int:
    """Bytes that oneDNN takes for a convolution or its gradients, besides arguments and result. Products of pixels are
    none by then."""
    target = call.target
    if not isinstance(target, torch._ops.OpOverload) or target not in WORKSPACES:
        return 0
    copied = WORKSPACES[target](fx.map_arg(call.args, fake_of), call.meta["val"])  # 0 where sizes are symbols
    return 0 if copied and target is aten.convolution.default and not worth_on_cpu(call) else copied
