"""The spec of a loop graph, for strict mode."""

from __future__ import annotations

from collections.abc import Iterator

from armature.errors import invariant
from armature.lower import index as ix
from armature.lower.data import (
    Const,
    ExternCall,
    IndexValue,
    Load,
    Loop,
    LoopGraph,
    Masked,
    Node,
    Op,
    Reduce,
    Scan,
    Store,
    View,
)
from armature.lower.index import Index, Size, Var
from armature.lower.ops import OPS, REDUCTIONS


def verify(graph: LoopGraph) -> None:
    """Check that every name is known and filled before it is read, that indices only use variables in scope, and that
    dtypes agree.

    Errors: InvariantError naming the loop and the violation.
    """
    filled = {*graph.inputs, *graph.constants}
    for name, buffer in graph.buffers.items():
        invariant(name == buffer.name, "a buffer is stored under another name", name=name, buffer=buffer.name)
        invariant(len(buffer.shape) == len(buffer.strides), "sizes and strides differ in rank", buffer=name)
        if 0 in buffer.shape:
            filled.add(name)
    seen: set[str] = set()
    for node in graph.nodes:
        invariant(node.name not in seen, "two loops have one name", name=node.name)
        seen.add(node.name)
        if isinstance(node, Loop):
            _Loop(graph, node, filled).check()
        else:
            _check_extern(graph, node, filled)
    for output in graph.outputs:
        _check_argument(graph, output, filled, "the graph's outputs")


def _check_extern(graph: LoopGraph, call: ExternCall, filled: set[str]) -> None:
    for argument in (*call.args, *call.kwargs.values()):
        _check_argument(graph, argument, filled, call.name)
    for name in (*call.outputs, *call.mutates):
        if name is not None:
            invariant(name in graph.buffers, "a call fills an unknown buffer", call=call.name, buffer=name)
            filled.add(name)


def _check_argument(graph: LoopGraph, value: object, filled: set[str], where: str) -> None:
    if isinstance(value, tuple):
        for item in value:
            _check_argument(graph, item, filled, where)
    if not isinstance(value, View):
        return
    invariant(value.buffer in graph.buffers, "an unknown buffer is used", buffer=value.buffer, where=where)
    invariant(value.buffer in filled, "a buffer is used before it is filled", buffer=value.buffer, where=where)
    invariant(len(value.shape) == len(value.strides), "sizes and strides differ in rank", view=value, where=where)


class _Loop:
    """Checks one loop."""

    def __init__(self, graph: LoopGraph, loop: Loop, filled: set[str]) -> None:
        self.graph, self.loop, self.filled = graph, loop, filled
        self.checked: set[tuple[int, frozenset[Var]]] = set()

    def check(self) -> None:
        """The stores in their order."""
        invariant(bool(self.loop.stores), "a loop stores nothing", loop=self.loop.name)
        for store in self.loop.stores:
            self.store(store)
        if self.loop.plain:
            first = self.loop.stores[0]
            invariant(
                first.buffer == self.loop.name and first.index == self.loop.space and not first.atomic,
                "a plain loop stores elsewhere than at its own coordinates",
                loop=self.loop.name,
            )

    def store(self, store: Store) -> None:
        buffer = self.graph.buffers.get(store.buffer)
        invariant(buffer is not None, "a store to an unknown buffer", loop=self.loop.name, buffer=store.buffer)
        scope = frozenset(self.loop.space)
        for var, node in store.indirect:
            self.node(node, scope)
            scope |= {var}
        self.indices(store.index, scope, store.buffer)
        self.node(store.value, scope)
        invariant(
            buffer is None or store.value.dtype == buffer.dtype,
            "a store of another dtype than the buffer's",
            loop=self.loop.name,
            stored=store.value.dtype,
        )
        self.filled.add(store.buffer)

    def indices(self, parts: tuple[Index, ...], scope: frozenset[Var], buffer: str) -> None:
        rank = len(self.graph.buffers[buffer].shape)
        invariant(len(parts) == rank, "an access has not one index per axis", loop=self.loop.name, buffer=buffer)
        for part in parts:
            self.index(part, scope)

    def index(self, part: Index, scope: frozenset[Var]) -> None:
        free = ix.variables(part) - scope
        invariant(not free, "an index has a variable that no loop runs", loop=self.loop.name, index=str(part))
        unknown: set[Size] = {size for size in ix.sizes(part) - self.graph.sizes.keys() if not size.definition}
        invariant(not unknown, "an index has a size that no input gives", loop=self.loop.name, index=str(part))

    def node(self, root: Node, scope: frozenset[Var]) -> None:
        """Walk the graph of values once per scope, without recursion, because chains may be long."""
        todo: list[tuple[Node, frozenset[Var]]] = [(root, scope)]
        while todo:
            node, inner = todo.pop()
            if (id(node), inner) in self.checked:
                continue
            self.checked.add((id(node), inner))
            todo.extend(self.children(node, inner))

    def children(self, node: Node, scope: frozenset[Var]) -> Iterator[tuple[Node, frozenset[Var]]]:
        """Check one node; returns its operands, each with the variables in its scope."""
        if isinstance(node, IndexValue):
            self.index(node.index, scope)
        elif isinstance(node, Load):
            invariant(node.buffer in self.filled, "a buffer is read before it is filled", loop=self.loop.name, of=node)
            bound = scope | {var for var, _ in node.indirect}
            self.indices(node.index, bound, node.buffer)
            dtype = self.graph.buffers[node.buffer].dtype
            invariant(node.dtype == dtype, "a load of another dtype than the buffer's", loop=self.loop.name, of=node)
            yield from ((value, scope) for _, value in node.indirect)
        elif isinstance(node, Op):
            known = OPS.get(node.op)
            invariant(known is not None, "an unknown operation", loop=self.loop.name, op=node.op)
            invariant(known is None or known.arity == len(node.args), "a wrong number of arguments", op=node.op)
            yield from ((value, scope) for value in node.args)
        elif isinstance(node, Masked):
            yield from ((value, scope) for value in (node.cond, node.value))
        elif isinstance(node, Reduce):
            invariant(node.op in REDUCTIONS, "an unknown reduction", loop=self.loop.name, op=node.op)
            invariant(bool(node.over), "a reduction over nothing", loop=self.loop.name)
            yield (node.value, scope | frozenset(node.over))
        elif isinstance(node, Scan):
            known_op = node.op in REDUCTIONS and REDUCTIONS[node.op].combine is not None
            invariant(known_op and node.value.dtype == node.dtype, "no such scan", loop=self.loop.name, op=node.op)
            own = frozenset(self.loop.space)
            invariant(own.issuperset(node.over), "a scan along no loop of its own", loop=self.loop.name, over=node.over)
            yield (node.value, scope)
        else:
            invariant(isinstance(node, Const), "not a node of the loop IR", loop=self.loop.name, node=node)
