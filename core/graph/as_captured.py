"""Which captured graphs run operator by operator, since no functional graph can stand for them."""

from __future__ import annotations

import torch
from torch import fx

from armature.frame.guards.kinds import StorageGuard
from armature.graph import inference
from armature.graph.functional import gives_other_forms
from armature.graph.in_place import loses_layout
from armature.torch_abi import altering, symbols
from armature.torch_abi.jagged import meets_jagged
from armature.trace.data import GraphInput, TracedFrame
from armature.trace.recording import graph_calls


def runs_as_captured(traced: TracedFrame, module: fx.GraphModule) -> bool:
    """Whether a graph runs operator by operator."""
    return (
        traced.as_it_is
        or any(map(_is_zero_tensor, traced.inputs))  # a kernel reads memory
        # Inputs that overlap, one written to: eager refuses some such calls, which a functional graph can't see.
        or any(isinstance(guard, StorageGuard) and guard.together for guard in traced.guards)
        or meets_jagged(module.graph)
        or symbols.depends_on_numbers(module.graph)  # lowering has no sizes that are known only half-way
        or inference.gives_others(module)
        or gives_other_forms(module)
        or loses_layout(module.graph)
        or graph_calls.only_as_captured(module.graph)
    )


def _is_zero_tensor(given: GraphInput) -> bool:
    real = given.real() if given.real is not None else None
    return isinstance(real, torch.Tensor) and altering.is_zero_tensor(real)
