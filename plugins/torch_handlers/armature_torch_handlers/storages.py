"""`x.untyped_storage()`: the number of bytes, for a tensor of the program."""

from __future__ import annotations

import attrs
import torch

from armature.plugin_api import (
    Args,
    BoundMethod,
    Call,
    CallSource,
    Kwargs,
    TracedTensor,
    Tracing,
    Value,
    handles,
)

COUNTS = frozenset({"size", "nbytes", "__len__"})


def bytes_in_storage(tensor: torch.Tensor) -> int:
    """The size of the memory behind a tensor."""
    return tensor.untyped_storage().nbytes()


@attrs.define(eq=False)
class StorageValue(Value):
    """The storage of a tensor, read only."""

    tensor: TracedTensor

    slots = frozenset({"__len__"})

    def python_type(self) -> type:
        return torch.UntypedStorage

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        return BoundMethod(self, name) if name in COUNTS else super().get_attribute(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in COUNTS or args or kwargs:
            return super().call_method(tracer, name, args, kwargs)
        return self._bytes(tracer)

    def length(self, tracer: Tracing) -> int:
        found = self._bytes(tracer).as_constant()
        return int(found)

    def _bytes(self, tracer: Tracing) -> Value:
        source, real = self.tensor.source, self.tensor.real
        if source is not None and real is not None and not tracer.recorder.mutates:
            counted = CallSource(source, bytes_in_storage, "{}.nbytes()")
            found: Value = tracer.objects.wrap(bytes_in_storage(real), counted)
            return found
        # If it was written to, it may have other memory now.
        raise tracer.graph_break("storage-size")


@handles(torch.Tensor.untyped_storage)
def untyped_storage(call: Call, self: Value) -> Value | None:
    """The storage of a plain tensor of the program."""
    if not isinstance(self, TracedTensor) or self.source is None or self.python_type() not in PLAIN:
        return None
    return StorageValue(self)


PLAIN = (torch.Tensor, torch.nn.Parameter)
