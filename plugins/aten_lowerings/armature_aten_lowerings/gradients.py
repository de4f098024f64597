"""Gradients of a convolution's arguments that loops or calls of their own compute."""

from __future__ import annotations

import operator

import torch
from torch import fx

from armature.plugin_api import Services
from armature_aten_lowerings.common import add_call
from armature_aten_lowerings.depthwise import is_worth_a_loop
from armature_aten_lowerings.layouts import args_of, is_image

aten = torch.ops.aten
LEAST_BYTES = 1 << 16
"""Bytes of an image from which a second call of 20 us is worth the memory."""


def sum_gradients_of_biases(module: object, ctx: Services) -> object:
    """On a GPU, sum the gradient of a convolution's bias in loops: the library's kernel is not aware of layouts."""
    if not isinstance(module, fx.GraphModule):
        return module
    for node in module.graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        gradient, *_, wanted = args_of(node)
        if gradient.meta["val"].device.type == "cuda" and wanted[2]:
            sum_gradient_of_bias(node)
    return module


def sum_gradient_of_bias(node: fx.Node) -> None:
    """Remove the third result from a convolution's backward, and compute it from the incoming gradient."""
    gradient = args_of(node)[0]
    value = gradient.meta["val"]
    for result in [user for user in node.users if user.args[1] == 2]:
        with node.graph.inserting_before(result):
            total = add_call(node, aten.sum.dim_IntList, gradient, [0, *range(2, value.dim())])
        result.replace_all_uses_with(total)
        node.graph.erase_node(result)
    leave_to_others(node, 2)


def compute_windows_apart(module: object, ctx: Services) -> object:
    """On a CPU, compute the gradient of a large depthwise window in a call of its own, which becomes a loop, and that
    of the bias as a sum: the library computes the one where it computes the other. The loop reads images by rows in
    copies with channels last: oneDNN multiplies unfolded windows there, in 2 to 17 times the loop's time."""
    if not isinstance(module, fx.GraphModule):
        return module
    for node in module.graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        gradient, image, weight, *options, mask = args_of(node)
        result, shown, window = (given.meta["val"] for given in (gradient, image, weight))
        sizes = (*shown.shape, *shown.stride(), *result.shape, *window.shape)
        if not mask[1] or options[4] or shown.device.type != "cpu" or not all(type(n) is int for n in sizes):
            continue
        by_rows = shown.dim() == 4 and shown.is_contiguous() and result.is_contiguous()
        strides = (0, 1) if by_rows else shown.stride()
        if is_worth_a_loop(window.shape, options[-1], shown.shape, strides, result.shape, shown.dtype):
            if mask[2]:
                sum_gradient_of_bias(node)
            calls = _compute_apart(node, 1) if mask[0] and node.users else [node]
            for call in calls if by_rows else ():
                _turn_images(call)
    return module


def _turn_images(node: fx.Node) -> None:
    """Give a convolution's backward copies with channels last, which are small beside a large window's work."""
    gradient, image, *rest = args_of(node)
    with node.graph.inserting_before(node):
        turned = [add_call(node, aten.clone.default, n, memory_format=torch.channels_last) for n in (gradient, image)]
    node.args = (*turned, *rest)


def compute_images_apart(module: object, ctx: Services) -> object:
    """On a CPU, compute the gradient of an image after that of the weight, in a call of its own: oneDNN copies rows to
    its own layout for each of the two, and would hold the first result, and the image, while it computes the second."""
    if not isinstance(module, fx.GraphModule) or not torch.backends.mkldnn.is_available():
        return module
    for node in module.graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        gradient, image, _, *_, mask = args_of(node)
        value = image.meta["val"]
        if value.device.type != "cpu" or value.dtype != torch.float32 or not is_image(image):
            continue
        by_rows = value.is_contiguous() and gradient.meta["val"].is_contiguous()
        if mask[0] and mask[1] and by_rows and value.nbytes >= LEAST_BYTES:
            _compute_apart(node, 0)
    return module


def _compute_apart(node: fx.Node, place: int) -> list[fx.Node]:
    """Let another call compute one result, and only that. Returns that call; none if nothing reads the result."""
    *given, _ = args_of(node)
    made = []
    for result in [user for user in node.users if user.args[1] == place]:
        with node.graph.inserting_before(result):
            call = add_call(node, aten.convolution_backward.default, *given, [k == place for k in range(3)])
            part = add_call(result, operator.getitem, call, place)
            made.append(call)
        result.replace_all_uses_with(part)
        node.graph.erase_node(result)
    leave_to_others(node, place)
    return made


def leave_to_others(node: fx.Node, place: int) -> None:
    """Don't compute a result of a convolution's backward that nothing reads from it any more."""
    *given, mask = args_of(node)
    node.args = (*given, [wanted and k != place for k, wanted in enumerate(mask)])
    node.meta["val"] = tuple(None if k == place else value for k, value in enumerate(node.meta["val"]))
    if not node.users:
        node.graph.erase_node(node)
