"""Facts about ATen's operators that schemas don't state: faster calls, results whose layout torch states correctly, the
rules for the others, and what kernels refuse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import torch

from armature.plugin_api import Operator
from armature_aten_lowerings.kernel_checks import CHECKS, UNDERSTOOD
from armature_aten_lowerings.kernel_facts import AXES_OF_ONE, FAKES, PROBED
from armature_aten_lowerings.kernel_layouts import LAYOUTS

aten = torch.ops.aten

# Equivalents with the same arguments: `torch` parses them in C, an OpOverload takes about 1 us longer. Operators with
# lists that contain None (`Tensor?[]`) are missing, because these functions refuse such lists. The layout of these
# operators' results is reliable.
CALLED_OFTEN = (
    Operator(aten.mm.default, torch.mm, reliable_strides=True),
    Operator(aten.bmm.default, torch.bmm, reliable_strides=True),
    Operator(aten.addmm.default, torch.addmm, reliable_strides=True),
    Operator(aten.baddbmm.default, torch.baddbmm, reliable_strides=True),
    Operator(aten.mv.default, torch.mv, reliable_strides=True),
    Operator(aten.convolution.default, torch.convolution, reliable_strides=True),
    Operator(aten.index_select.default, torch.index_select, reliable_strides=True),
    Operator(aten.gather.default, torch.gather, reliable_strides=True),
    Operator(aten.scatter_add.default, torch.scatter_add, reliable_strides=True),
    Operator(aten.index_add.default, torch.index_add, reliable_strides=True),
    Operator(aten.index_put.default, reliable_strides=True),
    Operator(aten.cumsum.default, torch.cumsum, reliable_strides=True),
    Operator(aten.native_batch_norm.default, torch.native_batch_norm, reliable_strides=True),
    Operator(aten.native_layer_norm.default, torch.native_layer_norm, reliable_strides=True),
)

CHANGING_PART = (
    aten.slice_scatter.default, aten.select_scatter.default, aten.index_put.default, aten._unsafe_index_put.default,
    aten.scatter.src, aten.scatter.value, aten.scatter_add.default,
)  # fmt: skip
# The other fields of rows, by operator.
BY_FIELD: Mapping[str, Mapping[torch._ops.OpOverload, Any]] = {
    "relaid": LAYOUTS, "takes": CHECKS, "understood": UNDERSTOOD, "probed": PROBED, "fake": FAKES,
    "axes_of_one": AXES_OF_ONE, "changes_part": dict.fromkeys(CHANGING_PART, True),
}  # fmt: skip


def rows() -> Iterable[Operator]:
    """A row for each operator with known facts."""
    known = {row.op: row for row in CALLED_OFTEN}
    for op in dict.fromkeys(op for table in BY_FIELD.values() for op in table):
        facts = {field: table[op] for field, table in BY_FIELD.items() if op in table}
        known[op] = attrs.evolve(known.get(op, Operator(op)), **facts)
    return known.values()
