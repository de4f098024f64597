"""The effects to undo when a graph raises, so that its frame can rerun in eager mode (`frame/rerun.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import fx

from armature.frame.rerun import Undo, is_small
from armature.torch_abi.altering import can_restore_histories, has_history
from armature.torch_abi.fake import FakeWorld
from armature.torch_abi.functions import Functions, tensors_of
from armature.torch_abi.grad_modes import CHANGED_BY
from armature.torch_abi.memory import on_host
from armature.torch_abi.wrappers import is_wrapper
from armature.trace.base import Effects
from armature.trace.data import HANDLED, LEAVE, REPEATS
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.trace.frame_state import Recorder


def plan(recorder: Recorder, effects: Effects, fakes: FakeWorld, functions: Functions) -> Undo:
    """Compute what has to be undone if the graph of a frame raises."""
    called = list(recorder.calls())
    changed = [CHANGED_BY[node.target] for node in called if "changes_state" in node.meta and node.target in CHANGED_BY]
    values = recorder.inputs
    tensors = [(n, value) for n, value in enumerate(values) if isinstance(value, TensorValue)]
    written = tuple(n for n, v in tensors if v.is_written or effects.writes_to(v) or effects.writes_uncounted(v))
    altered = tuple(n for n, value in enumerate(values) if value in effects.altered)
    recorded = tuple(position for position in written if has_history(values[position].fake))
    undo = Undo(
        tuple(dict.fromkeys(changed)),
        tuple((node.name, node.meta[LEAVE]) for node in called if LEAVE in node.meta),
        written,
        recorded,
        bool(recorded),
        altered,
        fakes.random,
    )
    undo.saves = undo.has_effects and all(map(_is_plain, recorder.graph.nodes))
    raising = [node for node in called if functions.may_raise(node)]
    undo.repeats = len(written) == 1 and any(REPEATS in node.meta for node in raising)
    undo.always, undo.handled = bool(raising), any(HANDLED in node.meta for node in raising)
    if raising and recorded and is_small(values[position].fake for position in written):
        undo.lasting = not can_restore_histories([getattr(value, "real", None) for value in values], recorded)
    return undo


def _is_plain(node: fx.Node) -> bool:
    """Whether the result of a node is a plain strided tensor in this process's memory."""
    return all(
        on_host(tensor) and tensor.layout is torch.strided and not is_wrapper(type(tensor))
        for tensor in tensors_of(node)
    )
