"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from armature.backend_api import collect_lowerings
from armature.plugin_api import Decomposition, Lowering, Operator, Pass, hookimpl
from armature_aten_lowerings import (
    activations,
    collectives,
    creation,
    decompositions,
    foreach,
    indexing,
    losses,
    norms,
    operators,
    passes,
    pointwise,
    pooling,
    randomness,
    reductions,
    rnn,
    rnn_cudnn,
    softmax,
    views,
)


@hookimpl
def armature_lowerings() -> Iterable[Lowering]:
    """Every operator that becomes loops, and those that have a shorter way than the dispatcher."""
    loops = collect_lowerings(
        pointwise, activations, creation, views, reductions, softmax, norms, losses, indexing, pooling
    )
    return (*loops, *randomness.lowerings(), *collectives.lowerings(), *rnn.lowerings(), *rnn_cudnn.lowerings())


@hookimpl
def armature_decompositions() -> Iterable[Decomposition]:
    """Every operator that others replace."""
    return (*decompositions.rows(), *foreach.rows())


@hookimpl
def armature_operators() -> Iterable[Operator]:
    """How ATen's operators are called."""
    return operators.rows()


@hookimpl
def armature_passes() -> Iterable[Pass]:
    """Clean-up of the ATen graph."""
    return passes.PASSES
