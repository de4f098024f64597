"""The effects to undo when a graph raises, so that its frame can rerun in eager mode (`frame/rerun.py`)."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING

import torch
from torch import fx

from armature.frame.rerun import Rerun, Undo
from armature.torch_abi.altering import has_history
from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.fake import version_of
from armature.torch_abi.grad_modes import CHANGED_BY
from armature.torch_abi.raising import may_raise, tensors_of
from armature.torch_abi.wrappers import is_wrapper
from armature.trace.data import LEAVE
from armature.trace.recording import graph_nodes
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace


def plan(tracer: Trace) -> Undo:
    """Compute what has to be undone if the graph of a frame raises."""
    called = list(tracer.recorder.calls())
    changed = [CHANGED_BY[node.target] for node in called if "changes_state" in node.meta and node.target in CHANGED_BY]
    values = tracer.recorder.inputs
    tensors = [(n, value) for n, value in enumerate(values) if isinstance(value, TensorValue)]
    effects = tracer.effects
    written = tuple(
        n
        for n, value in tensors
        if version_of(value.fake) or effects.writes_to(value) or effects.writes_uncounted(value)
    )
    altered = tuple(n for n, value in enumerate(values) if value in effects.altered)
    undo = Undo(
        tuple(dict.fromkeys(changed)),
        tuple((node.name, node.meta[LEAVE]) for node in called if LEAVE in node.meta),
        written,
        frozenset(position for position in written if has_history(values[position].fake)),
        altered,
        tracer.fakes.random,
    )
    undo.saves = undo.happens and all(map(_is_plain, tracer.recorder.graph.nodes))
    undo.always = any(map(may_raise, called))
    return undo


def _is_plain(node: fx.Node) -> bool:
    """Whether the result of a node is a plain strided tensor in this process's memory."""
    return all(
        tensor.device.type == "cpu" and tensor.layout is torch.strided and not is_wrapper(type(tensor))
        for tensor in tensors_of(node)
    )


def can_rerun(tracer: Trace, undo: Undo) -> bool:
    """Whether a frame may rerun when its graph raises: nothing visible may have happened by then."""
    return (undo.saves or not undo.happens) and graph_nodes.only_computes(tracer.recorder)


def rerun_of(tracer: Trace, code: CodeType, undo: Undo) -> Rerun:
    """Build the object that reruns a frame."""
    copy = code.replace()  # a copy has no compiled code attached
    skip_code(copy)
    certain = not tracer.stack.has_handlers and not tracer.precalls.calls
    strict = tracer.config.strict or tracer.users_backend
    return Rerun(copy, torch.is_grad_enabled(), certain, strict, undo)
