"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from armature.backend_api import collect_lowerings
from armature.plugin_api import Decomposition, Function, Lowering, Operator, Pass, hookimpl
from armature_aten_lowerings import (
    activations,
    averages,
    bessel,
    borders,
    collectives,
    convolutions,
    creation,
    decompositions,
    depthwise,
    foreach,
    fractional,
    functions,
    gamma,
    indexing,
    losses,
    norms,
    operators,
    passes,
    pointwise,
    pooling,
    products,
    randomness,
    reductions,
    repeats,
    rnn,
    rnn_cudnn,
    rnn_loops,
    scans,
    searches,
    softmax,
    special,
    strided,
    views,
)


@hookimpl
def armature_lowerings() -> Iterable[Lowering]:
    """Every operator that becomes loops, and those with a faster call than the dispatcher's."""
    loops = collect_lowerings(
        pointwise,
        activations,
        creation,
        views,
        reductions,
        softmax,
        norms,
        losses,
        indexing,
        pooling,
        averages,
        scans,
        convolutions,
        depthwise,
        products,
        borders,
        repeats,
        searches,
        bessel,
        gamma,
        special,
        strided,
        fractional,
    )
    recurrent = (*rnn.lowerings(), *rnn_cudnn.lowerings(), *rnn_loops.lowerings())
    return (*loops, *randomness.lowerings(), *collectives.lowerings(), *recurrent)


@hookimpl
def armature_decompositions() -> Iterable[Decomposition]:
    """Operators that decompose into others."""
    return (*decompositions.rows(), *foreach.rows())


@hookimpl
def armature_operators() -> Iterable[Operator]:
    """Facts about ATen's operators."""
    return operators.rows()


@hookimpl
def armature_functions() -> Iterable[Function]:
    """Facts about torch's functions."""
    return functions.rows()


@hookimpl
def armature_passes() -> Iterable[Pass]:
    """Passes over graphs."""
    return passes.PASSES
