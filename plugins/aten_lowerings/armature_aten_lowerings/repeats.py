"""Elements repeated in order (`x[:, i // 2]`, which nearest upsampling decomposes into), without tensors of indices."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import fx

from armature.backend_api import Builder, Index, Node, Position, TensorValue, compute_dtype, index, lowers
from armature.plugin_api import KnownValues, NotKnown, Services
from armature_aten_lowerings.common import add_call
from armature_aten_lowerings.windows import MOST_COMPARED

aten = torch.ops.aten


def repeat_elements(module: object, ctx: Services) -> object:
    """The pass: an index that depends on constants only, and repeats each element of its axes, is not looked up."""
    if not isinstance(module, fx.GraphModule):
        return module
    known = KnownValues()
    for target in (aten._unsafe_index.Tensor, aten.index.Tensor):
        for node in module.graph.find_nodes(op="call_function", target=target):
            factors = _factors(node, known)
            if factors is not None:
                _expand(node, factors)
    return module


def _factors(node: fx.Node, known: KnownValues) -> list[int] | None:
    """How often each element is repeated, an axis each; None if the index does something else."""
    x, indices = cast(tuple[fx.Node, Sequence[fx.Node | None]], node.args)
    old, new = x.meta["val"], node.meta["val"]
    first = next((axis for axis, one in enumerate(indices) if one is not None), len(indices))
    numbers = all(type(n) is int for n in (*old.shape, *new.shape))
    if not numbers or new.dim() != old.dim() or not new.is_contiguous():
        return None
    factors = [1] * old.dim()
    for axis, given in enumerate(indices[first:], first):
        factor = _factor(given, old.shape[axis], len(indices) - axis, known)
        if factor is None:
            return None
        factors[axis] = factor
    return factors if any(factor > 1 for factor in factors) else None


def _factor(given: fx.Node | None, size: int, place: int, known: KnownValues) -> int | None:
    """How often the index repeats each of `size` elements. It must vary along its axis `place` from the end only."""
    if given is None or given.meta["val"].dtype not in (torch.int32, torch.int64):
        return None
    shape = given.meta["val"].shape
    count = shape.numel()
    if len(shape) < place or shape[-place] != count or not size or not count or count % size:
        return None
    try:
        found = known.elements(given)
    except NotKnown:
        return None
    factor = count // size
    return factor if found == [n // factor for n in range(count)] else None


def _expand(node: fx.Node, factors: Sequence[int]) -> None:
    """Replace the node by its operand with the elements of each axis repeated."""
    made = cast(fx.Node, node.args[0])
    with node.graph.inserting_before(node):
        for axis, factor in enumerate(factors):
            if factor > 1:
                made = add_call(node, aten.repeat_interleave.self_int, made, factor, axis)
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)


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
    """By whole factors: each element has the sum of the gradients of its copies."""
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
