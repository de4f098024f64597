"""A kernel as statements in printing order, for every back end to walk.

`walk_kernel` names each shared node once, finds what is invariant in the inner loop, and puts conditional loads under
their condition. A back end then prints, per pass: `before`, the loop over `inner` variables with `inside`, and `after`;
it needs no analysis of its own. `depends` tells which loop variables a value varies with, so a vectorised loop prints a
value that does not vary with the vector's variable as a scalar.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import attrs

from armature.lower.data import Const, Load, Masked, Node, Op, Origin, Reduce, Scan, Store
from armature.lower.index import Var
from armature.schedule.data import Kernel, Pass
from armature.schedule.walk import depends, postorder, rebuild, recomputed_operands, store_roots, structure


@attrs.frozen(eq=False)
class Let:
    """`name = node`: a Load, Op, IndexValue or Scan whose operands already have names or are Const."""

    name: str
    node: Node


@attrs.frozen(eq=False)
class Guarded:
    """`name = node.other; if node.cond: body; name = node.value`. Only the body may load what `cond` protects."""

    name: str
    node: Masked
    body: tuple[Statement, ...]


@attrs.frozen(eq=False)
class Accumulate:
    """Combine `node.value` into the running value of the reduction; after the loop `name` holds its result."""

    name: str
    node: Reduce


@attrs.frozen(eq=False)
class Write:
    """Make the store; its operands already have names."""

    store: Store


Statement: TypeAlias = Let | Guarded | Accumulate | Write


@attrs.frozen(eq=False)
class PassBody:
    """One pass as statements: `before` the inner loop, `inside` it (with Accumulate), `after` it.

    A name made in `before` or `after` is valid for the rest of the outer point; one made in `inside` is not. A pass
    without reductions and inner stores has no inner loop: `inside` is ().
    """

    before: tuple[Statement, ...]
    inside: tuple[Statement, ...]
    after: tuple[Statement, ...]
    reductions: tuple[Accumulate, ...]

    def scans(self) -> Iterator[tuple[str, Scan]]:
        """Its scans, and their names."""
        for statement in self.inside:
            if isinstance(statement, Let) and isinstance(statement.node, Scan):
                yield statement.name, statement.node


@attrs.frozen(eq=False)
class KernelBody:
    """The kernel: `names` maps any node but a Const to its name, `depends` to the loop variables it varies with."""

    kernel: Kernel
    passes: tuple[PassBody, ...]
    names: Mapping[Node, str]
    depends: Mapping[Node, frozenset[Var]]


def origin_of(statement: Statement) -> Origin | None:
    """The user's line that a statement comes from, if known."""
    node: Node = statement.store.value if isinstance(statement, Write) else statement.node
    return node.origin if isinstance(node, (Op, Reduce, Scan)) else None


def stored_early(kernel: Kernel) -> frozenset[str]:
    """The buffers that are stored before the last pass: loads of them may see different values in different passes. All
    loads of the last pass come before its own stores to the same buffer."""
    return frozenset(s.buffer for p in kernel.passes[:-1] for s in (*p.inner_stores, *p.outer_stores))


def share(kernel: Kernel) -> Kernel:
    """The kernel with equal expressions merged into one node, except loads that may see different values."""
    early = stored_early(kernel)
    table: dict[object, Node] = {}
    identity: dict[Node, Node] = {}

    def change(node: Node) -> Node:
        key: object = node
        if not (isinstance(node, Load) and node.buffer in early):
            key = structure(node, identity)
        found = table.setdefault(key, node)
        identity[node] = identity[found] = found
        return found

    new = rebuild(kernel.roots, change)

    def store(old: Store) -> Store:
        return attrs.evolve(old, value=new[old.value], indirect=tuple((var, new[value]) for var, value in old.indirect))

    passes = tuple(
        Pass(
            reductions=tuple(dict.fromkeys(_reduce(new[r]) for r in p.reductions)),
            inner_stores=tuple(store(s) for s in p.inner_stores),
            outer_stores=tuple(store(s) for s in p.outer_stores),
        )
        for p in kernel.passes
    )
    return attrs.evolve(kernel, passes=passes)


def _reduce(node: Node) -> Reduce:
    if not isinstance(node, Reduce):
        raise TypeError(f"a reduction became {type(node).__name__}")
    return node


def _unguarded(node: Node) -> tuple[Node, ...]:
    """The operands that must be known before the node's own statement, except the value of a Masked and what a Reduce
    runs over."""
    if isinstance(node, Masked):
        return (node.cond,)
    return recomputed_operands(node)


class _Scopes:
    """The named nodes of the scopes that are open now."""

    def __init__(self) -> None:
        self.open: list[set[Node]] = [set()]

    def __contains__(self, node: object) -> bool:
        return isinstance(node, Const) or any(node in scope for scope in self.open)

    def add(self, node: Node) -> None:
        self.open[-1].add(node)


class _Walker:
    def __init__(self, kernel: Kernel, prefix: str) -> None:
        self.kernel = share(kernel)
        self.prefix = prefix
        self.depends = depends(postorder(self.kernel.roots))
        self.names: dict[Node, str] = {}
        self.scopes = _Scopes()
        self.counts = {prefix: 0, "red": 0}
        self.inner = frozenset(kernel.inner)
        self.loaded = {n.buffer for n in self.depends if isinstance(n, Load)}
        self.loaded.update(written for _, written in kernel.overlaid)

    def name(self, node: Node, prefix: str = "") -> str:
        prefix = prefix or self.prefix
        if node not in self.names:
            self.names[node] = f"{prefix}{self.counts[prefix]}"
            self.counts[prefix] += 1
        return self.names[node]

    def let(self, roots: Iterable[Node], out: list[Statement]) -> None:
        """Statements that name everything the roots need and that has no name yet."""
        for node in postorder(roots, _unguarded, self.scopes):
            if isinstance(node, Const) or node in self.scopes:
                continue
            if isinstance(node, Masked):
                body: list[Statement] = []
                self.scopes.open.append(set())
                self.let((node.value,), body)
                self.scopes.open.pop()
                out.append(Guarded(self.name(node), node, tuple(body)))
            else:
                out.append(Let(self.name(node), node))
            self.scopes.add(node)

    def writes(self, stores: Iterable[Store], out: list[Statement]) -> None:
        """Interleave values and stores; a store to memory that this kernel also loads waits until all loads are
        made."""
        late: list[Statement] = []
        for store in stores:
            self.let(store_roots(store), out)
            (late if store.buffer in self.loaded else out).append(Write(store))
        out += late

    def step(self, item: Pass) -> PassBody:
        before: list[Statement] = []
        inside: list[Statement] = []
        after: list[Statement] = []
        roots: list[Node] = [r.value for r in item.reductions]
        for store in item.inner_stores:
            roots += store_roots(store)
        needed = postorder(roots, _unguarded, self.scopes)
        self.let((n for n in needed if not self.depends[n] & self.inner), before)
        self.scopes.open.append(set())
        accumulates: list[Accumulate] = []
        # A scan must see every point, even if its value is only needed under a condition.
        self.let((n for n in postorder(roots, recomputed_operands, self.scopes) if isinstance(n, Scan)), inside)
        for node in item.reductions:
            self.let((node.value,), inside)
            accumulates.append(Accumulate(self.name(node, "red"), node))
            inside.append(accumulates[-1])
        self.writes(item.inner_stores, inside)
        self.scopes.open.pop()
        for node in item.reductions:
            self.scopes.add(node)
        self.writes(item.outer_stores, after)
        return PassBody(tuple(before), tuple(inside), tuple(after), tuple(accumulates))


def walk_kernel(kernel: Kernel, prefix: str = "tmp") -> KernelBody:
    """The kernel's statements. Linear in its nodes; names are `tmpN` (or another prefix) and `redN` in printing
    order."""
    walker = _Walker(kernel, prefix)
    passes = tuple(walker.step(item) for item in walker.kernel.passes)
    return KernelBody(walker.kernel, passes, walker.names, walker.depends)
