"""Products with frozen weights: batch norms become part of them; oneDNN has convolutions' weights in its own layout.

The weights are computed where the graph uses them; the core computes once what depends on frozen inputs alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import attrs
import torch
from torch import fx

from armature.plugin_api import Services, fake_of, frozen_values, onednn, with_all_inputs
from armature_aten_lowerings.common import add_call
from armature_aten_lowerings.layouts import args_of, is_channels_last, is_image, is_of_pixels

aten = torch.ops.aten
ACTIVATIONS: dict[object, str] = {aten.relu.default: "relu", aten.hardtanh.default: "hardtanh"}
"""What oneDNN computes while the result of a convolution is in registers, no slower than a loop of ours."""


@attrs.frozen
class Product:
    """A node that multiplies by a weight, whose axis number `channels` is the channels of the result.
    with_weights: makes the same with another weight and bias."""

    weight: fx.Node
    bias: fx.Node | None
    channels: int
    with_weights: Callable[[fx.Node, fx.Node], fx.Node]


def product_of(node: fx.Node) -> Product | None:
    """The node as a convolution or a linear layer; None if it is neither, or channels have no axis of their own."""
    if node.target is aten.convolution.default:
        image, weight, bias, *options = args_of(node)
        *_, transposed, _, groups = options
        if transposed and groups != 1:
            return None
        return Product(
            weight, bias, int(transposed), lambda w, b: add_call(node, aten.convolution.default, image, w, b, *options)
        )
    if node.target is aten.mm.default and not node.kwargs:
        rows, weight = args_of(node)[:2]
        return Product(weight, None, 1, lambda w, b: add_call(node, aten.addmm.default, b, rows, w))
    if node.target is aten.addmm.default and not node.kwargs and fake_of(node.args[0]).dim() == 1:
        bias, rows, weight = args_of(node)[:3]
        return Product(weight, bias, 1, lambda w, b: add_call(node, aten.addmm.default, b, rows, w))
    return None


def fold_batch_norms(module: object, ctx: Services) -> object:
    """The pass: a convolution or linear layer and the batch norm after it become one if all their weights are
    frozen."""
    if not isinstance(module, fx.GraphModule):
        return module
    norms = module.graph.find_nodes(op="call_function", target=aten._native_batch_norm_legit_no_training.default)
    known = frozen_values(module.graph, ctx.operators) if norms else set()
    for norm in norms:
        product = product_of(norm.args[0])
        if product is not None and len(norm.args[0].users) == 1:
            _fold(norm, norm.args[0], product, known)
    return module


def _fold(norm: fx.Node, node: fx.Node, product: Product, known: set[fx.Node]) -> None:
    _, *figures, _, eps = args_of(norm)
    needed = [n for n in (*figures, product.weight, product.bias) if n is not None]
    same_dtype = fake_of(node).dtype == norm.meta["val"][0].dtype
    if not same_dtype or not all(n in known for n in needed):
        return
    if any(user.target is not operator.getitem or user.args[1] != 0 for user in norm.users if user.users):
        return
    first = [user for user in norm.users if user.args[1] == 0]
    with norm.graph.inserting_before(node):
        made = product.with_weights(*_folded(node, figures, eps, product))
    made.meta["val"] = fake_of(node)
    for result in first:
        result.replace_all_uses_with(made)
    for gone in (*norm.users, norm, node):
        norm.graph.erase_node(gone)


def _folded(like: fx.Node, figures: Sequence[fx.Node | None], eps: float, product: Product) -> tuple[fx.Node, fx.Node]:
    """Weight and bias of a product that includes the batch norm after it, computed in float32 at least and rounded
    once."""
    dtype = fake_of(product.weight).dtype
    wide = (_widened(like, one) for one in (*figures, product.weight, product.bias))
    factor, summand, mean, variance, wide_weight, bias = wide
    scale = add_call(like, aten.rsqrt.default, add_call(like, aten.add.Scalar, variance, eps))
    if factor is not None:
        scale = add_call(like, aten.mul.Tensor, scale, factor)
    shape = [-1 if k == product.channels else 1 for k in range(fake_of(product.weight).dim())]
    new_weight = add_call(like, aten.mul.Tensor, wide_weight, add_call(like, aten.view.default, scale, shape))
    offset = add_call(like, aten.neg.default, mean) if bias is None else add_call(like, aten.sub.Tensor, bias, mean)
    new_bias = add_call(like, aten.mul.Tensor, offset, scale)
    if summand is not None:
        new_bias = add_call(like, aten.add.Tensor, new_bias, summand)
    return _converted(like, new_weight, dtype), _converted(like, new_bias, dtype)


def _widened(like: fx.Node, value: fx.Node | None) -> fx.Node | None:
    """The value in float32, if it has fewer bits."""
    if value is None or fake_of(value).dtype not in (torch.half, torch.bfloat16):
        return value
    return _converted(like, value, torch.float32)


def _converted(like: fx.Node, value: fx.Node, dtype: torch.dtype) -> fx.Node:
    if fake_of(value).dtype == dtype:
        return value
    return add_call(like, aten._to_copy.default, value, dtype=dtype)


def pack_convolutions(module: object, ctx: Services) -> object:
    """The pass: on a CPU, convolutions of images with channels last read frozen weights in oneDNN's own layout, and
    compute the activation behind them."""
    if not isinstance(module, fx.GraphModule) or not onednn.is_there():
        return module
    convolutions = module.graph.find_nodes(op="call_function", target=aten.convolution.default)
    known = frozen_values(module.graph, ctx.operators) if convolutions else set()
    for node in convolutions:
        if node.args[1] in known and _is_computed_once(node.args[1]) and _is_packable(node):
            _pack(node)
    return module


def _is_computed_once(weight: fx.Node) -> bool:
    """Whether the core takes what is made of the weight out of the graph, whose own values can't be in oneDNN's layout.
    What constants alone make stays in the graph, and so does what is larger than the memory that it is made of."""
    return 0 not in fake_of(weight).stride() and any(n.op == "placeholder" for n in with_all_inputs([weight]))


def _is_packable(node: fx.Node) -> bool:
    image, weight, _, stride, padding, _, transposed, _, groups = args_of(node)
    result = fake_of(node)
    # Windows of one element become products, as fast as oneDNN where these are large, and faster where not.
    return bool(
        not (transposed or is_of_pixels(image, weight, stride, padding, transposed, groups))
        and is_image(image)
        and result.device.type == "cpu"
        and result.dtype == fake_of(weight).dtype == torch.float32
        and is_channels_last(fake_of(image))
        and is_channels_last(result)
    )


def _pack(node: fx.Node) -> None:
    image, weight, bias, stride, padding, dilation, _, _, groups = node.args
    after = next(iter(node.users)) if len(node.users) == 1 else None
    activation = ACTIVATIONS.get(after.target, "none") if after is not None else "none"
    last = node if activation == "none" or after is None else after
    bounds = list(last.args[1:])
    numbers = [*bounds, *(-1.0, 1.0)[len(bounds) :]] if activation == "hardtanh" else []
    with node.graph.inserting_before(last):
        packed = add_call(
            node, onednn.PACKED_WEIGHT, weight, padding, stride, dilation, groups, list(fake_of(image).shape)
        )
        made = add_call(
            last, onednn.fused_convolution(), image, packed, bias, padding, stride, dilation, groups,
            activation, numbers, "",
        )  # fmt: skip
    made.meta["val"] = fake_of(last)
    last.replace_all_uses_with(made)
    for gone in dict.fromkeys((last, node)):
        node.graph.erase_node(gone)
