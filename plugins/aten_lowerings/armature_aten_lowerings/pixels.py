"""Convolutions whose window is one element or all of the image, as products of matrices.

Such a convolution multiplies each pixel's channels by one matrix. On a CPU, oneDNN copies an image by rows, the weight
and the result between layouts for it, and torch calls oneDNN as soon as there is more than one thread. With two threads
the product took 0.1 to 0.95 of the time of the convolution, and of that of its gradients, for images of 16 to 3136
pixels and 16 to 1024 channels; with one thread no longer.

A convolution whose window is as large as the image is a product of images and windows seen as rows, and so is a
transposed one of images of one pixel. oneDNN copies the weight for them: the products took 0.04 to 0.96 of the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs
import torch
from torch import Tensor, fx

from armature.plugin_api import Services, fake_of
from armature_aten_lowerings.common import add_call
from armature_aten_lowerings.gradients import leave_to_others, sum_gradient_of_bias
from armature_aten_lowerings.layouts import args_of, is_of_one_window, is_of_pixels

aten = torch.ops.aten


def multiply_pixels(module: object, ctx: Services) -> object:
    """The pass: on a CPU, convolutions with windows of one element, or as large as the image, and their gradients
    become products."""
    if not isinstance(module, fx.GraphModule):
        return module
    for node in module.graph.find_nodes(op="call_function", target=aten.convolution.default):
        image, weight, _, stride, padding, _, transposed, _, groups = args_of(node)
        if is_of_pixels(image, weight, stride, padding, transposed, groups):
            _multiply(node)
        elif is_of_one_window(image, weight, node, padding, transposed, groups):
            _multiply_window(node)
    for node in module.graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        gradient, image, weight, _, stride, padding, _, transposed, _, groups, _ = args_of(node)
        if is_of_pixels(image, weight, stride, padding, transposed, groups):
            _multiply_gradients(node)
        elif is_of_one_window(image, weight, gradient, padding, transposed, groups):
            _multiply_gradients_of_window(node)
    return module


def rows_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor by rows."""
    return torch.empty(tuple(shape), device="meta").stride()


def last_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor [N, C, ...] with channels last."""
    first, channels, *rest = shape
    given = rows_of((first, *rest, channels))
    return (given[0], given[-1], *given[1:-1])


@attrs.frozen(eq=False)
class _Pixels:
    """Images of so many pixels, seen as matrices. flat: as one [N * pixels, C], otherwise as N of [C, pixels]."""

    count: int
    pixels: int
    flat: bool

    def matrix(self, like: fx.Node, image: fx.Node) -> fx.Node:
        """The image as a matrix, or as several."""
        channels = fake_of(image).shape[1]
        if not self.flat:
            sizes = (channels, self.pixels)
            return add_call(like, aten.view.default, image, sizes if self.count == 1 else (self.count, *sizes))
        if self.pixels > 1:
            image = add_call(like, aten.permute.default, image, (0, *range(2, fake_of(image).dim()), 1))
        return add_call(like, aten.view.default, image, (self.count * self.pixels, channels))

    def product(self, like: fx.Node, image: fx.Node, weight: fx.Node, bias: fx.Node | None = None) -> fx.Node:
        """The matrix, or each of several, times the weight [outputs, inputs]. bias: added to one matrix."""
        matrix = self.matrix(like, image)
        if self.flat:
            turned = add_call(like, aten.t.default, weight)
            if bias is not None:
                return add_call(like, aten.addmm.default, bias, matrix, turned)
            return add_call(like, aten.mm.default, matrix, turned)
        if self.count == 1:
            return add_call(like, aten.mm.default, weight, matrix)
        sizes = (self.count, *fake_of(weight).shape)
        every = add_call(like, aten.expand.default, add_call(like, aten.unsqueeze.default, weight, 0), sizes)
        return add_call(like, aten.bmm.default, every, matrix)

    def over_pixels(self, like: fx.Node, gradient: fx.Node, image: fx.Node) -> fx.Node:
        """The sum over all pixels of each product of a channel of the gradient and one of the image."""
        left, right = self.matrix(like, gradient), self.matrix(like, image)
        if self.flat:
            return add_call(like, aten.mm.default, add_call(like, aten.t.default, left), right)
        if self.count == 1:
            return add_call(like, aten.mm.default, left, add_call(like, aten.t.default, right))
        each = add_call(like, aten.bmm.default, left, add_call(like, aten.transpose.int, right, 1, 2))
        return add_call(like, aten.sum.dim_IntList, each, [0])


def _as_matrices(*images: Tensor) -> _Pixels | None:
    """How images, all in one layout, are seen as matrices; None if their layout is neither by rows nor channels
    last."""
    count, _, *sides = images[0].shape
    pixels = math.prod(sides)
    if all(one.is_contiguous() for one in images):
        return _Pixels(count, pixels, pixels == 1)
    if all(one.permute(0, *range(2, one.dim()), 1).is_contiguous() for one in images):
        return _Pixels(count, pixels, True)
    return None


def _matrix_of(like: fx.Node, weight: fx.Node) -> fx.Node:
    return add_call(like, aten.view.default, weight, fake_of(weight).shape[:2])


def _has_known_layout(wanted: Tensor) -> bool:
    """Whether a tensor is in memory by rows or with channels last."""
    return wanted.stride() in (rows_of(wanted.shape), last_of(wanted.shape))


def _shaped(like: fx.Node, product: fx.Node, wanted: Tensor) -> fx.Node:
    """The product in the shape and layout of a convolution's result, by rows or with channels last."""
    if wanted.stride() == rows_of(wanted.shape):
        return add_call(like, aten.view.default, product, wanted.shape)
    first, channels, *sides = wanted.shape
    turned = add_call(like, aten.view.default, product, (first, *sides, channels))
    return add_call(like, aten.permute.default, turned, (0, wanted.dim() - 1, *range(1, wanted.dim() - 1)))


def _multiply(node: fx.Node) -> None:
    image, weight, bias, *_ = args_of(node)
    wanted = fake_of(node)
    pixels = _as_matrices(fake_of(image), wanted)
    if pixels is None or not _has_known_layout(wanted):
        return
    with node.graph.inserting_before(node):
        found = _shaped(
            node, pixels.product(node, image, _matrix_of(node, weight), bias if pixels.flat else None), wanted
        )
        if bias is not None and not pixels.flat:
            found = _with_bias(node, found, bias)
    node.replace_all_uses_with(found)
    node.graph.erase_node(node)


def _with_bias(node: fx.Node, result: fx.Node, bias: fx.Node) -> fx.Node:
    row = add_call(node, aten.view.default, bias, [-1, *[1] * (fake_of(node).dim() - 2)])
    return add_call(node, aten.add.Tensor, result, row)


def _multiply_window(node: fx.Node) -> None:
    image, weight, bias, *_, transposed, _, _ = args_of(node)
    wanted = fake_of(node)
    if not fake_of(weight).is_contiguous() or not _has_known_layout(wanted):
        return
    with node.graph.inserting_before(node):
        windows = _flattened(node, weight)
        windows = windows if transposed else add_call(node, aten.t.default, windows)
        product = add_call(node, aten.mm.default, _flattened(node, image), windows)
        found = _unflattened(node, product, wanted)
        if bias is not None:
            found = _with_bias(node, found, bias)
    node.replace_all_uses_with(found)
    node.graph.erase_node(node)


def _flattened(like: fx.Node, value: fx.Node) -> fx.Node:
    """The value by rows, one for each element of its first axis."""
    if not fake_of(value).is_contiguous():
        value = add_call(like, aten.clone.default, value, memory_format=torch.contiguous_format)
    return add_call(like, aten.view.default, value, (fake_of(value).shape[0], math.prod(fake_of(value).shape[1:])))


def _unflattened(like: fx.Node, rows: fx.Node, wanted: Tensor) -> fx.Node:
    """Such rows in the shape and layout of another tensor."""
    shaped = add_call(like, aten.view.default, rows, wanted.shape)
    if wanted.stride() == rows_of(wanted.shape):
        return shaped
    last = add_call(like, aten.permute.default, shaped, (0, *range(2, wanted.dim()), 1))
    copy = add_call(like, aten.clone.default, last, memory_format=torch.contiguous_format)
    return add_call(like, aten.permute.default, copy, (0, wanted.dim() - 1, *range(1, wanted.dim() - 1)))


def _multiply_gradients_of_window(node: fx.Node) -> None:
    gradient, image, weight, *_, transposed, _, _, mask = args_of(node)
    if not fake_of(weight).is_contiguous():
        return
    if mask[2]:
        sum_gradient_of_bias(node)

    def product(left: fx.Node, right: fx.Node, turned: int | None) -> fx.Node:
        """The product of both as rows; turned: which of them is transposed."""
        factors = [_flattened(node, given) for given in (left, right)]
        factors = [add_call(node, aten.t.default, one) if k == turned else one for k, one in enumerate(factors)]
        return add_call(node, aten.mm.default, *factors)

    ways: list[Callable[[], fx.Node]] = [
        lambda: product(gradient, weight, 1 if transposed else None),
        lambda: product(image, gradient, 0) if transposed else product(gradient, image, 0),
    ]
    for place, way in enumerate(ways):
        _replace(node, place, way, _unflattened)


def _multiply_gradients(node: fx.Node) -> None:
    gradient, image, weight, *_, mask = args_of(node)
    pixels = _as_matrices(fake_of(gradient), fake_of(image))
    if pixels is None:
        return
    if mask[2]:
        sum_gradient_of_bias(node)
    ways: list[Callable[[], fx.Node]] = [
        lambda: pixels.product(node, gradient, add_call(node, aten.t.default, _matrix_of(node, weight))),
        lambda: pixels.over_pixels(node, gradient, image),
    ]
    # A product for each image is a result to be summed: it should be no larger than what it is computed from.
    many = (
        not pixels.flat and pixels.count * fake_of(weight).numel() > fake_of(gradient).numel() + fake_of(image).numel()
    )
    for place in (0,) if many else (0, 1):
        _replace(node, place, ways[place], _shaped)


def _replace(
    node: fx.Node,
    place: int,
    product: Callable[[], fx.Node],
    shaped: Callable[[fx.Node, fx.Node, Tensor], fx.Node],
) -> None:
    """Compute one result of a convolution's backward as a product, in the layout that the result has."""
    for result in [user for user in node.users if user.args[1] == place]:
        wanted = fake_of(result)
        if not _has_known_layout(wanted):
            continue
        with node.graph.inserting_before(node):
            found = shaped(node, product(), wanted)
        result.replace_all_uses_with(found)
        node.graph.erase_node(result)
        leave_to_others(node, place)
