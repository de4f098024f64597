"""Changes of what a tensor is: its memory, whether and how autograd follows it.

They stand in the graph, among the operators, and are made on the fakes too, which so tell what the tensor is from then
on. A functional graph would lose them: one that begins or ends to collect gradients in a tensor is done between pieces
that are compiled (`graph/pieces.py`), and a graph with one that changes memory runs operator by operator.
"""

from __future__ import annotations

import torch
from torch import fx

from armature.torch_abi.altering import is_leaf, is_parameter, is_view
from armature.torch_abi.fake import of_transform

AS_CAPTURED = "as_captured"  # in the meta of a node that a functional graph would not have
APART = "apart"  # in that of one that is done between the pieces of a functional graph
LEAF_VIEW = "leaf_view"  # in that of a view, made without gradients, of a tensor that wants some


def mark_leaf(result: torch.Tensor, node: fx.Node) -> None:
    """Told of a tensor that a node makes: one that collects gradients from its start is of eager mode only, and so is
    a parameter. A view made without gradients, of a tensor that wants some, is only where it leaves the graph."""
    leaf = result.requires_grad and is_leaf(result) and not of_transform(result)
    if leaf and is_view(result):
        node.meta[LEAF_VIEW] = True
    elif leaf or is_parameter(result):
        node.meta[APART] = True
