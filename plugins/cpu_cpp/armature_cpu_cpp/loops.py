"""Decides a kernel's loops: which are merged, their order, which is vectorised, which are divided among threads.

`plan_nest` rewrites a kernel so that each load and store has one index, its position in elements; then loops that
traverse memory as one are merged, and the vector's loop is chosen by the cost of its accesses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import attrs

from armature.backend_api import (
    OPS,
    Buffer,
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
    depends,
    hint,
    mul,
    numel,
    position,
    postorder,
    rebuild,
    rename_node,
    rename_store,
    stride_of,
    substitute,
    variables,
)
from armature_cpu_cpp.pairs import has_partner
from armature_cpu_cpp.reduce import POSITIONS
from armature_cpu_cpp.segments import cut
from armature_cpu_cpp.vector import lanes_of

# Cost per element of a vector access, relative to a contiguous load.
CONTIGUOUS, BROADCAST, GATHER, SCATTER = 1.0, 0.2, 16.0, 20.0
TURN = 8.0  # of each lane, for a vector added to memory at a separate place per lane
STEPS: Mapping[int, float] = MappingProxyType({2: 3.0, 3: 5.0, 4: 7.0})  # a load with that stride
ALTERNATE = 2.0  # a store to every other element, together with one to those in between
CROWDED, SET = 2.0, 4096  # factor for lanes that are multiples of so many bytes apart: their lines displace each other
ACROSS = 12.0  # of combining the lanes of an accumulator
WITHIN, ACROSS_ROWS = 24.0, 10.0  # of a scan along a vector's lanes; of a scan whose lanes are separate rows
CHEAP = 24.0  # operations per point below which a reduction waits for its own additions
FULL = 32_768  # bytes of the first cache that one operand may fill
MOST_VECTORS = 4  # of columns that are reduced in turn
UNITS = 8  # pieces for each thread, if there are as many
REREAD = 8  # how often a part of an operand is read again, at least, so that bringing it there costs little
PARALLEL_WORK = 40_000.0  # total cost from which threads pay: about 25 us, the time to wake them


@attrs.frozen(eq=False)
class Nest:
    """A kernel with its loops decided.

    kernel: flat (one index per access, its position), with merged loops. outer, inner: loops from outside to inside.
    vector: the loop whose points are lanes, None for a scalar kernel. collapsed: how many leading outer loops are
    divided among threads as one. split: a single loop that is divided among threads; one of `outer` (then its points
    are independent) or of `inner` (then each thread has accumulators of its own). place: of argmax and argmin, the
    row-major position within the reduction. unroll: accumulators used in turn if a cheap reduction would wait for the
    previous addition.
    """

    kernel: Kernel
    outer: tuple[Var, ...]
    inner: tuple[Var, ...]
    vector: Var | None
    lanes: int
    collapsed: int
    split: Var | None
    parallel: bool
    place: Index
    unroll: int = 1


@attrs.define(eq=False)
class _Flat:
    """A kernel whose loops are being decided."""

    kernel: Kernel
    outer: list[Var]
    inner: list[Var]
    place: Index

    def forms(self) -> list[Index]:
        """Every index that contains a loop variable."""
        nodes = postorder(self.kernel.roots)
        forms: list[Index] = [n.index for n in nodes if isinstance(n, IndexValue)]
        forms += [n.index[0] for n in nodes if isinstance(n, Load)]
        forms += [s.index[0] for s in self.kernel.stores]
        forms.append(self.place)
        return list(dict.fromkeys(forms))

    def rename(self, changes: Mapping[Var, Index]) -> None:
        """Replace loop variables everywhere."""
        order = rebuild(self.kernel.roots, lambda node: rename_node(node, changes))
        self.place = substitute(self.place, changes)
        self.kernel = _with(self.kernel, order, changes)


def _with(kernel: Kernel, values: Mapping[Node, Node], changes: Mapping[Var, Index]) -> Kernel:
    def reductions(step: Pass) -> Iterable[Reduce]:
        for old in step.reductions:
            new = values[old]
            if isinstance(new, Reduce):
                yield new

    passes = tuple(
        Pass(
            tuple(reductions(step)),
            tuple(rename_store(s, changes, values) for s in step.inner_stores),
            tuple(rename_store(s, changes, values) for s in step.outer_stores),
        )
        for step in kernel.passes
    )
    return attrs.evolve(kernel, passes=passes)


def flatten(kernel: Kernel, buffers: Mapping[str, Buffer]) -> _Flat:
    """The kernel with positions instead of coordinates."""
    flat = _Flat(kernel, list(kernel.outer), list(kernel.inner), 0)

    def one_index(node: Node) -> Node:
        return attrs.evolve(node, index=(position(node, buffers),)) if isinstance(node, Load) else node

    new = rebuild(flat.kernel.roots, one_index)
    flat.kernel = _with(kernel, new, {})
    passes = tuple(
        attrs.evolve(
            step,
            inner_stores=tuple(attrs.evolve(s, index=(position(s, buffers),)) for s in step.inner_stores),
            outer_stores=tuple(attrs.evolve(s, index=(position(s, buffers),)) for s in step.outer_stores),
        )
        for step in flat.kernel.passes
    )
    flat.kernel = attrs.evolve(flat.kernel, passes=passes)
    if any(r.op in POSITIONS for step in kernel.passes for r in step.reductions) or _scans(kernel):
        for var in kernel.inner:
            flat.place = add(mul(flat.place, var.extent), var)
    return flat


def _scans(kernel: Kernel) -> int:
    """How many scans it has: their loops run in order, in one thread."""
    return sum(isinstance(node, Scan) for node in postorder(kernel.roots))


def join_loops(flat: _Flat) -> None:
    """Drop loops of one point; merge loops that every access traverses as one."""
    ones = {v: 0 for v in (*flat.outer, *flat.inner) if v.extent == 1}
    if ones:
        flat.rename(ones)
        flat.outer = [v for v in flat.outer if v not in ones]
        flat.inner = [v for v in flat.inner if v not in ones]
    for loops in (flat.outer, flat.inner):
        while pair := _joinable(loops, flat.forms()):
            first, second = pair
            joined = Var(f"{first.name}_{second.name}", mul(first.extent, second.extent))
            flat.rename({first: 0, second: joined})
            loops[loops.index(second)] = joined
            loops.remove(first)


def _joinable(loops: Sequence[Var], forms: Sequence[Index]) -> tuple[Var, Var] | None:
    for second in reversed(loops):
        for first in loops:
            if first is not second and _walks_as_one(first, second, forms):
                return first, second
    return None


def _walks_as_one(first: Var, second: Var, forms: Sequence[Index]) -> bool:
    """Whether every index only depends on the two through first * extent(second) + second."""
    joined = Var("joined", mul(first.extent, second.extent))
    apart = add(mul(first, second.extent), second)
    touched = False
    for form in forms:
        if not variables(form) & {first, second}:
            continue
        touched = True
        if substitute(substitute(form, {first: 0, second: joined}), {joined: apart}) != form:
            return False
    return touched


def _size(index: Index) -> int:
    return max(hint(index), 1)


def _in_disjoint_coordinates(kernel: Kernel) -> list[Var]:
    """Outer loops whose points never touch the same element, although stores add; others can't run in parallel."""
    stores = [s for step in kernel.passes for s in (*step.inner_stores, *step.outer_stores)]
    adding = [s for s in stores if s.atomic]
    return [v for v in kernel.outer if all(v in s.index for s in adding)]


@attrs.define(eq=False)
class _Costs:
    """Computes the costs of the candidates for the vector's loop."""

    flat: _Flat
    lanes: int

    def accesses(self) -> list[tuple[Load | Store, frozenset[Var], float]]:
        """Variables of indirect parts, and non-contiguous cost per load and store."""
        nodes = postorder(self.flat.kernel.roots)
        known = depends(nodes)

        def behind(access: Load | Store) -> frozenset[Var]:
            return frozenset().union(*(known[value] for _, value in access.indirect))

        loads = [(node, behind(node), GATHER) for node in nodes if isinstance(node, Load)]
        # If lanes may write to the same place they run one after the other, each waiting for the values that the others
        # wrote.
        stores = self.flat.kernel.stores
        return [*loads, *((s, behind(s), TURN * self.lanes if s.atomic else SCATTER) for s in stores)]

    def shares(self, var: Var) -> Mapping[Load | Store, float]:
        """For loads under a condition: the fraction of the loop over `var` in which the condition may hold, if the loop
        is split where it changes."""
        nodes = postorder(self.flat.kernel.roots)
        masked = [node for node in nodes if isinstance(node, Masked)]
        if not masked or not isinstance(var.extent, int):
            return {}
        known = depends(nodes)
        pieces = cut(nodes, var, var.extent, self.lanes, lambda node: var in known[node])
        found: dict[Load | Store, float] = {}
        for node in masked:
            points = sum(piece.end - piece.begin for piece in pieces if piece.conditions.get(node.cond, True))
            found |= {load: points / var.extent for load in postorder([node.value]) if isinstance(load, Load)}
        return found

    def crowding(self, access: Load | Store, stride: int) -> float:
        """By how much longer an access with a stride takes because its lanes are in one set of a cache."""
        dtype = access.dtype if isinstance(access, Load) else access.value.dtype
        return CROWDED if stride * dtype.itemsize % SET == 0 else 1.0

    def work(self) -> float:
        """Number of operations at one point of all loops."""
        return _work(self.flat.kernel.roots)

    def of(self, var: Var | None) -> float:
        """Cost of a point if `var` is vectorised; None: no loop is."""
        scans = _scans(self.flat.kernel)
        if var is None:
            return self.lanes * (len(self.accesses()) + self.work() + scans)
        inner = frozenset(self.flat.inner)
        if scans and var in inner and var is not self.flat.inner[-1]:
            return math.inf
        total = self.work() + scans * (WITHIN if var in inner else ACROSS_ROWS)
        shares = self.shares(var)
        for access, behind, apart in self.accesses():
            index = access.index[0]
            stride = None if var in behind else stride_of(index, var)
            near = {0: BROADCAST, 1: CONTIGUOUS, **(STEPS if apart == GATHER else {})}
            if isinstance(access, Store) and has_partner(access, self.flat.kernel.stores):
                near[2] = ALTERNATE
            cost = near.get(stride, apart * self.crowding(access, stride)) if isinstance(stride, int) else apart
            if inner and not (variables(index) | behind) & inner:
                cost /= _size(numel(v.extent for v in self.flat.inner))
            total += cost * shares.get(access, 1.0)
        extent = _size(var.extent)
        used = extent / (math.ceil(extent / self.lanes) * self.lanes)
        if var in inner:
            total += ACROSS / math.ceil(extent / self.lanes)
        return total / used


def _work(roots: Iterable[Node]) -> float:
    """Number of operations for these nodes, and one more."""
    return sum(OPS[n.op].cost for n in postorder(roots) if isinstance(n, Op)) + 1.0


def _stride_order(loops: Iterable[Var], forms: Sequence[Index]) -> list[Var]:
    """Large strides first, by the first index that has the variable; ties keep their order."""

    def key(var: Var) -> int:
        for form in forms:
            if var in variables(form):
                stride = stride_of(form, var)
                return -abs(_size(stride)) if stride is not None else 0
        return 0

    return sorted(loops, key=key)


def _turning(flat: _Flat, vector: Var, loops: Sequence[Var]) -> list[Var]:
    """Loops with contiguous accesses that are strided along the vector: running them inside reuses cache lines."""
    found: list[Var] = []
    accesses: list[Load | Store] = [node for node in postorder(flat.kernel.roots) if isinstance(node, Load)]
    for access in [*accesses, *flat.kernel.stores]:
        if not access.indirect and stride_of(access.index[0], vector) not in (0, 1):
            found += [v for v in loops if v not in found and stride_of(access.index[0], v) == 1]
    return found


def _rereading(flat: _Flat, vector: Var, loops: Sequence[Var], lanes: int, threads: int) -> list[Var]:
    """The last loops, if each of their points reads again what fills a cache, as depthwise convolutions of many
    channels do with their weight: running them inside reads a vector's part of it again. Not where the threads would
    then have too little to share."""
    widest = min(lanes * MOST_VECTORS, _size(vector.extent))
    for load in (node for node in postorder(flat.kernel.roots) if isinstance(node, Load)):
        over = variables(load.index[0])
        if load.indirect or vector not in over or over.isdisjoint(flat.inner):
            continue
        late: list[Var] = []
        for var in reversed(loops):
            if var in over or _size(numel(v.extent for v in late)) >= REREAD:
                break
            late.insert(0, var)
        whole = _size(numel(v.extent for v in over)) * load.dtype.itemsize
        shared = _size(numel(v.extent for v in loops if v not in late)) * (_size(vector.extent) // widest)
        if late and whole > FULL >= whole // _size(vector.extent) * widest and shared >= UNITS * threads:
            return late
    return []


def plan_nest(kernel: Kernel, buffers: Mapping[str, Buffer], register_bytes: int, threads: int) -> Nest:
    """Decide a kernel's loops."""
    adds = any(s.atomic for step in kernel.passes for s in (*step.inner_stores, *step.outer_stores))
    disjoint = _in_disjoint_coordinates(kernel) if adds else list(kernel.outer)
    flat = flatten(kernel, buffers)
    if not adds:
        join_loops(flat)
    dtypes = [n.dtype for n in postorder(flat.kernel.roots) if not isinstance(n, IndexValue)]
    lanes = lanes_of(dtypes, register_bytes)
    costs = _Costs(flat, lanes)
    loops = (*flat.outer, *flat.inner)
    vector = min((None, *loops), key=costs.of) if loops else None
    outer, inner = _order(flat, vector, lanes, threads)
    flat.kernel = attrs.evolve(flat.kernel, outer=tuple(outer), inner=tuple(inner))
    lanes, unroll = _interleave(flat, vector, lanes)
    nest = Nest(flat.kernel, tuple(outer), tuple(inner), vector, lanes, 0, None, False, flat.place, unroll)
    points = _size(numel(v.extent for v in loops))
    saved = points * costs.of(vector) / costs.lanes * (threads - 1) / threads
    if saved < PARALLEL_WORK or not loops:
        return nest
    return _share(nest, [v for v in outer if v in disjoint] if adds else outer, adds, threads)


def _order(flat: _Flat, vector: Var | None, lanes: int, threads: int) -> tuple[list[Var], list[Var]]:
    stores = [s.index[0] for s in flat.kernel.stores]
    loads = [n.index[0] for n in postorder(flat.kernel.roots) if isinstance(n, Load)]
    outer = _stride_order((v for v in flat.outer if v is not vector), [*stores, *loads])
    inner = [v for v in flat.inner if v is not vector]
    if not _scans(flat.kernel):
        inner = _stride_order(inner, [*loads, *stores])
    if vector in flat.outer and vector is not None:
        late = _rereading(flat, vector, outer, lanes, threads) if inner else _turning(flat, vector, outer)
        outer = [*(v for v in outer if v not in late), vector, *late]
    elif vector is not None:
        inner.append(vector)
    return outer, inner


def _interleave(flat: _Flat, vector: Var | None, lanes: int) -> tuple[int, int]:
    """Lanes and accumulators of a cheap reduction, so that several additions overlap."""
    reductions = [r for step in flat.kernel.passes for r in step.reductions]
    kinds = {r.op for r in reductions}
    if vector is None or not flat.inner or not kinds or kinds & POSITIONS.keys():
        return lanes, 1
    if _work(r.value for r in reductions) > CHEAP:
        return lanes, 1
    vectors = _size(vector.extent) // lanes
    if _scans(flat.kernel):
        return lanes, 1
    if vector in flat.inner:
        exact = isinstance(vector.extent, int) and vector.extent % lanes == 0
        ways = [n for n in (4, 3, 2) if vectors >= n and (vectors % n == 0 or not exact or vectors >= 16)]
        return lanes, ways[0] if ways else 1
    wide = [n for n in (MOST_VECTORS, 2) if isinstance(vector.extent, int) and vector.extent % (lanes * n) == 0]
    return lanes * (wide[0] if wide else MOST_VECTORS if vectors >= 8 else 2 if vectors >= 3 else 1), 1


def _share(nest: Nest, candidates: Sequence[Var], adds: bool, threads: int) -> Nest:
    """Assign loops to threads: the leading outer loops as one, a single loop if stores add, or a loop of the
    reduction."""

    def blocks(var: Var) -> int:
        return -(-_size(var.extent) // nest.lanes) if var is nest.vector else _size(var.extent)

    if adds:
        split = max(candidates, key=blocks, default=None)
        if split is None or blocks(split) < 2:
            return nest
        return attrs.evolve(nest, split=split, parallel=True)
    units, collapsed = 1, 0
    for var in nest.outer:
        units *= blocks(var)
        collapsed += 1
        if units >= UNITS * threads or var is nest.vector:
            break
    if units >= 2 * threads or (units == threads and not nest.inner):
        return attrs.evolve(nest, collapsed=collapsed, parallel=True)
    if _scans(nest.kernel):
        return nest
    split = max(nest.inner, key=blocks, default=None)
    if split is not None and blocks(split) >= 2 * threads:
        return attrs.evolve(nest, split=split, parallel=True)
    return nest
