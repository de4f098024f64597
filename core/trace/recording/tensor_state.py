"""Changes of a tensor's state: its memory, and whether and how autograd tracks it.

They are nodes of the graph, and are applied to the fakes too, which then show the tensor's new state. A functional
graph would lose them. So a change of `requires_grad` is made between compiled pieces (`graph/pieces.py`), and a graph
that replaces a tensor's memory runs operator by operator.
"""

from __future__ import annotations

import torch
from torch import fx

from armature.torch_abi.altering import is_leaf, is_parameter, is_view
from armature.torch_abi.fake import of_transform

AS_CAPTURED = "as_captured"  # in the meta of a node that has no place in a functional graph
BETWEEN_PIECES = "apart"  # in the meta of a node that runs between the pieces of a graph: True, or fakes of results
LEAF_VIEW = "leaf_view"  # in the meta of a view made under no_grad of a tensor that requires gradients


def mark_leaf(result: torch.Tensor, node: fx.Node) -> None:
    """Mark a node whose result is a leaf that requires gradients, or a parameter: it only exists in eager mode. A view
    made under no_grad of a tensor that requires gradients matters only where it leaves the graph."""
    leaf = result.requires_grad and is_leaf(result) and not of_transform(result)
    if leaf and is_view(result):
        node.meta[LEAF_VIEW] = True
    elif leaf or is_parameter(result):
        node.meta[BETWEEN_PIECES] = True
