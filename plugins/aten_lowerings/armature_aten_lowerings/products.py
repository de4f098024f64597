"""Products of matrices as loops, for back ends that have kernels of their own for them.

In compilations that measure (`Config.autotune`) such a back end chooses between these and the library's call. Otherwise
products are loops where its rules say that these are faster, and library calls elsewhere, which surrounding operators
are no part of.
"""

from __future__ import annotations

import math

import torch

from armature.backend_api import Builder, Node, Position, ProductSizes, TensorValue, compute_dtype, index, lowers

aten = torch.ops.aten
OPERATORS = frozenset(
    (aten.mm.default, aten.bmm.default, aten._int_mm.default, aten.addmm.default, aten.baddbmm.default)
)
WHOLE = {torch.int8: torch.int32}  # the dtype in which products of integers are summed


def _sum_of_products(b: Builder, left: TensorValue, right: TensorValue, p: Position) -> Node:
    """The element at `p` of `left` [..., M, K] times `right` [..., K, N], not rounded to their dtype."""
    summed = WHOLE.get(left.dtype, compute_dtype(left.dtype))
    *batch, row, column = p

    def item(step: Position) -> Node:
        factors = b.load(left, (*batch, row, step[0])), b.load(right, (*batch, step[0], column))
        return b.op("product", *factors, dtype=summed)

    return b.reduce_over("sum", (left.shape[-1],), item)


def is_chosen(b: Builder, left: TensorValue, right: TensorValue) -> bool:
    """Whether the device's back end computes products of these dtypes, and is asked to measure or has a rule for it."""
    found = b.features_of(left.device)
    if found is None or left.dtype not in found.products or left.dtype != right.dtype:
        return False
    if 0 in (*left.shape, *right.shape):
        return False
    if b.ctx.config.autotune:
        return True
    *batch, m, k = map(index.hint, left.shape)
    sizes = ProductSizes(left.dtype, math.prod(batch), m, index.hint(right.shape[-1]), k)
    by_rule = found.computes_product
    return by_rule is not None and b.ctx.config.own_products and by_rule(sizes)


@lowers(aten.mm.default, aten.bmm.default)
def product(b: Builder, left: TensorValue, right: TensorValue) -> TensorValue | None:
    """`left @ right`."""
    if not is_chosen(b, left, right) or left.dtype in WHOLE:
        return None
    return b.loop(lambda p: _sum_of_products(b, left, right, p))


@lowers(aten._int_mm.default)
def product_of_integers(b: Builder, left: TensorValue, right: TensorValue) -> TensorValue | None:
    """`left @ right` of int8, in int32."""
    return b.loop(lambda p: _sum_of_products(b, left, right, p)) if is_chosen(b, left, right) else None


@lowers(aten.addmm.default, aten.baddbmm.default)
def added_product(
    b: Builder, added: TensorValue, left: TensorValue, right: TensorValue, *, beta: float = 1, alpha: float = 1
) -> TensorValue | None:
    """`beta * added + alpha * (left @ right)`, rounded once; with a beta of 0, `added` is not read."""
    if not is_chosen(b, left, right) or left.dtype in WHOLE or added.dtype != left.dtype:
        return None

    def scaled(value: Node, factor: float) -> Node:
        return value if factor == 1 else b.op("mul", value, b.const(factor, value.dtype))

    def element(p: Position) -> Node:
        total = scaled(_sum_of_products(b, left, right, p), alpha)
        return total if beta == 0 else b.op("add", total, scaled(b.read(added, p), beta))

    return b.loop(element)
