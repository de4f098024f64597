"""Teaches armature about `quantities`: how a Quantity is traced, and the effect of `with relaxed()`."""

import attrs
import quantities

from armature import plugin_api as api


@attrs.define(eq=False)
class QuantityValue(api.Value):
    """A quantity: the value of its numbers, and its unit, which is known while tracing."""

    values: api.Value
    unit: str
    slots = frozenset({"__add__", "__mul__"})

    def python_type(self) -> type:
        return quantities.Quantity

    def get_attribute(self, tracer: api.Tracing, name: str) -> api.Value:
        known = {"values": self.values, "unit": tracer.constant(self.unit)}
        return known.get(name) or super().get_attribute(tracer, name)

    def binary(self, tracer: api.Tracing, name: str, other: api.Value) -> api.Value | None:
        if name == "__mul__":
            return QuantityValue(tracer.python.operate("mul", self.values, other), self.unit)
        if name != "__add__" or not isinstance(other, QuantityValue):
            return None
        if not tracer.effects.entered:  # the caller's setting is guarded; a setting made by the frame needs no guard
            tracer.guards.answers(quantities.is_relaxed, (), {}, quantities.is_relaxed())
        if self.unit != other.unit and not quantities.is_relaxed():
            tracer.raise_error(ValueError, f"{self.unit} and {other.unit} do not add up")
        return QuantityValue(tracer.python.operate("add", self.values, other.values), self.unit)

    def rebuild(self, out: api.Rebuilding) -> None:
        out.spread(quantities.Quantity, (self.values, out.value(self.unit)), {})


def of_program(obj: quantities.Quantity, source: api.Source, tracer: api.Tracing) -> api.Value:
    tracer.guards.equal(api.AttrSource(source, "unit"), obj.unit)  # another unit compiles the frame again
    return QuantityValue(tracer.objects.wrap(obj.values, api.AttrSource(source, "values")), obj.unit, source=source)


def make(call: api.Call, values: api.Value, unit: api.Value) -> api.Value | None:
    return QuantityValue(values, unit.as_constant()) if unit.is_constant else None


def mix(call: api.Call) -> api.Value:
    return api.PairedContextValue(quantities.relaxed, quantities.enter, (), quantities.leave, quantities.relaxed)


@api.hookimpl
def armature_value_types() -> list[api.ValueType]:
    return [api.ValueType(quantities.is_whole, of_program)]


@api.hookimpl
def armature_handlers() -> list[api.Handler]:
    return [api.Handler((quantities.Quantity,), make), api.Handler((quantities.relaxed,), mix)]
