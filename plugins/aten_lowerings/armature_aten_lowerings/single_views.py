"""Spells the results of `unbind` and splits as views of their own, which backward can take again.

The partitioner recomputes `select` and `slice`, but not one result of an operator that returns several views: it would
save that for its few bytes, and with it all of the tensor that it is a part of.
"""

from __future__ import annotations

import operator

import torch
from torch import fx

from armature_aten_lowerings.common import returned
from armature_aten_lowerings.joins import part_of

aten = torch.ops.aten


def take_views_singly(module: object, ctx: object) -> object:
    """The pass, on the joint graph: `select` and `slice` in place of `unbind` and splits."""
    if not isinstance(module, fx.GraphModule):
        return module
    results = returned(module.graph)
    for node in module.graph.find_nodes(op="call_function", target=operator.getitem):
        part = part_of(node)
        if part is None or node in results:
            continue
        bounds = (part.start,) if part.single else (part.start, part.stop)
        with module.graph.inserting_before(node):
            view = aten.select.int if part.single else aten.slice.Tensor
            made = module.graph.call_function(view, (part.source, part.axis, *bounds))
        made.meta.update(node.meta)
        node.replace_all_uses_with(made)
        module.graph.erase_node(node)
    return module
