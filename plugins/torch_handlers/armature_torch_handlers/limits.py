"""The limits of numpy's dtypes, `numpy.finfo` and `numpy.iinfo`: constants, as torch's are."""

from __future__ import annotations

from armature.plugin_api import Call, ConstantValue, NotConstant, Source, Tracing, Value, ValueType, handles
from armature.plugin_api import numpy_layer as layer

RANGES: tuple[type, ...] = () if layer.numpy is None else (layer.numpy.finfo, layer.numpy.iinfo)


@handles(*RANGES)
def limits(call: Call, kind: Value) -> Value | None:
    """The limits of a dtype, given by name or by a number of it."""
    try:
        made = call.fn(kind.as_object())
    except NotConstant:
        return None
    except (TypeError, ValueError) as error:
        call.tracing.raise_real(error)
    return ConstantValue(made)


def of_program(obj: object, source: Source, tracer: Tracing) -> Value:
    """A limits object of the program."""
    tracer.guards.same(source, obj)
    return ConstantValue(obj, source=source)


VALUE_TYPES = tuple(ValueType(kind, of_program) for kind in RANGES)
