"""Numbers that depend on addresses, `id(obj)` and hashes: tracing does not know them, but they may be keys and be
compared with each other."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

import attrs

from armature.plugin_api import NUMBER_SLOTS, Address, Identity, NotConstant, Rebuilding, TracedKey, Tracing, Value


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


@attrs.define(eq=False)
class HashValue(AddressValue):
    """The hash of an object that depends on an address, such as a tuple with `id(obj)` in it."""

    slots = AddressValue.slots

    def describe(self) -> str:
        return f"the hash of {self.of.describe()}"

    def key(self, tracer: Tracing) -> Hashable:
        key = self.of.key(tracer)
        return key.hashed if isinstance(key, TracedKey) else Address((key,))

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        # hashes of different objects may be equal by chance
        if name in ("__eq__", "__ne__") and isinstance(other, AddressValue) and self.key(tracer) == other.key(tracer):
            return tracer.constant(name == "__eq__")
        tracer.graph_break("hash-by-address", type=self.of.describe())

    def truth(self, tracer: Tracing) -> bool:
        tracer.graph_break("hash-by-address", type=self.of.describe())

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(hash)
        out.load(self.of)
        out.call(1)
