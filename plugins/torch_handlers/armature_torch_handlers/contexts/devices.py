"""`torch.cuda.device` of no device, which changes nothing: what code written for GPUs enters on a CPU."""

from __future__ import annotations

from typing import cast

import attrs
import torch

from armature.plugin_api import Call, TracedTensor, Tracing, Value, existing, handles
from armature_torch_handlers.contexts.nothing import NullContextValue


@attrs.define(eq=False)
class NoDeviceValue(NullContextValue):
    """A context that chooses no device."""

    def enter(self, tracer: Tracing) -> Value:
        return tracer.constant(None)

    def clone(self) -> Value:
        return NoDeviceValue(self.kind, args=self.args)


@handles(*existing("torch.cuda.device"))
def no_device(call: Call, device: Value) -> Value | None:
    """The context manager of a negative index."""
    if device.python_type() is not int or not device.is_constant or cast(int, device.as_constant()) >= 0:
        return None
    return NoDeviceValue(cast(type, call.fn), args=(device,))


@handles(*existing("torch.cuda.device_of"))
def device_of(call: Call, obj: Value) -> Value | None:
    """The context manager for a tensor that is not on such a device."""
    if not isinstance(obj, TracedTensor) or obj.fake.is_cuda:
        return None
    return NoDeviceValue(cast(type, torch.cuda.device), args=(call.constant(-1),))
