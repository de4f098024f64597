"""Attributes of tensors: those that a fake knows, views, autograd's tracking and version counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import GetSetDescriptorType, MethodWrapperType
from typing import cast

import torch

from armature.plugin_api import AttrSource, Call, TracedTensor, Tracing, Value, class_member, handles, version_of

OF_TENSORS = vars(torch._C.TensorBase)
# Attributes that a fake tensor has like the real one, because none depends on the elements.
OF_FAKES = (
    "shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_cuda", "is_cpu", "is_xpu", "is_mps", "is_meta",
    "is_sparse", "is_sparse_csr", "is_quantized", "is_nested", "is_mkldnn", "itemsize", "nbytes", "names", "is_vulkan",
    "is_ipu", "is_xla", "is_mtia", "is_maia",
)  # fmt: skip
VIEWS = ("T", "mT", "H", "mH", "real", "imag", "data")


def getters(*names: str) -> Iterator[Callable[..., object]]:
    """The functions that read these attributes, as far as this torch has them."""
    for name in names:
        held = class_member(torch.Tensor, name)
        if isinstance(held, GetSetDescriptorType | property):
            yield held.__get__


def attribute_read(call: Call) -> str:
    """The name of the attribute that a call of a descriptor's `__get__` reads."""
    descriptor = cast(MethodWrapperType, call.fn).__self__
    return str(getattr(descriptor.fget if isinstance(descriptor, property) else descriptor, "__name__", ""))


@handles(*getters(*OF_FAKES))
def of_fake(call: Call, self: Value, /) -> Value | None:
    """The attribute's value on the fake tensor, on which torch has no `nbytes` where sizes or strides are symbols."""
    if not isinstance(self, TracedTensor):
        return None
    name, fake = attribute_read(call), self.fake
    if name == "nbytes" and self.is_plain:
        return call.new_value(fake.numel() * fake.itemsize)
    return call.new_value(getattr(fake, name))


@handles(*getters("is_leaf", "retains_grad"))
def of_autograd(call: Call, self: Value, /) -> Value | None:
    """A tensor's place in autograd's graph, guarded. A fake does not retain gradients."""
    if not isinstance(self, TracedTensor):
        return None
    self.guard_autograd(call.tracing)
    name = attribute_read(call)
    real = self.real if name == "retains_grad" else None
    return call.new_value(getattr(self.fake if real is None else real, name))


@handles(*getters(*VIEWS))
def view(call: Call, self: Value, /) -> Value:
    """A call of `getattr` in the graph."""
    return call.graph_call(getattr, self, call.constant(attribute_read(call)))


@handles(OF_TENSORS["grad"].__get__)
def gradient(call: Call, self: Value, /) -> Value | None:
    """`tensor.grad`: for a leaf of the program its value; None for a tensor of the frame that can have none."""
    if not isinstance(self, TracedTensor):
        return None
    tracer = call.tracing
    if not tracer.overrides.present:  # guards and the compiled code would trigger overrides
        if self.real is not None and self.source is not None and self.real.is_leaf:
            self.guard_autograd(tracer)
            return tracer.objects.wrap(self.real.grad, AttrSource(self.source, "grad"))
        if self.real is None and (self.fake.is_leaf or not self.fake.requires_grad):
            return tracer.constant(None)
    tracer.graph_break("gradient-of-intermediate", name="grad")


@handles(OF_TENSORS["grad"].__set__)
def set_gradient(call: Call, self: Value, value: Value, /) -> Value | None:
    """`tensor.grad = value` on a leaf, set when the frame ends."""
    if not isinstance(self, TracedTensor) or call.tracing.overrides.present or not self.fake.is_leaf:
        return None
    self.guard_autograd(call.tracing)
    if isinstance(value, TracedTensor):
        same = value.shape == self.shape and value.dtype == self.dtype and value.device == self.device
        takes = same and value is not self
    else:
        takes = value.is_constant and value.as_constant() is None
    if not takes:
        return None
    self.written["grad"] = value
    call.tracing.mutate(self)
    return call.constant(None)


@handles(OF_TENSORS["grad_fn"].__get__)
def gradient_function(call: Call, self: Value, /) -> Value | None:
    """`tensor.grad_fn` of a tensor without history."""
    if not isinstance(self, TracedTensor):
        return None
    tracer = call.tracing
    if not tracer.overrides.present and self.fake.grad_fn is None and (self.real is None or self.real.is_leaf):
        self.guard_autograd(tracer)
        return tracer.constant(None)
    tracer.graph_break("gradient-of-intermediate", name="grad_fn")


@handles(OF_TENSORS["output_nr"].__get__)
def output_number(call: Call, self: Value, /) -> Value | None:
    """`tensor.output_nr` of a tensor without history."""
    if not isinstance(self, TracedTensor) or self.fake.grad_fn is not None:
        return None
    return None if self.real is not None and self.real.requires_grad else call.constant(0)


@handles(OF_TENSORS["_version"].__get__)
def writes_counted(call: Call, self: Value, /) -> Value | None:
    """`_version` of a tensor of the program before anything is written to, and of one that shares no memory."""
    if not isinstance(self, TracedTensor):
        return None
    tracer = call.tracing
    inside = tracer.overrides.present or tracer.overrides.wrappers or tracer.stack.atomic_depth
    if self.is_plain and not inside and not self.fake.is_inference():
        if self.real is not None and self.source is not None and not tracer.recorder.mutates:
            return tracer.objects.wrap(self.real._version, AttrSource(self.source, "_version"))
        if self.real is None and is_alone(tracer, self):
            return tracer.constant(version_of(self.fake))
    tracer.graph_break("version-of-tensor")


def is_alone(tracer: Tracing, tensor: TracedTensor) -> bool:
    """Whether no other known tensor shares its memory; with `x.data` or numpy, version counters are separate."""
    own = tensor.fake.untyped_storage()._cdata
    known = (value for value in tracer.objects.by_fake.values() if isinstance(value, TracedTensor))
    return not any(value.fake.untyped_storage()._cdata == own for value in known if value is not tensor)
