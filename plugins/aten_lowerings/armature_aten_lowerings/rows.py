"""Lays out sums that norms read along their rows, where they are in memory by columns.

The patches of an image or the frames of a recording come from a convolution, by a transpose. Everything that is added
to them has their layout, in eager mode too: the residuals of each layer of a vision or speech transformer, which its
norms then read across memory. Here the first sum is stored by rows. That costs nothing, because its kernel stores it
anyway, and the following operators keep the layout.
"""

from __future__ import annotations

import torch
from torch import Tensor, fx

from armature.plugin_api import fake_of
from armature_aten_lowerings.layouts import Relayout, bytes_of, relaid

aten = torch.ops.aten
NORMS = (aten.native_layer_norm.default, aten._fused_rms_norm.default)


def lay_out_by_rows(module: object, ctx: object) -> object:
    """The pass."""
    if not isinstance(module, fx.GraphModule):
        return module
    every = [n for norm in NORMS for n in module.graph.find_nodes(op="call_function", target=norm)]
    normed = dict.fromkeys(norm.args[0] for norm in every)
    return relaid(module, {n: bytes_of(fake_of(n)) for n in normed if is_computed_by_columns(n)}, Rows)


def is_computed_by_columns(node: fx.Node) -> bool:
    """Whether a loop computes the node and stores it without gaps, but not by rows."""
    value = node.meta.get("val")
    target = node.target
    if not isinstance(value, Tensor) or not isinstance(target, torch._ops.OpOverload):
        return False
    if torch.Tag.pointwise not in target.tags or not all(type(n) is int for n in value.shape):
        return False
    return not value.is_contiguous() and torch.ops.aten.is_non_overlapping_and_dense(value)


class Rows(Relayout):
    """Stores chosen sums by rows."""

    def change(self, node: fx.Node) -> None:
        """Store the sum by rows, unless its operands already are."""
        if any(needed in self.old for needed in node.all_input_nodes):
            self.follow(node)
        if not is_computed_by_columns(node):
            return
        with self.graph.inserting_after(node):
            made = self.call(node, aten.clone.default, node, memory_format=torch.contiguous_format)
        node.replace_all_uses_with(made, lambda user: user is not made)
        self.old[made] = self.old.get(node, node.meta["val"])
        if node not in self.old:
            self.restored[made] = node
