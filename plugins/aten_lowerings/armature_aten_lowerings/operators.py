"""Facts about ATen's operators that schemas don't state: faster calls, and results whose layout torch states
correctly."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from armature.plugin_api import Operator

aten = torch.ops.aten

# Equivalents with the same arguments: `torch` parses them in C, an OpOverload takes about 1 us longer. Operators with
# lists that contain None (`Tensor?[]`) are missing, because these functions refuse such lists. The layout of these
# operators' results is reliable.
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
    """A row for each operator with known facts."""
    return CALLED_OFTEN
