"""Finds the product of matrices in a kernel: which loops run over its rows and columns, and what surrounds it.

A product is recognised by its structure, a sum of `product` over the inner loops. A value that depends on the outer
loops of its left factor alone varies along rows, and so on; everything computed of the factors before it is their
prologue, everything after the sum its epilogue. So mm, addmm, bmm and whatever is fused with them have one common form.
A convolution is a sum of such products, one for each element of its window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from armature.codegen.printer import position
from armature.lower.data import Buffer, Node, Op, Reduce
from armature.lower.index import Index, Var, delinear, hint, numel, stride_of
from armature.schedule.axes import addresses, joins
from armature.schedule.data import Kernel
from armature.schedule.rewrite import nodes_of, replace
from armature.schedule.walk import depends

BATCH, ROW, COLUMN, INNER, WINDOW = "batch", "m", "n", "k", "tap"
LEAST_INNER = 16
"""Length of the last inner loop from which on others are a loop of their own, in which positions are single numbers."""


@attrs.frozen(eq=False)
class Product:
    """A kernel over `batch` (None for a single product), `m`, `n` and, inside, `tap` (None for a single product) and
    `k`, and its product.

    total: the sum. left: varies with batch, m, tap and k; right: with batch, tap, k and n; one may be the same for all
    of the batch. source: the kernel over its
    own loops.
    """

    kernel: Kernel
    total: Reduce
    left: Node
    right: Node
    batch: Var | None
    m: Var
    n: Var
    k: Var
    tap: Var | None
    source: Kernel

    @property
    def outer(self) -> tuple[Var, ...]:
        """The variables of an element of the result."""
        return self.kernel.outer


def sum_of_products(kernel: Kernel) -> tuple[Reduce, Op] | None:
    """The sum and the product under it, if the kernel has a single pass that does nothing else in its inner loop."""
    if len(kernel.passes) != 1 or kernel.passes[0].inner_stores or len(kernel.passes[0].reductions) != 1:
        return None
    (total,) = kernel.passes[0].reductions
    value = total.value
    if total.op != "sum" or not isinstance(value, Op) or value.op != "product":
        return None
    return total, value


def roles(kernel: Kernel, product: Op) -> Mapping[str, tuple[Var, ...]] | None:
    """The outer variables over which the product's batch, rows and columns run, () for none; None if some are
    neither."""
    known = depends(nodes_of(kernel))
    left, right = (known.get(factor, frozenset()) for factor in product.args)
    found: dict[str, list[Var]] = {BATCH: [], ROW: [], COLUMN: []}
    for var in kernel.outer:
        if var not in left and var not in right:
            return None
        found[BATCH if var in left and var in right else ROW if var in left else COLUMN].append(var)
    return {role: tuple(held) for role, held in found.items()}


def is_turned(kernel: Kernel, found: Mapping[str, tuple[Var, ...]], buffers: Mapping[str, Buffer]) -> bool:
    """Whether the result is contiguous along the rows, not the columns, of the product; the two are then exchanged."""
    along = dict.fromkeys((ROW, COLUMN), 0)
    for store in kernel.stores:
        place = position(store, buffers)
        for role in along:
            along[role] += any(stride_of(place, var) == 1 for var in found[role])
    return along[ROW] > along[COLUMN]


def find(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Product | None:
    """The product in a kernel, with the kernel's loops merged to `batch`, `m`, `n` and `k`; None if it has none."""
    both = sum_of_products(kernel)
    if both is None:
        return None
    found = roles(kernel, both[1])
    if found is None:
        return None
    turned = is_turned(kernel, found, buffers)
    if turned:
        found = {BATCH: found[BATCH], ROW: found[COLUMN], COLUMN: found[ROW]}
    found = _with_plain_columns(kernel, found, buffers)
    changes: dict[Var, Index] = {}
    new = {role: merged(role, held, changes) for role, held in found.items() if held or role != BATCH}
    windows, along = apart(kernel.inner)
    inner = {role: merged(role, held, changes) for role, held in ((WINDOW, windows), (INNER, along)) if held}
    flat = replace(kernel, changes, tuple(new.values()), tuple(inner.values()))
    again = sum_of_products(flat)
    if again is None:
        raise TypeError(f"no product in {kernel.name} any more")
    left, right = again[1].args
    if turned:
        left, right = right, left
    rest = (new.get(BATCH), new[ROW], new[COLUMN], inner[INNER], inner.get(WINDOW), kernel)
    return Product(flat, again[0], left, right, *rest)


def _with_plain_columns(
    kernel: Kernel, found: Mapping[str, tuple[Var, ...]], buffers: Mapping[str, Buffer]
) -> Mapping[str, tuple[Var, ...]]:
    """The roles with columns that lie as one row in memory: if those of several matrices do not, as where one left
    factor is multiplied by each of them, the matrices are a batch."""
    places = addresses(nodes_of(kernel), kernel.stores, buffers)
    *others, last = found[COLUMN] or (None,)
    if last is None or not others or hint(last.extent) < LEAST_INNER or joins(others[-1], last, places):
        return found
    return {BATCH: (*found[BATCH], *others), ROW: found[ROW], COLUMN: (last,)}


def apart(inner: tuple[Var, ...]) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
    """Inner loops that are walked one point at a time, and those walked in blocks."""
    if len(inner) > 1 and hint(inner[-1].extent) >= LEAST_INNER:
        return inner[:-1], inner[-1:]
    return (), inner


def merged(name: str, held: Sequence[Var], changes: dict[Var, Index]) -> Var:
    """One variable for all of these, which `changes` then expresses in it."""
    whole = Var(name, numel(v.extent for v in held))
    changes.update(zip(held, delinear(whole, [v.extent for v in held]), strict=True))
    return whole
