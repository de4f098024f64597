"""Elements repeated or left out in order (`x[:, 2 * i // 3]`, which nearest interpolation decomposes into), without
tensors of indices."""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import cast

import torch
from torch import fx

from armature.backend_api import Builder, Index, Node, Position, TensorValue, compute_dtype, index, lowers
from armature.plugin_api import KnownValues, NotKnown, Services
from armature_aten_lowerings.common import add_call
from armature_aten_lowerings.windows import MOST_COMPARED

aten = torch.ops.aten


NEAREST = (aten.upsample_nearest1d.default, aten.upsample_nearest2d.default, aten.upsample_nearest3d.default)
EXACT = tuple(getattr(aten, f"_upsample_nearest_exact{axes}d").default for axes in (1, 2, 3))
Positions = tuple[int, ...]


def repeat_elements(module: object, ctx: Services) -> object:
    """The pass: an index that depends on constants only, and repeats each element of its axes, is not looked up; nor is
    one that nearest interpolation computes."""
    if not isinstance(module, fx.GraphModule):
        return module
    known = KnownValues()
    for target in (aten._unsafe_index.Tensor, aten.index.Tensor):
        for node in module.graph.find_nodes(op="call_function", target=target):
            positions = _positions(node, known)
            if positions is None:
                continue
            factors = [
                _factor(found, size) for found, size in zip(positions, node.args[0].meta["val"].shape, strict=True)
            ]
            if all(factors):
                _expand(node, cast(list[int], factors))
            else:
                _interpolate(node, positions)
    return module


def _positions(node: fx.Node, known: KnownValues) -> list[Positions | None] | None:
    """What the index reads along each axis, None for all of it; None if the index does something else."""
    x, indices = cast(tuple[fx.Node, Sequence[fx.Node | None]], node.args)
    old, new = x.meta["val"], node.meta["val"]
    first = next((axis for axis, one in enumerate(indices) if one is not None), len(indices))
    numbers = all(type(n) is int for n in (*old.shape, *new.shape))
    if not numbers or new.dim() != old.dim() or not new.is_contiguous():
        return None
    positions: list[Positions | None] = [None] * old.dim()
    for axis, given in enumerate(indices[first:], first):
        found = _elements(given, len(indices) - axis, known)
        if found is None or not old.shape[axis]:
            return None
        positions[axis] = None if found == tuple(range(old.shape[axis])) else found
    return positions if any(positions) else None


def _elements(given: fx.Node | None, place: int, known: KnownValues) -> Positions | None:
    """The numbers in an index tensor, if it varies only along its axis `place`, counted from the end."""
    if given is None or given.meta["val"].dtype not in (torch.int32, torch.int64):
        return None
    shape = given.meta["val"].shape
    count = shape.numel()
    if len(shape) < place or shape[-place] != count or not count:
        return None
    try:
        return tuple(known.elements(given))
    except NotKnown:
        return None


def _factor(positions: Positions | None, size: int) -> int | None:
    """How often each of `size` elements is repeated; None if it is something else."""
    if positions is None:
        return 1
    factor, rest = divmod(len(positions), size)
    return factor if not rest and positions == tuple(n // factor for n in range(len(positions))) else None


def _expand(node: fx.Node, factors: Sequence[int]) -> None:
    """Replace the node by its operand with the elements of each axis repeated."""
    made = cast(fx.Node, node.args[0])
    with node.graph.inserting_before(node):
        for axis, factor in enumerate(factors):
            if factor > 1:
                made = add_call(node, aten.repeat_interleave.self_int, made, factor, axis)
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)


def _interpolate(node: fx.Node, positions: Sequence[Positions | None]) -> None:
    """Replace the node by a nearest interpolation that reads the same elements, if there is one."""
    x = cast(fx.Node, node.args[0])
    shape, axes = x.meta["val"].shape, len(positions) - 2
    if axes not in (1, 2, 3) or any(positions[:2]) or not x.meta["val"].is_floating_point():
        return
    wanted = [tuple(range(n)) if found is None else found for found, n in zip(positions[2:], shape[2:], strict=True)]
    for operator, shift in ((NEAREST[axes - 1], Fraction(0)), (EXACT[axes - 1], Fraction(1, 2))):
        scales: list[float] = []
        for found, size in zip(wanted, shape[2:], strict=True):
            if step_of(found, shift) is None:
                break
            # in the middle of the range of steps that read these elements, so that rounding can't change them
            if nearest(size, len(found), scale := float(2 / sum(_steps(found, shift))), shift) == found:
                scales.append(scale)
        if len(scales) == axes:
            with node.graph.inserting_before(node):
                made = add_call(node, operator, x, list(map(len, wanted)), *scales)
            node.replace_all_uses_with(made)
            node.graph.erase_node(node)
            return


def nearest(size: int, count: int, scale: float | None, shift: Fraction) -> Positions:
    """The elements, of `size` along an axis, that nearest interpolation to `count` reads; computed in float32 as its
    kernels do. shift: 1/2 for the operators called exact, else 0."""
    step = _single(1 / scale) if scale else _single(size / count)
    return tuple(min(int(_single((n + float(shift)) * step)), size - 1) for n in range(count))


def _single(number: float) -> float:
    """The number rounded to float32."""
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded


def _steps(positions: Positions, shift: Fraction) -> tuple[Fraction, Fraction]:
    """The bounds of all steps with `positions[n] == floor(step * (n + shift))`; the upper bound is excluded."""
    held = [(place, n + shift) for n, place in enumerate(positions) if n + shift]
    low = max((place / n for place, n in held), default=Fraction(0))
    high = min(((place + 1) / n for place, n in held), default=Fraction(1))
    return low, high if shift or not positions[0] else low


@functools.lru_cache(maxsize=256)
def step_of(positions: Positions, shift: Fraction) -> Fraction | None:
    """The step of the smallest denominator with `positions[n] == floor(step * (n + shift))`; None if there is none."""
    low, high = _steps(positions, shift)
    for denominator in range(1, 4 * len(positions)):
        numerator = math.ceil(low * denominator)
        if numerator < high * denominator:
            return Fraction(numerator, denominator)
    return None


@lowers(*NEAREST, *EXACT)
def upsample_nearest(
    b: Builder, x: TensorValue, output_size: Sequence[Index], *scales: float | None
) -> TensorValue | None:
    """Enlarge to a known size: positions are quotients of whole numbers, which need no check and no tensor."""
    axes, shift = len(output_size), Fraction(int(b.target in EXACT), 2)
    given = (*scales, *[None] * (axes - len(scales)))
    steps: list[Fraction] = []
    for size, count, scale in zip(x.shape[-axes:], output_size, given, strict=True):
        if not isinstance(size, int) or not isinstance(count, int) or not size or not count:
            return None
        step = step_of(nearest(size, count, scale, shift), shift)
        if step is None:
            return None
        steps.append(step)

    def place(position: Index, step: Fraction) -> Index:
        twice = index.add(index.mul(position, 2 * step.numerator), int(2 * shift) * step.numerator)
        return index.floordiv(twice, 2 * step.denominator)

    return b.loop(lambda p: b.load(x, (*p[:-axes], *map(place, p[-axes:], steps))))


@lowers(aten.repeat_interleave.self_int)
def repeat_interleave(
    b: Builder, x: TensorValue, repeats: Index, dim: int | None = None, *, output_size: Index | None = None
) -> TensorValue | None:
    if dim is None or not isinstance(repeats, int) or repeats < 1:
        return None

    def element(p: Position) -> Node:
        where = list(p)
        where[dim] = index.floordiv(p[dim], repeats)
        return b.load(x, where)

    return b.loop(element)


@lowers(
    aten.upsample_nearest1d_backward.default,
    aten.upsample_nearest2d_backward.default,
    aten.upsample_nearest3d_backward.default,
    aten._upsample_nearest_exact1d_backward.default,
    aten._upsample_nearest_exact2d_backward.default,
    aten._upsample_nearest_exact3d_backward.default,
)
def upsample_nearest_backward(
    b: Builder,
    grad: TensorValue,
    output_size: Sequence[Index],
    input_size: Sequence[Index],
    *scales: float | None,
) -> TensorValue | None:
    """The factors are whole, so each element gets the sum of the gradients of its copies."""
    axes = len(output_size)
    pairs = [(n, k) for n, k in zip(output_size, input_size[-axes:], strict=True) if isinstance(n, int)]
    if len(pairs) < axes or not all(isinstance(k, int) and k and n % k == 0 for n, k in pairs):
        return None
    factors = [n // k for n, k in pairs if isinstance(k, int)]
    if any(scale not in (None, factor) for scale, factor in zip(scales, factors, strict=False)):
        return None
    dtype = compute_dtype(grad.dtype)

    def item(p: Position, step: Position) -> Node:
        where = [index.add(index.mul(c, factor), k) for c, factor, k in zip(p[-axes:], factors, step, strict=True)]
        return b.read(grad, (*p[:-axes], *where), dtype)

    def total(p: Position) -> Node:
        if math.prod(factors) > MOST_COMPARED:
            return b.reduce_over("sum", factors, lambda step: item(p, step))
        items = (item(p, step) for step in itertools.product(*map(range, factors)))
        return functools.reduce(lambda one, other: b.op("add", one, other), items)

    return b.loop(total)
