"""Channels last for the convolutions of a CPU that set a graph's peak of memory.

oneDNN copies an image by rows to a layout of its own, and its result back from there: for as long as the convolution
runs, both are in memory twice. With channels last it reads and writes them where they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import attrs
import torch
from torch import Tensor, fx

from armature.plugin_api import GraphKind, fake_of
from armature_aten_lowerings.layouts import (
    FEW_CHANNELS,
    ChannelsLast,
    args_of,
    attempt,
    is_channels_last,
    is_image,
    is_view,
    worth_on_cpu,
)
from armature_aten_lowerings.libraries import LIBRARIES

aten = torch.ops.aten
BLOCK = 16  # channels that lie together in oneDNN's layout
MOST_COPIED = 2  # bytes for each one that a convolution may have copied to become faster
WORTH_COPIES = 1 / 16  # part of the peak that has to be saved
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


def is_by_rows(node: fx.Node) -> bool:
    """Whether a call is a convolution of images for which oneDNN copies them."""
    if node.target is not aten.convolution.default or not isinstance(node.args[0], fx.Node):
        return False
    image = node.args[0]
    return is_image(node) and is_image(image) and not is_channels_last(fake_of(image))


def peak_of(graph: fx.Graph) -> tuple[int, fx.Node | None]:
    """The most bytes in memory while a library runs, but for the graph's inputs, and the call that takes them. Results
    of libraries are in memory, what they read, and what the graph returns; all else is part of kernels."""
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
    """Bytes that oneDNN takes for a convolution of images by rows, besides its arguments and result."""
    if not is_by_rows(call) or not worth_on_cpu(call):
        return 0
    image, weight, *_ = args_of(call)
    read = 0 if fake_of(image).shape[1] <= FEW_CHANNELS else blocked(fake_of(image))
    made = blocked(fake_of(call))
    return max(read + made + int(fake_of(weight).nbytes) - bytes_of(call), made)


def blocked(image: Tensor) -> int:
    """Bytes of an image in oneDNN's layout, which fills up the last block of channels."""
    channels = -(-image.shape[1] // BLOCK) * BLOCK
    return int(image.shape[0] * channels * math.prod(image.shape[2:]) * image.itemsize)
