"""Buffers of one element that decide a branch: `if self.inited:`.

Code is compiled separately for each value of the flag, which a guard reads before the graph. So a flag that is set once
costs one recompilation, not a graph break in each call. Numbers are not treated this way: counters, or layers with
different numbers, would need too many versions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from armature.plugin_api import Call, CallSource, TracedTensor, Tracing, Value, ValueGuard, handles, is_registered
from armature_torch_handlers.number_tensors import may_have_changed


def truth_of(tensor: Tensor) -> bool:
    """Read the flag: whether its element is true."""
    return bool(tensor)


@handles(Tensor.__bool__, Tensor.is_nonzero, Tensor.item)
def truth(call: Call, tensor: Value) -> Value | None:
    """`if flag:`, and `flag.item()` of a bool; None: the tensor is no flag."""
    tracing = call.tracing
    if not isinstance(tensor, TracedTensor) or not is_flag(tracing, tensor):
        return None
    if call.fn is Tensor.item and (tensor.dtype is not torch.bool or tracing.config.capture_scalar_outputs):
        return None
    return relied_on(tracing, tensor)


def is_flag(tracing: Tracing, tensor: TracedTensor) -> bool:
    """Whether it is a buffer of one element on the CPU, as the caller left it."""
    held = tensor.real
    if type(held) is not Tensor or tensor.source is None or not is_registered(tensor.source) or held.numel() != 1:
        return False
    if held.device.type != "cpu" or held.layout is not torch.strided or tracing.overrides.present:
        return False
    return not may_have_changed(tracing, tensor)


def relied_on(tracing: Tracing, flag: TracedTensor) -> Value | None:
    """Whether the flag is set, with a guard. None if there would be too many combinations with flags read before,
    because each combination needs code of its own."""
    if flag.source is None:
        return None
    place = CallSource(flag.source, truth_of, "bool({})")
    answer = tracing.fakes.run_real(truth_of, flag.real)
    read = filter(None, map(flag_read, tracing.guards.records.values()))
    combination = int("".join("1" if guard.value else "0" for guard in read) + str(int(answer)), 2)
    if tracing.request.history.changes_often(place.expr, combination):
        return None
    tracing.guards.equal(place, answer)
    return tracing.constant(answer)


def flag_read(guard: object) -> ValueGuard | None:
    """The guard itself if it is a flag's; None for any other."""
    if not isinstance(guard, ValueGuard) or not isinstance(guard.source, CallSource):
        return None
    return guard if guard.source.fn is truth_of else None
