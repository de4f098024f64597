"""Splits kernels with long rows and few programs, whose passes would each run on a handful of multiprocessors.

Each reducing pass becomes a kernel that reduces pieces of the row in parallel, and one that combines the pieces;
results needed by later passes are stored in workspaces. A pass's stores at each point are made by the first of the two
if the pieces have one length, and else by a kernel in between, because stores can't be masked. Later kernels load what
was stored if they would load more to compute it again. Everything is written in the loop IR, so no other stage is
affected.

A row may consist of short runs of memory, with those of other rows in between: the channels of a group in channels-last
images. Then the first kernel reduces along everything but the run, so that neighbours load neighbours, and the second
one combines the run too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import torch

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
    Pass,
    Reduce,
    Scan,
    Store,
    Var,
    add,
    contiguous_strides,
    delinear,
    hint,
    mul,
    nodes_of,
    numel,
    operands,
    position,
    postorder,
    recomputed_operands,
    rename_node,
    rename_store,
    store_roots,
    stride_of,
    variables,
    with_operands,
)
from armature_gpu_triton import autotune
from armature_gpu_triton.loops import accesses, contiguous_bytes, shape_of
from armature_gpu_triton.ops import kind
from armature_gpu_triton.reduce import POSITIONS

LONGEST_SEARCH = 1 << 16  # longer pieces may be followed by a shorter last one
SHORT_RUN = 128  # bytes; with shorter runs of memory, much of each memory transfer is unused


@attrs.frozen(eq=False)
class Group:
    """Kernels that together replace one kernel of the plan, and the buffers that only they use."""

    kernels: tuple[Kernel, ...]
    workspaces: Mapping[str, Buffer]


def neutral(op: str, dtype: torch.dtype) -> bool | int | float:
    """The neutral element."""
    if op in ("sum", "xor", "any"):
        return False if dtype == torch.bool else 0
    if op in ("prod", "all"):
        return True if dtype == torch.bool else 1
    largest = op == "max"
    if kind(dtype) == "float":
        return float("-inf") if largest else float("inf")
    if dtype == torch.bool:
        return not largest
    info = torch.iinfo(dtype)
    return info.min if largest else info.max


def split(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Group:
    """The kernel unchanged, or split if its rows are long and few."""
    whole = Group((kernel,), {})
    if not kernel.inner or kernel.sizes:
        return whole
    shape = shape_of(kernel, buffers)
    run = short_run(kernel, buffers) if shape.along_r else None
    if run is not None:
        width = hint(run.extent)
        shape = attrs.evolve(shape, x=shape.x * width, r=shape.r // width, along_r=False)
    pieces = autotune.pieces(shape)
    reductions = [r for item in kernel.passes for r in item.reductions]
    if pieces < 2 or any(r.op in POSITIONS for r in reductions):
        return whole
    if any(isinstance(n, Scan) for n in nodes_of(kernel)):
        return whole
    if any(s.atomic for s in kernel.stores) or reads_what_changed(kernel):
        return whole
    return _Splitter(kernel, pieces, shape.along_r, run).run()


def short_run(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Var | None:
    """The inner variable along which memory is contiguous, if these runs are short and followed by those of
    neighbouring rows. None if there is none, or if it is the only variable to reduce along."""
    long = [v for v in kernel.inner if v.extent != 1]
    counts = contiguous_bytes(kernel, buffers, long)
    run = max(long, key=counts.__getitem__, default=None)
    if len(long) < 2 or run is None or not counts[run] or not isinstance(run.extent, int):
        return None
    places = [(position(a, buffers), buffers[a.buffer]) for a in accesses(kernel) if not a.indirect]
    along = [(place, buffer) for place, buffer in places if stride_of(place, run) == 1]
    place, buffer = max(along, key=lambda item: len(variables(item[0])))
    follows = any(stride_of(place, v) == run.extent for v in kernel.outer)
    return run if follows and run.extent * buffer.dtype.itemsize < SHORT_RUN else None


def reads_what_changed(kernel: Kernel) -> bool:
    """Whether one of several kernels would read an element that an earlier one, or another program, has overwritten.

    A result may be in the memory of an operand. That is safe if each element is only read for the value stored in its
    place, and by reductions that are finished before.
    """
    loads = [n for n in accesses(kernel) if isinstance(n, Load)]
    for number, item in enumerate(kernel.passes):
        rest = kernel.passes[number + 1 :]
        after_outer = [node for step in rest for node in _computed(step)]
        # pieces are reduced by an earlier kernel, or concurrently
        after_inner = [*_values(item.outer_stores), *after_outer]
        for stores, after in ((item.inner_stores, after_inner), (item.outer_stores, after_outer)):
            for store in stores:
                places = {n.index for n in loads if n.buffer == store.buffer}
                indirect = any(n.indirect for n in loads if n.buffer == store.buffer)
                if places and (indirect or places != {store.index} or _loads(after, store.buffer)):
                    return True
    return False


def _values(stores: Iterable[Store]) -> list[Node]:
    return [root for store in stores for root in store_roots(store)]


def _computed(item: Pass) -> list[Node]:
    """All nodes that a pass computes anew."""
    return [*(r.value for r in item.reductions), *_values((*item.inner_stores, *item.outer_stores))]


def _loads(roots: Iterable[Node], buffer: str) -> bool:
    """Whether the buffer is loaded for these, apart from finished reductions, which are read from a workspace."""
    found = postorder(roots, recomputed_operands)
    return any(isinstance(n, Load) and n.buffer == buffer for n in found)


def chunk(points: int, pieces: int, even: bool) -> int:
    """The length of a piece; the last one may be shorter. even: a length without a shorter last piece, if there is one
    up to twice as long; preferably a multiple of 16 bytes."""
    shortest = -(-points // pieces)
    if not even or shortest > LONGEST_SEARCH:
        return shortest
    fitting = (length for length in range(shortest, 2 * shortest + 1) if points % length == 0)
    return min(fitting, key=lambda length: (length % 16 != 0, length), default=shortest)


def variables_of(place: Iterable[Index]) -> set[Var]:
    """The variables of all coordinates."""
    return {v for index in place for v in variables(index)}


class _Splitter:
    def __init__(self, kernel: Kernel, pieces: int, along_r: bool, run: Var | None = None) -> None:
        self.kernel = kernel
        self.along_r = along_r
        self.run_of_row = () if run is None else (run,)
        cut = [v for v in kernel.inner if v is not run]
        points = numel(v.extent for v in cut)
        if not isinstance(points, int):
            raise TypeError("a symbolic loop is not split")
        self.points = points
        self.chunk = chunk(points, pieces, any(p.reductions and p.inner_stores for p in kernel.passes))
        self.piece = Var("split_piece", -(-points // self.chunk))
        self.within = Var("split_within", self.chunk)
        self.place = add(mul(self.piece, self.chunk), self.within)
        self.changes = dict(zip(cut, delinear(self.place, [v.extent for v in cut]), strict=True))
        self.workspaces: dict[str, Buffer] = {}
        self.results: dict[Node, Load] = {}  # reductions of earlier passes, as loads
        self.needed: set[Node] = set()  # reductions that are read after the combining kernel of their own pass
        self.stored: dict[Node, Store] = {}  # values at each point that a finished kernel has stored
        self.kernels: list[Kernel] = []

    def workspace(self, dtype: torch.dtype, over: Iterable[Var]) -> str:
        name = f"{self.kernel.name}_work{len(self.workspaces)}"
        shape = tuple(v.extent for v in over)
        self.workspaces[name] = Buffer(name, dtype, self.kernel.device, shape, contiguous_strides(shape))
        return name

    def cut(self, piece: Var) -> tuple[Var, ...]:
        """The outer loops and the pieces, ending with the one in which memory is contiguous, so that neighbours load
        neighbours."""
        if self.along_r:
            return (*self.kernel.outer, piece)
        return (piece, *self.kernel.outer, *self.run_of_row)

    def renamed(
        self, roots: Iterable[Node], changes: Mapping[Var, Index], known: Mapping[Node, Node]
    ) -> dict[Node, Node]:
        """Nodes with variables replaced, and nodes of `known` replaced by their mapped values."""
        loads = {value: Load(s.buffer, s.index, value.dtype) for value, s in self.stored.items()}
        new: dict[Node, Node] = {**{value: rename_node(load, changes) for value, load in loads.items()}, **known}
        for node in postorder(roots, operands, new):
            new[node] = rename_node(with_operands(node, new), changes)
        return new

    def emit(self, outer: tuple[Var, ...], inner: tuple[Var, ...], item: Pass) -> None:
        reads: dict[str, None] = {}
        writes = dict.fromkeys(s.buffer for s in (*item.inner_stores, *item.outer_stores))
        part = attrs.evolve(
            self.kernel, name=f"{self.kernel.name}_part{len(self.kernels)}", outer=outer, inner=inner, passes=(item,)
        )
        for access in accesses(part):
            if isinstance(access, Load) and access.buffer not in writes:
                reads[access.buffer] = None
        self.kernels.append(attrs.evolve(part, reads=tuple(reads), writes=tuple(writes)))

    @property
    def even(self) -> bool:
        """Whether all pieces have one length."""
        return self.points % self.chunk == 0

    def pieces_of(self, item: Pass) -> dict[Node, Reduce]:
        """Reduce pieces, make the inner stores, and return the reductions that combine the pieces."""
        at_points = item.inner_stores if self.even else ()
        new = self.renamed([*(r.value for r in item.reductions), *_values(at_points)], self.changes, self.results)
        rest = Var("split_rest", self.piece.extent)
        parts: list[Reduce] = []
        stores: list[Store] = []
        joined: dict[Node, Reduce] = {}
        for old in item.reductions:
            value = new[old.value]
            if not self.even:
                ends = Const(self.points, torch.int64)
                inside = Op("lt", (IndexValue(self.place, torch.int64), ends), torch.bool)
                value = Masked(inside, value, Const(neutral(old.op, value.dtype), value.dtype), value.dtype)
            part = Reduce(old.op, value, (self.within,), old.dtype, old.origin)
            name = self.workspace(old.dtype, self.cut(self.piece))
            parts.append(part)
            stores.append(Store(name, self.cut(self.piece), part))
            load = Load(name, self.cut(rest), old.dtype)
            joined[old] = Reduce(old.op, load, (rest, *self.run_of_row), old.dtype, old.origin)
        inner = tuple(rename_store(s, self.changes, new) for s in at_points)
        self.emit(self.cut(self.piece), (self.within,), Pass(tuple(parts), inner, tuple(stores)))
        self.note_stored(at_points)
        if not self.even:
            self.at_each_point(item)
        return joined

    def join(self, item: Pass, joined: Mapping[Node, Reduce]) -> None:
        """Combine the pieces, make the outer stores, and record the results for later passes."""
        over = next(iter(joined.values())).over
        roots = [root for s in item.outer_stores for root in store_roots(s)]
        new = self.renamed(roots, {}, {**self.results, **joined})
        stores = [rename_store(s, {}, new) for s in item.outer_stores]
        for old, total in joined.items():
            if old not in self.needed:
                continue
            name = self.workspace(total.dtype, self.kernel.outer)
            stores.append(Store(name, self.kernel.outer, total))
            self.results[old] = Load(name, self.kernel.outer, total.dtype)
        self.emit(self.kernel.outer, over, Pass(tuple(joined.values()), (), tuple(stores)))

    def pointwise(self, stores: tuple[Store, ...], outer: tuple[Var, ...]) -> None:
        roots = [root for s in stores for root in store_roots(s)]
        new = self.renamed(roots, {}, self.results)
        self.emit(outer, (), Pass((), (), tuple(rename_store(s, {}, new) for s in stores)))

    def at_each_point(self, item: Pass) -> None:
        """The inner stores of a pass, by a kernel of their own."""
        if item.inner_stores:
            self.pointwise(item.inner_stores, (*self.kernel.outer, *self.kernel.inner))
            self.note_stored(item.inner_stores)

    def note_stored(self, stores: Iterable[Store]) -> None:
        """Let later kernels load what was stored at each point, if they would load more to compute it again."""
        buffers = [s.buffer for s in self.kernel.stores]
        points = {v for v in (*self.kernel.outer, *self.kernel.inner) if v.extent != 1}
        for store in stores:
            loads = [n for n in postorder([store.value], operands, self.results) if isinstance(n, Load)]
            places = {(n.buffer, n.index) for n in loads if points <= variables_of(n.index)}
            if len(places) > 1 and not store.indirect and buffers.count(store.buffer) == 1:
                self.stored[store.value] = store

    def note_needs(self) -> None:
        known: set[Node] = set()
        for item in self.kernel.passes:
            roots: list[Node] = [r.value for r in item.reductions]
            roots += [root for s in (*item.inner_stores, *item.outer_stores) for root in store_roots(s)]
            self.needed |= known & set(postorder(roots))
            known |= set(item.reductions)

    def run(self) -> Group:
        self.note_needs()
        for item in self.kernel.passes:
            if item.reductions:
                self.join(item, self.pieces_of(item))
                continue
            self.at_each_point(item)
            if item.outer_stores:
                self.pointwise(item.outer_stores, self.kernel.outer)
        return Group(tuple(self.kernels), self.workspaces)
