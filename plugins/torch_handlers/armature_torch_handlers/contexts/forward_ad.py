"""`torch.autograd.forward_ad.dual_level`: a level of forward mode that the program enters itself."""

from __future__ import annotations

from typing import ClassVar

import attrs
from torch.autograd import forward_ad

from armature.plugin_api import (
    Call,
    ContextValue,
    Rebuilding,
    Tracing,
    Value,
    handles,
    locations_of,
)


@attrs.define(eq=False)
class DualLevelValue(ContextValue):
    """A level that is entered and left in one graph: a break inside is moved to where the context is made, because a
    level entered again would have lost the tangents."""

    made_at: tuple[object, ...] = ()

    reenters: ClassVar[bool] = False

    def enter(self, tracer: Tracing) -> Value:
        tracer.stack.atomic_depth += 1
        level: Value = tracer.calls.inline_python(forward_ad.enter_dual_level, (), {})
        return level

    def leave(self, tracer: Tracing) -> None:
        tracer.calls.inline_python(forward_ad.exit_dual_level, (), {})
        tracer.stack.atomic_depth -= 1

    def clone(self) -> Value:
        return DualLevelValue(self.kind, made_at=self.made_at)

    def rebuild(self, out: Rebuilding) -> None:
        out.cannot(self)


@handles(forward_ad.dual_level)
def dual_level(call: Call) -> Value:
    """The context manager."""
    return DualLevelValue(forward_ad.dual_level, made_at=locations_of(call.tracing.stack.frames))
