"""What schemas don't tell of ATen's operators: shorter ways to call them, and whose results lie as torch says."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from armature.plugin_api import Operator

aten = torch.ops.aten

# The same operators with the same arguments: `torch` parses them in C, an OpOverload takes about 1 us longer. An
# operator that takes lists with None in them (`Tensor?[]`) has no function here: those refuse such lists. Everybody
# relies on how the results of these lie in memory.
CALLED_OFTEN = (
    Operator(aten.mm.default, torch.mm, lies_as_told=True),
    Operator(aten.bmm.default, torch.bmm, lies_as_told=True),
    Operator(aten.addmm.default, torch.addmm, lies_as_told=True),
    Operator(aten.baddbmm.default, torch.baddbmm, lies_as_told=True),
    Operator(aten.mv.default, torch.mv, lies_as_told=True),
    Operator(aten.convolution.default, torch.convolution, lies_as_told=True),
    Operator(aten.index_select.default, torch.index_select, lies_as_told=True),
    Operator(aten.gather.default, torch.gather, lies_as_told=True),
    Operator(aten.scatter_add.default, torch.scatter_add, lies_as_told=True),
    Operator(aten.index_add.default, torch.index_add, lies_as_told=True),
    Operator(aten.index_put.default, lies_as_told=True),
    Operator(aten.cumsum.default, torch.cumsum, lies_as_told=True),
    Operator(aten.native_batch_norm.default, torch.native_batch_norm, lies_as_told=True),
    Operator(aten.native_layer_norm.default, torch.native_layer_norm, lies_as_told=True),
)


def rows() -> Iterable[Operator]:
    """A row for each operator of which something is known."""
    return CALLED_OFTEN
