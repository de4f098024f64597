"""Collectives: until a collective is waited for, other processes read and write its buffers.

Buffers are reused after their last reader, and kernels are reordered. So the call that starts a collective also waits
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from armature.backend_api import Builder, CallInstead, TensorValue
from armature.plugin_api import Lowering, functional_collectives


def lowerings() -> Iterable[Lowering]:
    """A row for each operator that starts a collective, and for the one that waits."""
    starting = [Lowering(op, started_by(op)) for op in functional_collectives.STARTING]
    return [*starting, *(Lowering(op, wait) for op in functional_collectives.WAITING)]


def started_by(op: Callable[..., Tensor | Sequence[Tensor]]) -> Callable[..., CallInstead]:
    """The lowering of an operator that starts a collective."""

    def run(*args: object) -> object:
        made = op(*args)
        for result in [made] if isinstance(made, Tensor) else made:
            waited_for(result)
        return made

    def lowering(b: Builder, *args: object) -> CallInstead:
        return CallInstead(run, "a collective is started, and waited for")

    return lowering


def waited_for(tensor: Tensor) -> Tensor:
    """The tensor, after waiting."""
    for op in functional_collectives.WAITING:
        op(tensor)
    return tensor


def wait(b: Builder, x: TensorValue) -> TensorValue | CallInstead:
    """Does nothing for collectives that this graph has started. For others, the operator returns the tensor itself."""
    starting = functional_collectives.STARTING
    started = (getattr(node, "outputs", ()) for node in b.nodes if getattr(node, "target", None) in starting)
    if any(x.buffer in outputs for outputs in started):
        return x
    return CallInstead(lambda tensor: waited_for(tensor).clone(), "waits for a collective")
