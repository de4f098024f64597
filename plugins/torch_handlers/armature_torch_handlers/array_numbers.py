"""Numbers that numpy computes in the graph (`x.numpy().mean()`), as operands of torch's operators: 0-d tensors."""

from __future__ import annotations

import attrs
import torch

from armature.plugin_api import Args, ConstantValue, Kwargs, TracedTensor, Tracing, Value
from armature.plugin_api import numpy_layer as layer

OPERATORS = ("add", "sub", "mul", "truediv")
COMPUTES = frozenset({*OPERATORS, *(f"i{name}" for name in OPERATORS), "eq", "ne", "lt", "le", "gt", "ge"})
FLOATS = (torch.float32, torch.float64)  # of which operators take a number as precisely from a tensor


@attrs.frozen
class NumbersAsTensors:
    """Changes the arguments of a call that enters the graph. kind: the class of the values of arrays."""

    tracer: Tracing
    kind: type[Value]

    def __call__(self, name: str, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """The arguments, with a tensor in place of a number of numpy beside a tensor of floats, or of int64."""
        if name.strip("_") not in COMPUTES or len(args) != 2 or kwargs:
            return args, kwargs
        place = next((place for place, value in enumerate(args) if isinstance(value, self.kind)), None)
        other = None if place is None else args[1 - place]
        if place is None or not isinstance(other, TracedTensor) or other.device.type != "cpu":
            return args, kwargs
        dtype = dtype_beside(args[place].python_type(), other.dtype)
        held = getattr(args[place], "tensor", None)
        if dtype is None or held is None:
            return args, kwargs
        number = self.tracer.graph.call("to", (held, ConstantValue(dtype)), {})
        return ((number, other) if place == 0 else (other, number)), kwargs


def dtype_beside(kind: type, dtype: torch.dtype) -> torch.dtype | None:
    """The dtype in which an operator takes a number of numpy beside a tensor; None if it is not known here."""
    if kind not in layer.NUMBERS:
        return None
    if dtype in FLOATS:
        return dtype
    if dtype is not torch.int64:
        return None
    whole = issubclass(kind, layer.numpy.integer)
    return dtype if whole else (default if (default := torch.get_default_dtype()) in FLOATS else None)
