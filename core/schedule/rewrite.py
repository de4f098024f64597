"""A kernel's nodes, and the kernel over other variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import attrs

from armature.lower.data import Node, Reduce
from armature.lower.index import Index, Var
from armature.schedule.data import Kernel, Pass
from armature.schedule.walk import operands, postorder, rebuild, rename_node, rename_store


def nodes_of(kernel: Kernel) -> list[Node]:
    """All nodes, operands before users."""
    return postorder(kernel.roots, operands)


def replace(kernel: Kernel, changes: Mapping[Var, Index], outer: Sequence[Var], inner: Sequence[Var]) -> Kernel:
    """The kernel over other variables: each old one is given as an index over the new ones."""
    new = rebuild(nodes_of(kernel), lambda node: rename_node(node, changes))
    passes = []
    for item in kernel.passes:
        passes.append(
            Pass(
                reductions=tuple(cast(Reduce, new[r]) for r in item.reductions),
                inner_stores=tuple(rename_store(s, changes, new) for s in item.inner_stores),
                outer_stores=tuple(rename_store(s, changes, new) for s in item.outer_stores),
            )
        )
    return attrs.evolve(kernel, outer=tuple(outer), inner=tuple(inner), passes=tuple(passes))
