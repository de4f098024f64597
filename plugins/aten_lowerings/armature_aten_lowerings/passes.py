"""The passes over graphs, in their order, and the small ones among them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, fx

from armature.plugin_api import Pass, Services
from armature_aten_lowerings import (
    attention,
    bags,
    complex_pairs,
    constants,
    frozen,
    gradients,
    instances,
    interpolation,
    joins,
    layouts,
    library_copies,
    margins,
    masked_writes,
    masks,
    part_writes,
    peaks,
    pixels,
    products,
    randomness,
    repeats,
    rnn,
    rnn_dropout,
    rows,
    saved_normed,
    saved_parts,
    saved_softmax,
    saving,
    scalars,
    selections,
    single_views,
)
from armature_aten_lowerings.common import add_call, is_random, share_common_values

aten = torch.ops.aten
NARROW, WIDE = 16, 32
"""A product of matrices is narrow with a side of at most so many numbers; vectors take at least WIDE in a row."""
NARROW_WORK = 3 << 18
"""Multiplications up to which loops keep up with a library (benchmarks/narrow_products.py)."""
VECTOR_WORK = 1 << 16
"""The same of two vectors, of which the library reads longer ones with more threads at once (64 numbers: 5.6
us, loops 4.5; 65,536: 8.5 and 8.3; 700,000: 112 and 202; 2 threads)."""


def remove_dead_code(module: object, ctx: Services) -> object:
    """Remove operators whose results are unused. Random ones stay, to leave the generator in eager's state, and so do
    those without results, which may raise."""
    if isinstance(module, fx.GraphModule):
        module.graph.eliminate_dead_code(lambda node: node.is_impure() or is_random(node) or _checks(node))
    return module


def split_bias(module: object, ctx: Services) -> object:
    """On a CPU, add a bias in the loops that follow a product: `addmm` first copies the bias to its result."""
    if not isinstance(module, fx.GraphModule):
        return module
    for node in module.graph.find_nodes(op="call_function", target=aten.addmm.default):
        bias, left, right = node.args
        value = node.meta["val"]
        # Lower precision would round a second time.
        plain = not node.kwargs and value.device.type == "cpu" and value.dtype in (torch.float32, torch.float64)
        if not plain or bias.meta["val"].dim() > 1 or not _read_by_loops(node, ctx):
            continue
        with module.graph.inserting_before(node):
            product = module.graph.call_function(aten.mm.default, (left, right))
            total = module.graph.call_function(aten.add.Tensor, (product, bias))
        for made in (product, total):
            made.meta.update(node.meta)
        node.replace_all_uses_with(total)
        module.graph.erase_node(node)
    return module


def split_convolution_bias(module: object, ctx: Services) -> object:
    """On a GPU, add the bias of a convolution in the loops that follow: the library runs over its result again."""
    if not isinstance(module, fx.GraphModule):
        return module
    for node in module.graph.find_nodes(op="call_function", target=aten.convolution.default):
        bias, value = node.args[2], node.meta["val"]
        if not isinstance(bias, fx.Node):
            continue
        if value.device.type == "cuda" and _read_by_loops(node, ctx, returned=True):
            move_bias_after(node)
    return module


def move_bias_after(node: fx.Node) -> None:
    """Remove the bias from a convolution, and add it to the result."""
    image, weight, bias, *options = node.args
    axes = node.meta["val"].dim()
    with node.graph.inserting_before(node):
        plain = add_call(node, aten.convolution.default, image, weight, None, *options)
        row = add_call(node, aten.view.default, bias, [1, -1, *[1] * (axes - 2)])
        total = add_call(node, aten.add.Tensor, plain, row)
    node.replace_all_uses_with(total)
    node.graph.erase_node(node)


def write_out_narrow_products(module: object, ctx: Services) -> object:
    """On a CPU, turn a product with a narrow side into loops: libraries are slow there, and bias and activation
    fuse. A compilation that measures decides by that."""
    if not isinstance(module, fx.GraphModule) or ctx.config.autotune:
        return module
    for target in (aten.mm.default, aten.addmm.default):
        for node in module.graph.find_nodes(op="call_function", target=target):
            left, right = node.args[-2:]
            if node.kwargs or not _is_narrow(node.meta["val"], left.meta["val"], right.meta["val"]):
                continue
            with module.graph.inserting_before(node):
                rows = add_call(node, aten.unsqueeze.default, left, 1)
                columns = add_call(node, aten.unsqueeze.default, add_call(node, aten.t.default, right), 0)
                total = add_call(node, aten.sum.dim_IntList, add_call(node, aten.mul.Tensor, rows, columns), [2])
                if target is aten.addmm.default:
                    total = add_call(node, aten.add.Tensor, total, node.args[0])
            node.replace_all_uses_with(total)
            module.graph.erase_node(node)
    return module


def _is_narrow(result: Tensor, left: Tensor, right: Tensor) -> bool:
    """Whether loops over `left` [M, K] and `right` [K, N] use whole vectors, and take no longer than a library."""
    sizes = (*left.shape, right.shape[1])
    numbers = (*sizes, *left.stride(), *right.stride())
    plain = result.device.type == "cpu" and result.dtype in (torch.float32, torch.float64)
    if not plain or not all(type(n) is int for n in numbers) or 0 in sizes:
        return False
    _, inner, columns = sizes
    along_inner = left.stride(1) == 1 and right.stride(0) == 1 and inner >= WIDE
    along_columns = right.stride(1) == 1 and columns >= WIDE
    return (along_inner or along_columns) and min(sizes) <= NARROW and math.prod(sizes) <= NARROW_WORK


def write_out_products_with_vectors(module: object, ctx: Services) -> object:
    """On a CPU, turn a product of a matrix and a vector, or of two vectors, into loops, with which others fuse."""
    if not isinstance(module, fx.GraphModule):
        return module
    for target in (aten.mv.default, aten.addmv.default, aten.dot.default, aten.vdot.default):
        for node in module.graph.find_nodes(op="call_function", target=target):
            left, right = node.args[-2:]
            if not _is_short(left.meta["val"], right.meta["val"]):
                continue
            alpha, beta = node.kwargs.get("alpha", 1), node.kwargs.get("beta", 1)
            if not left.meta["val"].is_floating_point():
                alpha, beta = int(alpha), int(beta)  # the operator drops their fractions
            with module.graph.inserting_before(node):
                products = add_call(node, aten.mul.Tensor, left, right)
                total = add_call(node, aten.sum.dim_IntList, products, [left.meta["val"].dim() - 1])
                total = add_call(node, aten.mul.Tensor, total, alpha) if alpha != 1 else total
                if target is aten.addmv.default and beta != 0:  # with 0, NaN in it is not passed on
                    added = add_call(node, aten.mul.Tensor, node.args[0], beta) if beta != 1 else node.args[0]
                    total = add_call(node, aten.add.Tensor, total, added)
            node.replace_all_uses_with(total)
            module.graph.erase_node(node)
    return module


def _is_short(left: Tensor, right: Tensor) -> bool:
    """Whether loops over a matrix or vector and a vector take no longer than a library."""
    plain = left.device.type == right.device.type == "cpu" and left.dtype == right.dtype
    known = all(type(n) is int for n in (*left.shape, *left.stride(), *right.stride()))
    if not plain or not known or left.dtype not in (torch.float32, torch.float64, torch.int64):
        return False
    work = math.prod(left.shape)
    return 0 < work <= (NARROW_WORK if left.dim() > 1 else VECTOR_WORK) and (work == 1 or 1 in left.stride())


def _read_by_loops(node: fx.Node, ctx: Services, returned: bool = False) -> bool:
    """Whether only loops read the value, so that nothing needs it in memory. returned: whether it may also be a result
    of the graph."""
    found = False
    todo = list(node.users)
    while todo:
        user = todo.pop()
        target = user.target
        if user.op == "output" and returned:
            continue
        if not isinstance(target, torch._ops.OpOverload) or not ctx.lowered(target):
            return False
        if target is aten.convolution.default or target in products.OPERATORS:  # only few of them are loops
            return False
        if any(r.alias_info for r in target._schema.returns) or target is aten._unsafe_view.default:
            todo += user.users
        else:
            found = True
    return found


def _checks(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.returns


PASSES: tuple[Pass, ...] = (
    Pass("fused-lstm", "pre_grad", rnn.use_fused_layers),
    Pass("recurrent-dropout", "pre_grad", rnn_dropout.keep_dropout),
    Pass("attention", "pre_grad", attention.use_attention),
    Pass("attention-masks", "pre_grad", masks.simplify_masks, after=("attention",)),
    Pass("interpolation", "pre_grad", interpolation.keep_interpolation),
    Pass("margins", "pre_grad", margins.mend_margins),
    Pass("masked-writes", "pre_grad", masked_writes.choose_by_mask),
    Pass("detached", "joint", saving.drop_detached),
    Pass("rows-of-bags-training", "joint", bags.gather_bags, after=("detached",)),
    Pass("signs-for-backward", "joint", saving.keep_signs, after=("detached",)),
    Pass("places-in-windows", "joint", saving.keep_window_positions, after=("channels-last-training",)),
    Pass("channels-last-training", "joint", layouts.use_channels_last_in_training),
    Pass("rows-training", "joint", rows.lay_out_by_rows, after=("channels-last-training",)),
    Pass("sizes-for-backward", "joint", saving.keep_sizes, after=("signs-for-backward", "rows-training")),
    Pass("recomputed-norms", "joint", saving.recompute_norms, after=("places-in-windows", "sizes-for-backward")),
    Pass("recomputed-normed", "joint", saved_normed.recompute_normed, after=("recomputed-norms",)),
    Pass("recomputed-softmax", "joint", saved_softmax.recompute_softmax, after=("recomputed-normed",)),
    Pass("recomputed-dropout", "joint", saving.recompute_dropout, after=("recomputed-softmax",)),
    Pass("saved-parts", "joint", saved_parts.copy_saved_parts, after=("recomputed-dropout",)),
    Pass("single-views", "joint", single_views.take_views_singly, after=("saved-parts",)),
    Pass("frozen-batch-norms", "post_grad", frozen.fold_batch_norms),
    Pass("instance-norms", "post_grad", instances.normalise_planes, after=("frozen-batch-norms",)),
    Pass("channels-last", "post_grad", layouts.use_channels_last, after=("instance-norms",)),
    Pass("channels-last-at-the-peak", "post_grad", peaks.turn_the_peak, after=("channels-last",)),
    Pass("rows", "post_grad", rows.lay_out_by_rows, after=("channels-last-at-the-peak",)),
    Pass("rows-of-bags", "post_grad", bags.gather_bags),
    Pass("sums-of-selections", "post_grad", selections.sum_without_selecting),
    Pass("repeated-elements", "post_grad", repeats.repeat_elements, after=("channels-last",)),
    Pass("complex-numbers", "post_grad", complex_pairs.write_as_parts, after=("repeated-elements",)),
    Pass("constants", "post_grad", constants.compute_constants, after=("complex-numbers",)),
    Pass("writes-of-the-same", "post_grad", part_writes.drop_writes_of_the_same, after=("constants",)),
    Pass("joins", "post_grad", joins.simplify, after=("constants",)),
    Pass("common-values", "post_grad", share_common_values, after=("joins", "sums-of-selections")),
    Pass("frozen-convolutions", "post_grad", frozen.pack_convolutions, after=("common-values",)),
    Pass("products-of-pixels", "post_grad", pixels.multiply_pixels, after=("frozen-convolutions",)),
    Pass("narrow-products", "post_grad", write_out_narrow_products, after=("products-of-pixels",)),
    Pass("products-with-vectors", "post_grad", write_out_products_with_vectors, after=("narrow-products",)),
    Pass("split-bias", "post_grad", split_bias, after=("products-with-vectors",)),
    Pass("scalars-of-the-cpu", "post_grad", scalars.gather_scalars, after=("common-values",)),
    Pass("split-convolution-bias", "post_grad", split_convolution_bias, after=("channels-last",)),
    Pass("gradients-of-biases", "post_grad", gradients.sum_gradients_of_biases, after=("channels-last",)),
    Pass("gradients-of-windows", "post_grad", gradients.compute_windows_apart, after=("channels-last",)),
    Pass(
        "gradients-of-images",
        "post_grad",
        gradients.compute_images_apart,
        after=("gradients-of-windows", "products-of-pixels"),
    ),
    Pass("gradients-at-the-peak", "post_grad", peaks.turn_gradients_at_the_peak, after=("gradients-of-images",)),
    Pass("sums-of-parts", "post_grad", library_copies.sum_parts_apart, after=("joins", "common-values")),
    Pass("masks-of-dropout", "post_grad", randomness.draw_masks_alone),
    Pass("dead-code", "post_grad", remove_dead_code, after=("common-values",)),
)
