"""`torch.set_default_device`: a function mode below all others, which gives calls that make tensors their device.

While tracing, the mode is on the stack of the trace only. Where the graph ends it leaves that stack, and the code after
the graph calls the function, so that torch finds the stack as the frame found it.
"""

from __future__ import annotations

import attrs
import torch
from torch.utils._device import DeviceContext

from armature.plugin_api import Call, FrameView, Tracing, Value, Write, existing, handles


@attrs.define(eq=False)
class ChosenDevice:
    """The default device that the frame has chosen. mode: None where it chose none."""

    device: Value
    mode: Value | None

    def __call__(self, tracing: Tracing, frame: FrameView | None, result: Value | None) -> None:
        """Called where the graph ends."""
        if frame is not None:
            self.leave(tracing)
            tracing.effects.call(Write(torch.set_default_device, (self.device,)))

    def leave(self, tracing: Tracing) -> None:
        """Take the mode from the stack."""
        if self.mode is not None:
            tracing.overrides.modes.remove(self.mode)


@handles(*existing("torch.set_default_device"))
def set_default_device(call: Call, device: Value) -> Value:
    """The default from here on. Breaks the graph where the program has chosen one before the frame, or where a device
    is chosen by `with`, because only torch knows which mode on the stack it would take away."""
    tracing = call.tracing
    modes, held = tracing.overrides.modes, chosen_here(tracing)
    own = None if held is None else held.mode
    others = [mode for mode in modes if mode is not own and issubclass(mode.python_type(), DeviceContext)]
    if others or not device.is_constant or not is_device(device.as_constant()):
        call.graph_break("global-state", function="torch.set_default_device")
    if held is not None:
        held.leave(tracing)
        del tracing.ending.checks[held]
    mode = None
    if device.as_constant() is not None:
        mode = tracing.as_value(DeviceContext).call(tracing, (device,), {})
        tracing.overrides.push(mode)
        modes.insert(0, modes.pop())
    tracing.ending.checks[ChosenDevice(device, mode)] = None
    return call.constant(None)


def chosen_here(tracing: Tracing) -> ChosenDevice | None:
    """What the frame has chosen last."""
    return next((check for check in tracing.ending.checks if isinstance(check, ChosenDevice)), None)


def is_device(wanted: object) -> bool:
    """Whether torch takes it for a device, or for none."""
    if not isinstance(wanted, (str, int)):
        return wanted is None or isinstance(wanted, torch.device)
    try:
        torch.device(wanted)
    except RuntimeError:
        return False
    return True
