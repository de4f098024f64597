"""`id(obj)`: a number that tracing does not know. It may be a key and be compared with other addresses."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import attrs

from armature.plugin_api import NUMBER_SLOTS, Address, Identity, NotConstant, Rebuilding, Tracing, Value


@attrs.define(eq=False)
class AddressValue(Value):
    """The address of a live object, which differs from the address of every other one."""

    of: Value

    mutable: ClassVar[bool] = True
    slots = (NUMBER_SLOTS - {"__neg__", "__pos__", "__invert__"}) | {"__hash__"}

    def python_type(self) -> type:
        return int

    def describe(self) -> str:
        return f"the address of {self.of.describe()}"

    def key(self, tracer: Tracing) -> Hashable:
        try:
            held = None if self.of.mutable else self.of.as_object()
        except NotConstant:
            held = None
        if held is not None:  # a function or class, which may have several values
            self.of.rely_on(tracer)
            return Address(id(held))
        tracer.objects.keys[self.of] = None
        return Address(Identity(self.of))

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if name in ("__eq__", "__ne__") and isinstance(other, AddressValue):
            return tracer.constant(tracer.python.identical(self.of, other.of) == (name == "__eq__"))
        tracer.graph_break("address-as-number", operation=name)

    def truth(self, tracer: Tracing) -> bool:
        return True

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(id)
        out.load(self.of)
        out.call(1)
