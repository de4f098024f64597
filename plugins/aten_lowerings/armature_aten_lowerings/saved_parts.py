"""Copies parts of values that backward needs in memory, where the rest of the value would be kept with them.

An example is one projection for query, key and value: backward multiplies by scaled or rotated copies of query and key,
and by the values as they are, which are a third of the projection's memory.
"""

from __future__ import annotations

import attrs
import torch
from torch import Tensor, fx
from torch.utils.checkpoint import CheckpointPolicy

from armature_aten_lowerings.layouts import Relayout, is_view, relaid
from armature_aten_lowerings.saving import depending_on_tangents, has_numbers, is_elementwise, is_on_cpu

aten = torch.ops.aten
LEAST_BYTES = 1 << 16
"""Bytes that must be saved for a copy."""


def copy_saved_parts(module: object, ctx: object) -> object:
    """The pass, on the joint graph: on a CPU, copy the parts where that saves at least half of the value's bytes."""
    if not isinstance(module, fx.GraphModule):
        return module
    backward = depending_on_tangents(module.graph)
    chosen: dict[fx.Node, int] = {}
    for node in module.graph.nodes:
        if node.op != "call_function" or node in backward or is_view(node) or is_elementwise(node):
            continue
        if has_numbers(node) and is_on_cpu(node):
            parts = saved_parts(node, backward)
            whole = node.meta["val"].nbytes
            left = whole - sum(part.meta["val"].nbytes for part in parts)
            if parts and left >= max(whole // 2, LEAST_BYTES):
                chosen |= dict.fromkeys(parts, left // len(parts))
    return relaid(module, chosen, Copies)


def saved_parts(node: fx.Node, backward: set[fx.Node]) -> set[fx.Node]:
    """The parts of a value that backward reads, if it reads nothing else of it and needs these in memory. Each is the
    first view on the way to its readers that has fewer elements."""
    found: set[fx.Node] = set()
    size = node.meta["val"].numel()
    todo: list[tuple[fx.Node, fx.Node | None]] = [(user, None) for user in node.users]
    while todo:
        user, part = todo.pop()
        if is_view(user):
            value = user.meta["val"]
            if isinstance(value, Tensor) and not has_numbers(user):
                return set()
            smaller = user if part is None and isinstance(value, Tensor) and value.numel() < size else part
            todo += [(below, smaller) for below in user.users]
        elif user.op == "output" or (user in backward and (part is None or is_elementwise(user))):
            return set()
        elif user in backward and part is not None:
            found.add(part)
    return found


@attrs.define(eq=False)
class Copies(Relayout):
    """Lets all that reads the chosen nodes read dense copies of them, which are saved."""

    def change(self, node: fx.Node) -> None:
        """Copy a node, with its axes in the same order in memory."""
        with self.graph.inserting_after(node):
            made = self.call(node, aten.clone.default, node)
        made.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)
        if made.meta["val"].stride() != node.meta["val"].stride():
            self.old[made] = node.meta["val"]
