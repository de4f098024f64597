"""`interpolate`, whose operators take floats as scale factors and refuse ints that are symbols."""

from __future__ import annotations

from torch.nn import functional as F

from armature.plugin_api import Call, ListValue, TupleValue, Value, handles


@handles(F.interpolate)
def interpolate(
    call: Call, input: Value, size: Value | None = None, scale_factor: Value | None = None, *rest: Value, **named: Value
) -> Value | None:
    """Ints that vary from call to call are constants as scale factors."""
    if scale_factor is None:
        return None
    numbers = [*scale_factor.items] if isinstance(scale_factor, (ListValue, TupleValue)) else [scale_factor]
    if not any(number.is_symbolic and number.python_type() is int for number in numbers):
        return None
    fixed = [call.constant(number.as_constant()) for number in numbers]
    scale = fixed[0] if numbers[0] is scale_factor else ListValue(fixed)
    return call.graph_call(call.fn, input, call.constant(None) if size is None else size, scale, *rest, **named)
