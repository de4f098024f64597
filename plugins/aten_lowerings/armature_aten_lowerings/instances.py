"""Instance norms without their views, which only images by rows allow.

torch normalises each plane of an image by a batch norm of one image that has all planes as its channels. Written with
statistics of each plane instead, the layout of the image does not matter, so that convolutions around it may have
channels last.
"""

from __future__ import annotations

import operator

import torch
from torch import fx

from armature.plugin_api import GraphKind, fake_of
from armature_aten_lowerings.common import add_call
from armature_aten_lowerings.layouts import args_of

aten = torch.ops.aten
NORM = aten._native_batch_norm_legit.no_stats


def normalise_planes(module: object, ctx: object) -> object:
    """The pass: in inference on a CPU, instance norms become arithmetic with the statistics of each plane."""
    if not isinstance(module, fx.GraphModule) or module.meta.get("kind") is not GraphKind.INFERENCE:
        return module
    for node in module.graph.find_nodes(op="call_function", target=NORM):
        image = image_of(node)
        if image is not None:
            _write_out(node, image)
    return module


def image_of(node: fx.Node) -> fx.Node | None:
    """The image [N, C, ...] by rows of which a batch norm normalises each plane; None if it does something else."""
    flat, *affine, training, _, _ = args_of(node)
    if (
        flat.target is not aten.view.default
        or not training
        or fake_of(flat).dtype not in (torch.float32, torch.float64)
    ):
        return None
    image, _ = args_of(flat)
    shown, seen = fake_of(image), fake_of(flat)
    if shown.device.type != "cpu" or not all(type(n) is int for n in (*shown.shape, *seen.shape)):
        return None
    planes = (1, shown.shape[0] * shown.shape[1], *shown.shape[2:])
    if shown.dim() < 3 or tuple(seen.shape) != planes or not shown.is_contiguous() or not shown.numel():
        return None
    if any(each is not None and channels_of(each, *shown.shape[:2]) is None for each in affine):
        return None
    results = [user for user in node.users if user.users]
    if any(user.target is not operator.getitem or user.args[1] for user in results):
        return None  # the statistics are needed too
    views = [view for user in results for view in user.users]
    return image if all(view.target is aten.view.default and is_alike(view, image) for view in views) else None


def is_alike(one: fx.Node, other: fx.Node) -> bool:
    """Whether two tensors have the same sizes and strides."""
    left, right = fake_of(one), fake_of(other)
    return (*left.shape, *left.stride()) == (*right.shape, *right.stride())


def channels_of(given: fx.Node, images: int, channels: int) -> fx.Node | None:
    """One number for each channel, if what is given repeats these for each image."""
    if given.target is not aten.repeat.default:
        return given if images == 1 else None
    source, times = args_of(given)
    return source if fake_of(source).shape == (channels,) and list(times) == [images] else None


def _write_out(node: fx.Node, image: fx.Node) -> None:
    """Compute the norm of each plane of the image, and give it to all that read what the batch norm made."""
    _, weight, bias, _, _, eps = args_of(node)
    shown = fake_of(image)
    axes = range(2, shown.dim())
    with node.graph.inserting_before(node):
        both = add_call(node, aten.var_mean.correction, image, list(axes), correction=0, keepdim=True)
        variance, mean = (add_call(node, operator.getitem, both, place) for place in range(2))
        scale = add_call(node, aten.rsqrt.default, add_call(node, aten.add.Tensor, variance, eps))
        value = add_call(node, aten.mul.Tensor, add_call(node, aten.sub.Tensor, image, mean), scale)
        for given, combine in ((weight, aten.mul.Tensor), (bias, aten.add.Tensor)):
            if given is not None:
                channels = channels_of(given, *shown.shape[:2])
                row = add_call(node, aten.view.default, channels, [-1, *[1] * len(axes)])
                value = add_call(node, combine, value, row)
    for user in list(node.users):
        for view in list(user.users):
            view.replace_all_uses_with(value)
            node.graph.erase_node(view)
        node.graph.erase_node(user)
    node.graph.erase_node(node)
