"""Walks over value graphs without recursion, because a fused kernel may have a chain of hundreds of nodes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

import attrs

from armature.lower.data import Const, IndexValue, Load, Masked, Node, Op, Reduce, Scan, Store
from armature.lower.index import Index, Var, substitute, variables


def operands(node: Node) -> tuple[Node, ...]:
    """The node's operands, in a fixed order; for a Masked its condition, then its value."""
    if isinstance(node, Op):
        return node.args
    if isinstance(node, Load):
        return tuple(value for _, value in node.indirect)
    if isinstance(node, Masked):
        return (node.cond, node.value)
    if isinstance(node, (Reduce, Scan)):
        return (node.value,)
    return ()


def recomputed_operands(node: Node) -> tuple[Node, ...]:
    """The nodes that a pass computes for a node: all but earlier reductions."""
    return () if isinstance(node, Reduce) else operands(node)


def postorder(
    roots: Iterable[Node],
    children: Callable[[Node], tuple[Node, ...]] = operands,
    skip: Container[Node] = (),
) -> list[Node]:
    """Every node reachable from the roots once, operands before users. Nodes in `skip` are neither entered nor
    returned."""
    order: list[Node] = []
    seen: set[Node] = set()
    for root in roots:
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
                continue
            if node in seen or node in skip:
                continue
            seen.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(children(node)) if child not in seen)
    return order


def store_roots(store: Store) -> tuple[Node, ...]:
    """The nodes that a store needs: the indices it computes, then its value."""
    return (*(value for _, value in store.indirect), store.value)


def with_operands(node: Node, values: Mapping[Node, Node]) -> Node:
    """The node with each operand replaced by `values[operand]`; the same object if nothing changes."""
    if isinstance(node, Op):
        args = tuple(values[a] for a in node.args)
        return node if _same(args, node.args) else attrs.evolve(node, args=args)
    if isinstance(node, Load) and node.indirect:
        indirect = tuple((var, values[value]) for var, value in node.indirect)
        return node if _same([v for _, v in indirect], operands(node)) else attrs.evolve(node, indirect=indirect)
    if isinstance(node, Masked):
        cond, value = values[node.cond], values[node.value]
        same = cond is node.cond and value is node.value
        return node if same else attrs.evolve(node, cond=cond, value=value)
    if isinstance(node, (Reduce, Scan)):
        value = values[node.value]
        return node if value is node.value else attrs.evolve(node, value=value)
    return node


def _same(left: Iterable[Node], right: Iterable[Node]) -> bool:
    return all(a is b for a, b in zip(left, right, strict=True))


def rebuild(roots: Iterable[Node], change: Callable[[Node], Node]) -> dict[Node, Node]:
    """Maps each old node that the roots reach to its new node. `change` gets each node with its operands already
    changed."""
    new: dict[Node, Node] = {}
    for node in postorder(roots):
        new[node] = change(with_operands(node, new))
    return new


def rename_node(node: Node, changes: Mapping[Var, Index]) -> Node:
    """The node's own indices with variables replaced; its operands are unchanged.

    The variables of a Reduce or Scan are replaced by all variables of their replacements, in that
    order.
    """
    if isinstance(node, Load):
        index = tuple(substitute(i, changes) for i in node.index)
        return node if index == node.index else attrs.evolve(node, index=index)
    if isinstance(node, IndexValue):
        value = substitute(node.index, changes)
        return node if value == node.index else attrs.evolve(node, index=value)
    if isinstance(node, (Reduce, Scan)) and any(var in changes for var in node.over):
        over: list[Var] = []
        for var in node.over:
            over += [v for v in sorted_variables(changes.get(var, var)) if v not in over]
        return attrs.evolve(node, over=tuple(over))
    return node


def rename_store(store: Store, changes: Mapping[Var, Index], values: Mapping[Node, Node]) -> Store:
    """The store with variables replaced in its indices and its nodes replaced by `values`."""
    return attrs.evolve(
        store,
        index=tuple(substitute(i, changes) for i in store.index),
        value=values[store.value],
        indirect=tuple((var, values[value]) for var, value in store.indirect),
    )


def sorted_variables(value: Index) -> list[Var]:
    """The variables of an index sorted by name: the same in every process."""
    return sorted(variables(value), key=lambda v: v.name)


def depends(order: Iterable[Node]) -> dict[Node, frozenset[Var]]:
    """The loop variables that each node varies with; `order` has operands before users.

    A variable bound by an indirect index counts as the variables of its value; a Reduce does not depend on its own
    variables, a Scan does.
    """
    found: dict[Node, frozenset[Var]] = {}
    for node in order:
        own: frozenset[Var] = frozenset()
        for child in operands(node):
            own |= found[child]
        if isinstance(node, Load):
            bound = frozenset(var for var, _ in node.indirect)
            for index in node.index:
                own |= variables(index) - bound
        elif isinstance(node, IndexValue):
            own |= variables(node.index)
        elif isinstance(node, Reduce):
            own -= frozenset(node.over)
        elif isinstance(node, Scan):
            own |= frozenset(node.over)
        found[node] = own
    return found


def structure(node: Node, canonical: Mapping[Node, Node]) -> object:
    """A key that two nodes share exactly when they compute the same value from the same canonical operands."""
    args = tuple(id(canonical[child]) for child in operands(node))
    if isinstance(node, Const):
        return (Const, repr(node.value), node.dtype)
    if isinstance(node, IndexValue):
        return (IndexValue, node.index, node.dtype)
    if isinstance(node, Load):
        # by position: a kernel that several loops became has another name for the same computed place in each
        names: dict[Var, Index] = {var: Var(f"@{k}", var.extent) for k, (var, _) in enumerate(node.indirect)}
        where = tuple(substitute(part, names) for part in node.index) if names else node.index
        return (Load, node.buffer, where, node.dtype, tuple(var.extent for var, _ in node.indirect), args)
    if isinstance(node, Op):
        return (Op, node.op, node.dtype, args)
    if isinstance(node, Masked):
        return (Masked, node.dtype, repr(node.other.value), args)
    return (type(node), node.op, node.over, node.dtype, args)
