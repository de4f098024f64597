"""Fake tensors: tensors without numbers, on which torch functions are run to learn shapes, strides and dtypes."""

from __future__ import annotations

from typing import Any

import attrs
import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

# What a run on fake tensors raises where only the numbers would tell.
DATA_DEPENDENT: tuple[type[BaseException], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
)
UNSUPPORTED_OPERATOR: tuple[type[BaseException], ...] = (UnsupportedOperatorException,)
PLAIN_TENSORS: frozenset[type] = frozenset({torch.Tensor, nn.Parameter})

__all__ = [
    "DATA_DEPENDENT",
    "PLAIN_TENSORS",
    "UNSUPPORTED_OPERATOR",
    "FakeTensor",
    "FakeWorld",
    "is_wrapped",
    "version_of",
]


@attrs.define(eq=False)
class FakeWorld:
    """Makes the fakes of one trace. Tensors that share memory get fakes that share memory.

    Enter `mode` while torch functions run on fakes.
    """

    mode: FakeTensorMode = attrs.field(
        factory=lambda: FakeTensorMode(shape_env=new_shape_env(), allow_non_fake_inputs=False, static_shapes=True)
    )
    _storages: dict[int, torch.Tensor | None] = attrs.field(factory=dict)

    def of(self, tensor: torch.Tensor) -> FakeTensor:
        """The fake of a tensor of the program, with static sizes."""
        storage = tensor.untyped_storage() if tensor.layout is torch.strided else None
        if storage is None:
            return self._convert(tensor)
        # A parameter is nearly always alone in its memory, and its fake then is built ten times quicker than by torch.
        key = storage._cdata
        fresh = key not in self._storages
        if fresh and is_simple(tensor) and tensor.storage_offset() == 0 and storage.nbytes() == dense_bytes(tensor):
            meta = self._bare(tensor)
            self._storages[key] = meta
            return self._wrap(tensor, meta)
        held = self._storages.setdefault(key, None)
        if held is None:
            return self._convert(tensor)
        return self._sharing(tensor, held)

    def _convert(self, tensor: torch.Tensor) -> FakeTensor:
        return self.mode.from_tensor(tensor, static_shapes=True)

    def _bare(self, tensor: torch.Tensor) -> torch.Tensor:
        with torch._C._DisableTorchDispatch():
            return torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta", requires_grad=tensor.requires_grad
            )

    def _sharing(self, tensor: torch.Tensor, held: torch.Tensor) -> FakeTensor:
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            meta = torch.empty(0, dtype=tensor.dtype, device="meta")
            meta.set_(held.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
            meta.requires_grad_(tensor.requires_grad)
        return self._wrap(tensor, meta)

    def _wrap(self, tensor: torch.Tensor, meta: torch.Tensor) -> FakeTensor:
        with torch._C._DisableTorchDispatch():
            fake = FakeTensor(self.mode, meta, tensor.device)
        if isinstance(tensor, nn.Parameter):
            fake._is_param = True
        self.mode.fake_tensor_converter.set_tensor_memo(tensor, fake)
        return fake


def new_shape_env() -> ShapeEnv:
    """A shape environment in which sizes and numbers that only a run would tell are errors."""
    return ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)


def is_simple(tensor: torch.Tensor) -> bool:
    """Whether nothing but sizes, strides, dtype, device and requires_grad needs to be copied to the fake."""
    return (
        type(tensor) in PLAIN_TENSORS
        and tensor.is_leaf
        and not tensor._is_view()
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.is_inference()
        and tensor.device.type != "meta"
    )


def dense_bytes(tensor: torch.Tensor) -> int:
    """Bytes from the first to the last element, all included."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether torch.func wraps it, or it is fake already: tracing then happens inside another transform."""
    return isinstance(tensor, FakeTensor) or bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def version_of(tensor: Any) -> int:
    """How often the tensor was changed in place; 0 for inference tensors, which do not count."""
    return 0 if tensor.is_inference() else int(tensor._version)
