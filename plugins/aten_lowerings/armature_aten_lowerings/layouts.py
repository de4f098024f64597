"""Propagates channels last between convolutions: the layout of a GPU's matrix units and oneDNN's vector kernels.

In the row-major layout the library transposes the input of each convolution, its weight and its result. Here that is
done once, and following operators (norms, activations, residuals, pooling) preserve the layout. Results of the graph,
and operators that read memory rather than elements, get eager's layout back.
"""

from __future__ import annotations

import abc
import math
import operator
from collections.abc import Callable, Mapping, Sequence

import attrs
import torch
from torch import Tensor, fx
from torch.fx.node import Argument

from armature.plugin_api import GraphKind, fake_of
from armature_aten_lowerings.kernel_layouts import Arguments
from armature_aten_lowerings.workspaces import BLOCK, FEW_CHANNELS

aten = torch.ops.aten
Overload = torch._ops.OpOverload
SMALL_WEIGHT = 4  # a weight is converted if the image has this many times its bytes
# Minimum bytes read and written by a convolution (or its operations) for each byte copied for the layout: bytes on a
# GPU, bytes or operations on a CPU. There the layout saves a fifth of the time, at 60 operations or 5 bytes per ns.
READ_ON_GPU, READ_ON_CPU, COMPUTED_ON_CPU = 2, 10, 120
CALLS_IN_TRAINING = 3  # forward, the gradient of the image and that of the weight
WRITTEN_ON_CPU = 2  # bytes of such a result for each byte copied for the layout
# Bytes read and written by a transposed convolution on a CPU for each byte copied; how many times as large its weight
# may be, which is copied too; and the most channels of an image.
TRANSPOSED_ON_CPU, LARGE_WEIGHT, MANY_CHANNELS = 2, 4, 64

# Operators whose results depend on the positions of elements in memory.
OF_MEMORY = frozenset((aten.as_strided.default, aten.as_strided_scatter.default, aten.as_strided_copy.default))

BATCH_NORMS = frozenset(
    (
        aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit.no_stats, aten.native_batch_norm.default,
    )
)  # fmt: skip


class NotPossible(Exception):
    """The graph's layout can't be changed."""


def worth(node: fx.Node) -> int:
    """The number of bytes that may be copied to give a convolution channels last: in 16 bits on a GPU, in 32 on a
    CPU."""
    return worth_on_cpu(node) or worth_transposed(node) or worth_on_gpu(node)


def worth_on_gpu(node: fx.Node) -> int:
    """Bytes that may be copied for a convolution in 16 bits on a GPU; 0 for any other."""
    image, result = fake_of(node.args[0]), fake_of(node)
    transposed = node.args[6]
    if transposed or result.device.type != "cuda" or result.dtype not in (torch.half, torch.bfloat16):
        return 0
    return (bytes_of(image) + bytes_of(result)) // READ_ON_GPU


def worth_on_cpu(node: fx.Node) -> int:
    """Bytes that may be copied for a convolution in 32 bits on a CPU; 0 for any other."""
    image, weight, result = fake_of(node.args[0]), fake_of(node.args[1]), fake_of(node)
    shown, window, _, stride, padding, _, transposed, _, groups = args_of(node)
    if transposed or result.device.type != "cpu" or result.dtype != torch.float:
        return 0
    if is_of_pixels(shown, window, stride, padding, transposed, groups):  # products are as fast by rows
        return 0
    if is_of_one_window(shown, window, node, padding, transposed, groups):
        return 0
    if not torch.backends.mkldnn.is_available():
        return 0
    operations = 2 * result.numel() * math.prod(weight.shape[1:])
    written = bytes_of(result) // WRITTEN_ON_CPU if groups == 1 and image.shape[1] <= FEW_CHANNELS else 0
    read = (bytes_of(image) + bytes_of(result)) // READ_ON_CPU
    return max(read, int(operations) // COMPUTED_ON_CPU, written)


def worth_transposed(node: fx.Node) -> int:
    """Bytes that may be copied for a transposed convolution in 32 bits on a CPU; 0 for any other.

    By rows, oneDNN copies image, weight and result. With channels last random ones took 0.8 of the time where images
    have at most 64 channels, and as long where they have more (medians with a copy of the weight and half of those of
    image and result; one thread of an EPYC). A result of one channel has both layouts, and for dilated windows with a
    stride oneDNN has no fast kernel with channels last.
    """
    image, weight, result = (fake_of(given) for given in (*args_of(node)[:2], node))
    shown, held, _, stride, padding, dilation, transposed, _, groups = args_of(node)
    if not transposed or result.device.type != "cpu" or result.dtype != torch.float:
        return 0
    if is_of_one_window(shown, held, node, padding, transposed, groups):
        return 0
    if image.shape[1] > MANY_CHANNELS or result.shape[1] == 1 or (max(stride) > 1 and max(dilation) > 1):
        return 0
    written = bytes_of(image) + bytes_of(result)
    if not torch.backends.mkldnn.is_available() or bytes_of(weight) > LARGE_WEIGHT * written:
        return 0
    return written // TRANSPOSED_ON_CPU + bytes_of(weight)


def worth_in_training(node: fx.Node) -> int:
    """Bytes that may be copied for a convolution and its gradients. On a CPU, the gradient of a weight that is large
    beside its image takes longer with channels last."""
    image, weight, result = (fake_of(given) for given in (*args_of(node)[:2], node))
    if bytes_of(weight) * SMALL_WEIGHT > bytes_of(image) + bytes_of(result):
        return worth_on_gpu(node)
    return worth_on_cpu(node) * CALLS_IN_TRAINING or worth_on_gpu(node)


def most_operations(convolutions: Sequence[fx.Node], holds: Callable[[fx.Node], bool]) -> bool:
    """Whether something holds for convolutions that make most of the operations of all."""
    counts: dict[fx.Node, int] = {
        node: fake_of(node).numel() * math.prod(fake_of(node.args[1]).shape[1:]) for node in convolutions
    }
    return sum(count for node, count in counts.items() if holds(node)) > sum(counts.values()) / 2


def fills_blocks(node: fx.Node) -> bool:
    """Whether a convolution on a CPU reads or writes a number of channels that oneDNN's own layout fills up to whole
    blocks. With channels last, forward and backward of those took 0.55 to 0.79 of the time, and of others 0.72 to 1.14
    (two cores of an EPYC)."""
    read = fake_of(node.args[0])
    return any(one.shape[1] % BLOCK and one.shape[1] > FEW_CHANNELS for one in (read, fake_of(node)))


def is_normed(node: fx.Node) -> bool:
    """Whether batch norm reads a convolution's result. Its loops over all pixels of a channel, and what follows it,
    are as fast with channels last, and oneDNN saves its copies: training steps of twelve such networks took 0.68 to 1.0
    of the time (one core of a busy EPYC). Group norm and instance norm view images by rows: 0.97 to 1.1."""
    return any(user.target in BATCH_NORMS for user in node.users)


def splits_channels(node: fx.Node) -> bool:
    """Whether a view divides an image's channels into groups, as shuffles of channels do: with channels last these move
    single elements, not whole planes."""
    return is_image(node.all_input_nodes[0]) and fake_of(node).dim() == 5


def use_channels_last(module: object, ctx: object) -> object:
    """The pass: convert the graph to channels last where that pays. On a CPU, that of training has been converted as a
    joint graph, where the gradients count."""
    if not isinstance(module, fx.GraphModule):
        return module
    return with_channels_last(module, worth if module.meta.get("kind") is GraphKind.INFERENCE else worth_on_gpu)


def use_channels_last_in_training(module: object, ctx: object) -> object:
    """The pass: convert a joint graph to channels last where that pays."""
    if not isinstance(module, fx.GraphModule):
        return module
    convolutions = [node for node in convolutions_of(module) if worth_on_cpu(node)]
    views = module.graph.find_nodes(op="call_function", target=aten.view.default)
    by_rows = any(splits_channels(view) for view in views)
    pays = most_operations(convolutions, fills_blocks) or (not by_rows and most_operations(convolutions, is_normed))
    return with_channels_last(module, worth_in_training if pays else worth_on_gpu)


def convolutions_of(module: fx.GraphModule) -> list[fx.Node]:
    """The module's convolutions of images of which all sizes and strides are numbers."""
    found = module.graph.find_nodes(op="call_function", target=aten.convolution.default)
    return [n for n in found if all(isinstance(given, fx.Node) and is_image(given) for given in n.args[:2])]


def with_channels_last(module: fx.GraphModule, worth: Callable[[fx.Node], int]) -> fx.GraphModule:
    """Convert the module's convolutions to channels last if no more bytes are copied than that is `worth`."""
    chosen = {n: worth(n) for n in convolutions_of(module)}
    return relaid(module, {n: saved for n, saved in chosen.items() if saved}, ChannelsLast)


def relaid(module: fx.GraphModule, chosen: Mapping[fx.Node, int], way: type[Relayout]) -> fx.GraphModule:
    """Change the layout of the chosen nodes if no more bytes are copied than that saves. Otherwise try it for those
    that save more than the copies of what they read."""
    worthy = dict(chosen)
    for _ in range(2):
        found = attempt(module, worthy, way)
        if found is None:
            break
        relayout, copies = found
        if relayout.copied <= sum(worthy.values()):
            module.graph = relayout.graph
            module.recompile()
            break
        worthy = {node: saved for node, saved in worthy.items() if relayout.spent.get(copies[node], 0) <= saved}
        if len(worthy) == len(chosen):
            break
    return module


def attempt(
    module: fx.GraphModule, chosen: Mapping[fx.Node, int], way: type[Relayout]
) -> tuple[Relayout, dict[fx.Node, fx.Node]] | None:
    """A copy of the graph in which the chosen nodes have the other layout, and each node's copy. None if there are no
    such nodes, or it is not possible."""
    if not chosen:
        return None
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(module.graph, copies))
    graph.output_node().meta.update(module.graph.output_node().meta)
    relayout = way(graph, {copies[n] for n in chosen})
    try:
        with torch.no_grad():
            relayout.run()
    except NotPossible:
        return None
    return relayout, copies


def args_of(node: fx.Node) -> Arguments:
    """The arguments of a node, which are of the types that its operator's schema says."""
    return node.args


def is_image(node: fx.Node) -> bool:
    """Whether the node is a tensor [N, C, H, W] of numeric sizes and strides."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or value.dim() != 4:
        return False
    return all(type(n) is int for n in (*value.shape, *value.stride()))


def bytes_of(value: Tensor) -> int:
    """The bytes of a tensor's elements, also where strides are symbols. Errors: NotPossible if a size is one."""
    count = value.numel()
    if type(count) is not int:
        raise NotPossible
    return count * value.itemsize


def is_channels_last(value: Tensor) -> bool:
    """Whether the elements are in memory as [N, H, W, C]."""
    return value.is_contiguous(memory_format=torch.channels_last)


def is_of_pixels(
    image: fx.Node, weight: fx.Node, stride: Sequence[int], padding: Sequence[int], transposed: bool, groups: int
) -> bool:
    """Whether a convolution on a CPU multiplies each pixel's channels by one matrix: its window is one element."""
    value, window = fake_of(image), fake_of(weight)
    sizes = (*value.shape, *value.stride(), *window.shape, groups)
    return bool(
        value.device.type == "cpu"
        and value.dtype in (torch.float32, torch.float64)
        and not transposed
        and all(type(n) is int for n in sizes)
        and value.numel()
        and all(n == 1 for n in (*window.shape[2:], *stride, groups))
        and not any(padding)
    )


def is_of_one_window(
    image: fx.Node, weight: fx.Node, result: fx.Node, padding: Sequence[int], transposed: bool, groups: int
) -> bool:
    """Whether a convolution on a CPU has a window as large as the image, so that its result is one pixel, or multiplies
    an image of one pixel by all of a window, if transposed."""
    value, window = fake_of(image), fake_of(weight)
    pixel, whole = (value, fake_of(result)) if transposed else (fake_of(result), value)
    return bool(
        value.device.type == "cpu"
        and value.dtype in (torch.float32, torch.float64)
        and all(type(n) is int for n in (*value.shape, *window.shape, groups))
        and groups == 1
        and value.numel()
        and not any(padding)
        and all(n == 1 for n in pixel.shape[2:])
        and whole.shape[2:] == window.shape[2:]
    )


@attrs.define(eq=False)
class Relayout(abc.ABC):
    """One walk over a graph. `old` has the old value of each node whose layout has changed.

    copied: bytes copied only for the layout. On GPUs copies of the graph's inputs don't count, because most of them are
    weights. spent: those of them that give a chosen node its inputs.
    """

    graph: fx.Graph
    chosen: set[fx.Node]
    old: dict[fx.Node, Tensor] = attrs.field(factory=dict)
    restored: dict[fx.Node, fx.Node] = attrs.field(factory=dict)
    copied: int = 0
    spent: dict[fx.Node, int] = attrs.field(factory=dict)

    def run(self) -> None:
        """Change the layouts. Errors: NotPossible."""
        for node in list(self.graph.nodes):
            if node.op == "output":
                self.restore_inputs(node)
            elif node in self.chosen:
                self.change(node)
            elif node.op == "call_function" and any(needed in self.old for needed in node.all_input_nodes):
                self.follow(node)

    @abc.abstractmethod
    def change(self, node: fx.Node) -> None:
        """Change the layout of a chosen node."""

    def follow(self, node: fx.Node) -> None:
        """Handle a node with inputs whose layout has changed."""
        target = node.target
        if target is operator.getitem:
            return  # handled with the tuple
        if isinstance(target, Overload) and target._schema.is_mutable and target is aten.copy_.default:
            return
        if not follows_layouts(target) or not self.update(node):
            self.restore_inputs(node)
            if not self.update(node):
                raise NotPossible

    def update(self, node: fx.Node) -> bool:
        """Determine the new layout of the node's results; False if the node refuses the new layout of its inputs."""
        try:
            found = value_of(node)
        except Exception:  # a view that these strides do not allow
            return False
        if isinstance(found, (tuple, list)):
            self.note_several(node, found)
        else:
            self.note(node, found)
        return True

    def note_several(self, node: fx.Node, found: Sequence[object]) -> None:
        for user in node.users:
            position = user.args[1] if user.target is operator.getitem else None
            if not isinstance(position, int):
                raise NotPossible
            self.note(user, found[position])
        node.meta["val"] = type(node.meta["val"])(found)

    def note(self, node: fx.Node, found: object) -> None:
        before = node.meta.get("val")
        if isinstance(found, Tensor) and isinstance(before, Tensor) and found.stride() != before.stride():
            self.old.setdefault(node, before)
            node.meta["val"] = found

    def restore_inputs(self, user: fx.Node) -> None:
        """Give a node that needs the old layout its inputs in that layout."""
        with self.graph.inserting_before(user):
            user.args, user.kwargs = fx.map_arg((user.args, user.kwargs), self.restore)

    def restore(self, node: fx.Node) -> fx.Node:
        """The node in the old layout: a copy, or the same view of one, so that views still share memory."""
        if node not in self.old and not (is_view(node) and any(n in self.old for n in node.all_input_nodes)):
            return node
        if node not in self.restored:
            if is_view(node):
                args, kwargs = fx.map_arg((node.args, node.kwargs), self.restore)
                made = self.graph.call_function(called_by(node), args, kwargs)
                made.meta.update(node.meta)
                made.meta["val"] = value_of(made)
            else:
                made = self.copy_as_before(node)
            self.restored[node] = made
        return self.restored[node]

    def copy_as_before(self, node: fx.Node) -> fx.Node:
        before = self.old[node]
        strides = before.stride()
        order = sorted(range(before.dim()), key=lambda axis: (-strides[axis], axis))
        if not before.permute(order).is_contiguous():
            raise NotPossible
        if order == sorted(order):
            return self.copy(node, node, torch.contiguous_format)
        dense = self.copy(node, self.call(node, aten.permute.default, node, order), torch.contiguous_format)
        return self.call(node, aten.permute.default, dense, [order.index(axis) for axis in range(before.dim())])

    def copy(self, like: fx.Node, node: fx.Node, layout: torch.memory_format) -> fx.Node:
        made = self.call(like, aten.clone.default, node, memory_format=layout)
        if node.op != "placeholder" or made.meta["val"].device.type == "cpu":
            self.copied += bytes_of(made.meta["val"])
        return made

    def call(self, like: fx.Node, target: Overload, node: fx.Node, *args: Argument, **kwargs: Argument) -> fx.Node:
        """A new call, attributed to the same line of the program as the node `like`."""
        made = self.graph.call_function(target, (node, *args), kwargs)
        made.meta.update({key: like.meta[key] for key in ("origin", "stack_trace") if key in like.meta})
        made.meta["val"] = value_of(made)
        return made


@attrs.define(eq=False)
class ChannelsLast(Relayout):
    """Gives convolutions images, and mostly weights, with channels last."""

    turned: dict[fx.Node, fx.Node] = attrs.field(factory=dict)

    def change(self, node: fx.Node) -> None:
        """Give a convolution inputs with channels last."""
        image, weight, *rest = args_of(node)
        before = self.copied
        turned = self.turn(node, image)
        node.args = (turned, self.turn(node, weight) if self.turns_weight(node) else weight, *rest)
        self.spent[node] = self.copied - before
        self.update(node)

    def turns_weight(self, node: fx.Node) -> bool:
        """Whether to convert a weight: always on a GPU, because cuDNN would, and for a transposed convolution, because
        torch would; oneDNN uses a layout of its own."""
        image, weight, *_, transposed, _, _ = args_of(node)
        value, read = fake_of(weight), fake_of(image)
        return transposed or value.device.type != "cpu" or bytes_of(value) * SMALL_WEIGHT <= bytes_of(read)

    def turn(self, user: fx.Node, node: fx.Node) -> fx.Node:
        """The node in channels last."""
        if is_channels_last(node.meta["val"]):
            return node
        if node not in self.turned:
            with self.graph.inserting_before(user):
                self.turned[node] = self.copy(user, node, torch.channels_last)
        return self.turned[node]


def value_of(node: fx.Node) -> object:
    """The result of the node's call for the fake values of its inputs."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    return called_by(node)(*args, **kwargs)


def called_by(node: fx.Node) -> Callable[..., Argument]:
    """The function that a node calls, which results in what other nodes may have as arguments."""
    if isinstance(node.target, str):
        raise TypeError(f"{node} calls the method {node.target}, not a function")
    return node.target


def is_view(node: fx.Node) -> bool:
    """Whether the node is a view of its input, one of several, or the tuple of these."""
    if node.target is operator.getitem:
        return is_view(node.all_input_nodes[0])
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None for r in schema.returns)


def follows_layouts(target: object) -> bool:
    """Whether an operator computes the same elements whatever the layout of its inputs."""
    if not isinstance(target, Overload) or target.namespace not in ("aten", "prims"):
        return False
    return (
        target not in OF_MEMORY
        and torch.Tag.nondeterministic_seeded not in target.tags
        and not (target._schema.is_mutable)
    )
