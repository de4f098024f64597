"""Calls that need real tensors and write to them: launches of the program's own kernels.

Such a call is a node of the graph, but it is not passed to a back end: the graph before and after it is compiled, and
the call runs in between as the program makes it (`graph/pieces.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from armature.torch_abi.fake import PLAIN_TENSORS, count_write, in_transform
from armature.torch_abi.pytree import tree_leaves
from armature.trace.data import uncompiled
from armature.trace.frame_state import Trace, whole
from armature.trace.recording import graph_calls
from armature.trace.values.base import Args, Tracing, Value
from armature.trace.values.floats import FloatValue
from armature.trace.values.precomputed import PrecomputedNumber
from armature.trace.values.sequence import TupleValue
from armature.trace.values.tensor import TensorValue


def call_uncompiled(
    tracer: Tracing, function: Callable[..., None], name: str, args: Args, read_only: frozenset[int] = frozenset()
) -> Value:
    """Add a node that calls `function(*args)` when the graph runs, and returns None. The function receives the
    program's own tensors, and may write to their memory without autograd's knowledge, except to arguments at the
    positions `read_only`."""
    tracer = whole(tracer)
    given = tuple([_argument(tracer, value) for value in args])
    writes = frozenset(range(len(args))) - read_only
    fakes = [leaf for n, value in enumerate(args) if n in writes for leaf in tree_leaves(value.as_fake(tracer))]
    for fake in fakes:
        if isinstance(fake, torch.Tensor):
            count_write(fake)
            tracer.recorder.mutates = True
    node = graph_calls.record(tracer, "call_function", uncompiled(function, name, writes), given, {})
    node.meta["example_value"] = None
    return tracer.constant(None)


def _argument(tracer: Trace, value: Value) -> object:
    if isinstance(value, TupleValue):
        return tuple([_argument(tracer, item) for item in value.items])
    if isinstance(value, FloatValue):
        return value.as_constant()  # guarded
    foreign = isinstance(value, TensorValue) and value.python_type() not in PLAIN_TENSORS
    if foreign or isinstance(value, PrecomputedNumber) or in_transform():
        tracer.graph_break("argument-of-outside-call", type=value.describe())
    return value.as_argument(tracer)
