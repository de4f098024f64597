"""Immutable objects of the program that stay the same in each call, so functions of them may be evaluated while
tracing."""

from __future__ import annotations

from typing import ClassVar

import attrs

from armature.plugin_api import ObjectValue, Tracing


@attrs.define(eq=False)
class KnownValue(ObjectValue):
    """An immutable object."""

    is_constant: ClassVar[bool] = True

    def as_constant(self) -> object:
        held: object = self.obj
        return held

    def as_argument(self, tracer: Tracing) -> object:
        return self.obj

    def as_fake(self, tracer: Tracing) -> object:
        return self.obj
