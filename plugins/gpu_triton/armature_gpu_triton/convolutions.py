"""A product of the pixels of images as a call of torch's convolution, with kernels for what surrounds it.

The convolution's options are read off the loops: the image is loaded at `stride * y + dilation * tap - padding`. What
does not have exactly this form is left to the other ways of computing a product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from armature.backend_api import (
    Buffer,
    Const,
    Index,
    IndexValue,
    Kernel,
    Load,
    Masked,
    Node,
    Op,
    Var,
    library,
    products,
    stride_of,
    substitute,
    variables,
)

WITH_CUDNN = (
    "torch.backends.cudnn.benchmark",
    "torch.backends.cudnn.deterministic or torch.are_deterministic_algorithms_enabled()",
    "torch.backends.cudnn.allow_tf32",
)


@attrs.frozen(eq=False)
class Axis:
    """A spatial axis: the variables of the result and of the window, and the convolution's options along it."""

    out: Var
    tap: Var
    stride: int
    dilation: int
    padding: int

    def fits(self, size: Index) -> bool:
        """Whether a convolution of an image of this size has a result of the size of the loops."""
        out, tap = self.out.extent, self.tap.extent
        if not (isinstance(size, int) and isinstance(out, int) and isinstance(tap, int)):
            return False
        return out == (size + 2 * self.padding - self.dilation * (tap - 1) - 1) // self.stride + 1


def axis(place: Index, kernel: Kernel) -> Axis | None:
    """The axis on which an image is loaded at this place. A variable with a single value is not part of a place."""
    used = variables(place)
    outer, inner = ([v for v in held if v in used] for held in (kernel.outer, kernel.inner))
    if len(outer) > 1 or len(inner) > 1 or len(outer) + len(inner) < len(used):
        return None
    steps = [stride_of(place, held[0]) if held else 1 for held in (outer, inner)]
    start = substitute(place, dict.fromkeys(used, 0))
    stride, dilation = steps
    if not (isinstance(stride, int) and isinstance(dilation, int) and isinstance(start, int)):
        return None
    if stride < 1 or dilation < 1 or start > 0:
        return None
    return Axis(outer[0] if outer else Var("y", 1), inner[0] if inner else Var("tap", 1), stride, dilation, -start)


def tests(cond: Node) -> Iterator[tuple[str, Index, Index] | None]:
    """The comparisons of a condition; None for anything else."""
    if isinstance(cond, Op) and cond.op == "logical_and":
        for arg in cond.args:
            yield from tests(arg)
    elif isinstance(cond, Op) and cond.op in ("ge", "lt") and isinstance(cond.args[0], IndexValue):
        bound = cond.args[1]
        if isinstance(bound, Const):
            yield (cond.op, cond.args[0].index, int(bound.value))
        else:
            yield (cond.op, cond.args[0].index, bound.index) if isinstance(bound, IndexValue) else None
    elif not (isinstance(cond, Const) and cond.value):
        yield None


def is_padded(node: Node, load: Load, sizes: Sequence[Index]) -> bool:
    """Whether an image's pixel is loaded where it is inside of the image, of these sizes, and is 0 elsewhere."""
    if not isinstance(node, Masked) or node.other.value != 0:
        return False
    ends = zip(load.index[2:], sizes, strict=True)
    allowed = {(op, place, end) for place, size in ends for op, end in (("ge", 0), ("lt", size))}
    return all(test in allowed for test in tests(node.cond))


@attrs.frozen(eq=False)
class Convolution:
    """What a kernel's product computes. over: the variables of the result, as (images, channels, height, width)."""

    image: library.Matrix
    weight: library.Matrix
    axes: tuple[Axis, ...]
    over: tuple[Var, ...]


def find(kernel: Kernel, left: Node, right: Node, buffers: Mapping[str, Buffer]) -> Convolution | None:
    """The convolution of the image `left` with the weight `right`; None if they are none."""
    load = left.value if isinstance(left, Masked) else left
    if not isinstance(load, Load) or load.indirect or len(load.index) != 4:
        return None
    held = buffers[load.buffer]
    first, channel, *places = load.index
    images = first if isinstance(first, Var) else Var("images", 1)
    axes = [found for place in places if (found := axis(place, kernel)) is not None]
    if len(axes) != 2 or not isinstance(channel, Var) or held.shape[:2] != (images.extent, channel.extent):
        return None
    sizes = held.shape[2:]
    fits = all(each.fits(size) for each, size in zip(axes, sizes, strict=True))
    padded = any(each.padding for each in axes)
    if not fits or held.strides[1] != 1 or ((padded or left is not load) and not is_padded(left, load, sizes)):
        return None
    known = {images, *(each.out for each in axes)}
    columns = [v for v in kernel.outer if v not in known] or [Var("channels", 1)]
    weight = library.loaded(right, (columns[0], channel, *(each.tap for each in axes)), buffers)
    if weight is None or len(columns) > 1:
        return None
    image = library.Matrix(load.buffer, held.shape, held.strides, held.offset)
    return Convolution(image, weight, tuple(axes), (images, columns[0], *(each.out for each in axes)))


def calls(kernel: Kernel, buffers: Mapping[str, Buffer]) -> library.Calls | None:
    """The kernel with its product by torch's convolution; None if it is none."""
    both = products.sum_of_products(kernel)
    if both is None:
        return None
    total, (left, right) = both[0], both[1].args
    found = find(kernel, left, right, buffers)
    if found is None:
        return None
    images, channels, *pixels = found.over
    named = attrs.evolve(kernel, name=f"{kernel.name}_convolution")
    maker = library.Maker(named, total, (images, *pixels, channels), left.dtype, buffers)
    node = maker.rounded(total)
    out = last_dimension_second(maker.result(node))
    name = f"{named.name}_library"
    stride, padding, dilation = (
        str([getattr(each, option) for each in found.axes]) for option in ("stride", "padding", "dilation")
    )
    factors = (found.image, found.weight)
    if kernel.device.type == "cuda":
        options = (padding, stride, dilation, "1", *WITH_CUDNN)
        call = library.LibraryCall(name, "ops.aten.cudnn_convolution.out", factors, out, options)
    else:
        options = ("None", stride, padding, dilation, "False", "[0, 0]", "1")
        call = library.LibraryCall(name, "ops.aten.convolution.out", factors, out, options)
    return maker.calls(node, out, call)


def last_dimension_second(view: library.Matrix) -> library.Matrix:
    """A view whose last dimension, of channels, becomes the second."""

    def turned(values: tuple[Index, ...]) -> tuple[Index, ...]:
        first, *others, last = values
        return (first, last, *others)

    return attrs.evolve(view, shape=turned(view.shape), strides=turned(view.strides))
