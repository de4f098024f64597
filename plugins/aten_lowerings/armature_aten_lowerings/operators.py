"""Facts about ATen's operators that schemas don't state: faster calls, results whose layout torch states correctly, the
rules for the others, and what kernels refuse."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence

import attrs
import torch

from armature.plugin_api import Operator
from armature_aten_lowerings.kernel_checks import CHECKS, UNDERSTOOD
from armature_aten_lowerings.kernel_facts import AXES_OF_ONE, FAKES, PROBED
from armature_aten_lowerings.kernel_layouts import LAYOUTS
from armature_aten_lowerings.libraries import LIBRARIES
from armature_aten_lowerings.workspaces import WORKSPACES

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
UNSET = (
    aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default, aten.empty_permuted.default,
    aten.new_empty.default, aten.new_empty_strided.default,
)  # fmt: skip
# Their results may be views, though their schemas don't say so.
VIEWS_UNTOLD = (
    aten._unsafe_view.default, aten._reshape_alias.default, aten.lift_fresh.default, aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default, aten.unsafe_chunk.default,
)  # fmt: skip
COMMUTING = (
    aten.add.Tensor, aten.mul.Tensor, aten.maximum.default, aten.minimum.default, aten.eq.Tensor, aten.ne.Tensor,
    aten.logical_and.default, aten.logical_or.default, aten.bitwise_and.Tensor, aten.bitwise_or.Tensor,
)  # fmt: skip
# These write to running statistics, of which their schemas say nothing, or, for the last one, not when.
BATCH_NORMS = (
    aten.native_batch_norm.default, aten.cudnn_batch_norm.default, aten.miopen_batch_norm.default,
    aten._native_batch_norm_legit.default,
)  # fmt: skip


def running_statistics(args: Sequence[object]) -> tuple[int, ...]:
    """A batch norm writes to its running mean and variance when `training` is true."""
    return (3, 4) if args[5] else ()


# The operators with facts besides those of CALLED_OFTEN.
OTHERS: tuple[Collection[torch._ops.OpOverload], ...] = (
    LAYOUTS, CHECKS, UNDERSTOOD, PROBED, FAKES, AXES_OF_ONE, CHANGING_PART, BATCH_NORMS, UNSET, VIEWS_UNTOLD,
    (aten.copy.default,), COMMUTING, LIBRARIES, WORKSPACES,
)  # fmt: skip


def rows() -> Iterable[Operator]:
    """A row for each operator with known facts."""
    known = {row.op: row for row in CALLED_OFTEN}
    return [with_facts(known.get(op, Operator(op))) for op in dict.fromkeys((*known, *itertools.chain(*OTHERS)))]


def with_facts(row: Operator) -> Operator:
    """The row with the facts of all tables."""
    op = row.op
    return attrs.evolve(
        row,
        relaid=LAYOUTS.get(op),
        takes=CHECKS.get(op),
        understood=UNDERSTOOD.get(op),
        probed=PROBED.get(op),
        fake=FAKES.get(op),
        axes_of_one=AXES_OF_ONE.get(op),
        changes_part=op in CHANGING_PART,
        writes=running_statistics if op in BATCH_NORMS else None,
        unset=op in UNSET,
        may_return_view=op in VIEWS_UNTOLD,
        layout_only=op is aten.copy.default,
        commutes=op in COMMUTING,
        library=LIBRARIES.get(op, ""),
        workspace=WORKSPACES.get(op),
    )
