"""Loop nests as tiles: all outer variables are merged into `x`, all inner ones into `r`; a program computes a block of
each.

A pointwise kernel has two-dimensional tiles if that is worth it: then one of the outer variables is its `r`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from armature.backend_api import (
    Buffer,
    Index,
    Kernel,
    Load,
    Op,
    Store,
    Var,
    add,
    bounds,
    delinear,
    floordiv,
    hint,
    mul,
    nodes_of,
    numel,
    position,
    replace,
    stride_of,
    substitute,
    variables,
)
from armature_gpu_triton import autotune

INT32_MAX = 2**31 - 1
SHORTEST_RUN = 32
"""Points along which memory is contiguous, at least, where it is so in runs: a warp's threads load one."""


@attrs.frozen(eq=False)
class Tile:
    """A kernel over `x` (and `r`), with its tile sizes.

    x_masked, r_masked: the last block may reach past the end. wide: offsets need 64 bits. part: of a kernel that makes
    sums across its rows; a program then runs over all of `x`, the rows of one part, and the grid is over the parts.
    """

    kernel: Kernel
    x: Var
    r: Var | None
    config: autotune.Config
    x_masked: bool
    r_masked: bool
    wide: bool
    part: Var | None = None

    @property
    def across(self) -> Index:
        """The number of programs along `r`."""
        if self.r is None or not self.config.tiled:
            return 1
        return floordiv(add(self.r.extent, self.config.rblock - 1), self.config.rblock)


def accesses(kernel: Kernel) -> list[Load | Store]:
    """All loads and stores."""
    return [*(n for n in nodes_of(kernel) if isinstance(n, Load)), *kernel.stores]


def contiguous_bytes(kernel: Kernel, buffers: Mapping[str, Buffer], along: Iterable[Var]) -> dict[Var, int]:
    """Bytes moved by accesses that are contiguous in each variable, with symbolic sizes at their hints.

    Bytes, not accesses: batch norm reads four vectors along the channels, which cost nothing compared with the image.
    """
    return _bytes(kernel, buffers, along, lambda place, var: stride_of(place, var) == 1)


def bytes_in_runs(kernel: Kernel, buffers: Mapping[str, Buffer], along: Iterable[Var]) -> dict[Var, int]:
    """Like `contiguous_bytes`, with accesses that are contiguous in runs: a variable stands for several loops, as in
    `var % 3000 + 90000 * (var // 3000)`."""

    def contiguous(place: Index, var: Var) -> bool:
        step = stride_of(place, var)
        if step is not None or not isinstance(var.extent, int) or var.extent <= SHORTEST_RUN:
            return step == 1
        first = dict.fromkeys(variables(place), 0)
        places = [hint(substitute(place, {**first, var: at})) for at in range(SHORTEST_RUN + 1)]
        return all(after - before == 1 for before, after in itertools.pairwise(places))

    return _bytes(kernel, buffers, along, contiguous)


def _bytes(
    kernel: Kernel, buffers: Mapping[str, Buffer], along: Iterable[Var], counts: Callable[[Index, Var], bool]
) -> dict[Var, int]:
    """Bytes moved by the accesses whose place counts, for each variable."""
    total = dict.fromkeys(along, 0)
    for access in accesses(kernel):
        if access.indirect:
            continue
        place = position(access, buffers)
        touched = hint(numel(v.extent for v in variables(place))) * buffers[access.buffer].dtype.itemsize
        for var in total:
            if counts(place, var):
                total[var] += touched
    return total


def ordered(kernel: Kernel, buffers: Mapping[str, Buffer]) -> tuple[Var, ...]:
    """The outer variables, ending with the one in which most bytes are contiguous."""
    counts = contiguous_bytes(kernel, buffers, [v for v in kernel.outer if v.extent != 1])
    if not counts:
        return kernel.outer
    best = max(counts, key=lambda v: (counts[v], kernel.outer.index(v)))
    if counts[best] == counts.get(kernel.outer[-1], 0):
        best = kernel.outer[-1]
    return in_memory(kernel.outer, best, widest(kernel, buffers, best))


def widest(kernel: Kernel, buffers: Mapping[str, Buffer], last: Var) -> Index:
    """The place of the access over most variables among those that are contiguous in the given one; 0 for none."""
    places = [position(a, buffers) for a in accesses(kernel) if not a.indirect]
    return max((p for p in places if stride_of(p, last) == 1), key=lambda p: len(variables(p)), default=0)


def in_memory(every: Iterable[Var], last: Var, place: Index) -> tuple[Var, ...]:
    """The variables in the order that they have in memory, and the given one at the end."""
    others = [v for v in every if v is not last]
    strides = {v: step for v in others if isinstance(step := stride_of(place, v), int) and step}
    if len(strides) < len(others):
        return (*others, last)
    return (*sorted(others, key=lambda v: -strides[v]), last)


def run_of(every: Sequence[Var], place: Index) -> Index:
    """How far memory is contiguous along the last variables."""
    length: Index = 1
    for var in reversed(every):
        if stride_of(place, var) != length:
            break
        length = mul(length, var.extent)
    return length


def flatten(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Kernel:
    """The same kernel over one outer variable `x` and, if it has inner ones, one inner variable `r`."""
    outer = ordered(kernel, buffers)
    x = Var("x", numel(v.extent for v in outer))
    changes: dict[Var, Index] = dict(zip(outer, delinear(x, [v.extent for v in outer]), strict=True))
    if not kernel.inner:
        return replace(kernel, changes, (x,), ())
    r = Var("r", numel(v.extent for v in kernel.inner))
    changes.update(zip(kernel.inner, delinear(r, [v.extent for v in kernel.inner]), strict=True))
    return replace(kernel, changes, (x,), (r,))


def flatten_parts(kernel: Kernel) -> Kernel:
    """A kernel that makes sums across rows, over the outer variables `part` and `x` (its rows) and the inner `r`."""
    *others, row = kernel.outer
    part, x = Var("part", numel(v.extent for v in others)), Var("x", row.extent)
    r = Var("r", numel(v.extent for v in kernel.inner))
    changes: dict[Var, Index] = dict(zip(others, delinear(part, [v.extent for v in others]), strict=True))
    changes |= {row: x, **dict(zip(kernel.inner, delinear(r, [v.extent for v in kernel.inner]), strict=True))}
    return replace(kernel, changes, (part, x), (r,))


def tiled(kernel: Kernel, buffers: Mapping[str, Buffer]) -> tuple[Kernel, autotune.Config] | None:
    """A pointwise kernel with a second tile dimension, and the tile sizes; None if one dimension is as good.

    Two are better if some accesses are contiguous in one variable and others in another one, as in a transpose, or if
    some loaded values are constant along a row.
    """
    long = [v for v in kernel.outer if v.extent != 1]
    if kernel.inner or len(long) < 2 or any(a.indirect for a in kernel.stores):
        return None
    *others, row = ordered(kernel, buffers)
    loaded = [position(a, buffers) for a in accesses(kernel) if isinstance(a, Load)]
    counts = contiguous_bytes(kernel, buffers, long)
    second = max((v for v in long if v is not row), key=counts.__getitem__)
    if counts[second] * 8 >= counts[row]:
        place = widest(kernel, buffers, second)
        others = [*in_memory(others, second, place)]
        config = autotune.square(shape_over(kernel, buffers, run_of(others, place), row.extent))
    elif any(used and row not in used for used in map(variables, loaded)):
        config = autotune.rows(shape_over(kernel, buffers, numel(v.extent for v in others), row.extent))
    else:
        return None
    if config is None:
        return None
    passes = tuple(attrs.evolve(p, inner_stores=p.outer_stores, outer_stores=()) for p in kernel.passes)
    return attrs.evolve(kernel, outer=tuple(others), inner=(row,), passes=passes), config


def shape_of(kernel: Kernel, buffers: Mapping[str, Buffer]) -> autotune.Shape:
    """The properties of a kernel (not yet flattened) that determine its tiles."""
    x, r = numel(v.extent for v in kernel.outer), numel(v.extent for v in kernel.inner)
    shape = shape_over(kernel, buffers, x, r)
    if not kernel.inner:
        return attrs.evolve(shape, r=0)
    inner = [v for v in kernel.inner if v.extent != 1] or list(kernel.inner)
    along = bytes_in_runs(kernel, buffers, [*kernel.outer, inner[-1]])
    along_r = along.pop(inner[-1])
    return attrs.evolve(shape, along_r=along_r >= max(along.values(), default=0))


def shape_over(kernel: Kernel, buffers: Mapping[str, Buffer], x: Index, r: Index) -> autotune.Shape:
    """Like `shape_of`, for a tile whose dimensions have `x` and `r` points; memory is contiguous along `r`."""
    names = (*kernel.reads, *kernel.writes)
    nodes = nodes_of(kernel)
    loads = [n for n in nodes if isinstance(n, Load)]
    return autotune.Shape(
        x=hint(x),
        r=max(hint(r), 1),
        static=isinstance(x, int) and isinstance(r, int),
        passes=sum(bool(item.reductions or item.inner_stores) for item in kernel.passes),
        along_r=True,
        bytes=max((buffers[n].dtype.itemsize for n in names), default=4),
        gathers=any(load.indirect for load in loads),
        loads=len(loads),
        draws=any(isinstance(n, Op) and n.op == "uniform" for n in nodes),
    )


def is_wide(kernel: Kernel, buffers: Mapping[str, Buffer], slack: int) -> bool:
    """True if an offset, or a position in the loop rounded up to whole blocks, may not fit in 32 bits."""
    ends = [bounds(position(a, buffers))[1] for a in accesses(kernel) if not a.indirect]
    ends += [bounds(numel(buffers[a.buffer].shape))[1] for a in accesses(kernel) if a.indirect]
    ends += [bounds(v.extent)[1] for v in (*kernel.outer, *kernel.inner)]
    return any(end is None or end + slack > INT32_MAX for end in ends)


def tile(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Tile:
    """Flatten a kernel and choose its tiles."""
    if kernel.sums:
        flat = flatten_parts(kernel)
        part, x = flat.outer
        row = flat.inner[0]
        loads = [n for n in accesses(flat) if isinstance(n, Load) and {x, row} <= variables(position(n, buffers))]
        row_bytes = hint(row.extent) * sum(buffers[name].dtype.itemsize for name in {n.buffer for n in loads})
        config = autotune.rows_in_turn(shape_over(kernel, buffers, x.extent, row.extent), row_bytes)
        return _tile(flat, x, row, config, buffers, part)
    two = tiled(kernel, buffers)
    if two is None:
        config, flat = autotune.choose(shape_of(kernel, buffers)), flatten(kernel, buffers)
    else:
        config, flat = two[1], flatten(two[0], buffers)
    x, r = flat.outer[0], flat.inner[0] if flat.inner else None
    return _tile(flat, x, r, config, buffers)


def retile(part: Tile, config: autotune.Config, buffers: Mapping[str, Buffer]) -> Tile:
    """The same kernel with other tile sizes."""
    return _tile(part.kernel, part.x, part.r, config, buffers, part.part)


def _tile(
    kernel: Kernel,
    x: Var,
    r: Var | None,
    config: autotune.Config,
    buffers: Mapping[str, Buffer],
    part: Var | None = None,
) -> Tile:
    return Tile(
        kernel=kernel,
        x=x,
        r=r,
        config=config,
        x_masked=not isinstance(x.extent, int) or x.extent % config.xblock != 0,
        r_masked=r is not None and (not isinstance(r.extent, int) or r.extent % config.rblock != 0 or r.extent == 0),
        wide=is_wide(kernel, buffers, max(config.xblock, config.rblock)),
        part=part,
    )
