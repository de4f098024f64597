"""Numbers read from tensors that depend only on constants, as in `float(torch.tensor(8 / 3).log2())`: they are
constants too."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from torch import Tensor, fx

from armature.plugin_api import (
    Call,
    KnownValues,
    NotKnown,
    TracedTensor,
    Tracing,
    Value,
    handles,
    version_of,
)

MOST_ELEMENTS = 1024  # longest list that `tolist` of such a tensor may return
METHODS = (Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__, Tensor.item, Tensor.tolist)
CONVERSIONS = (int, float, operator.index, *(fn for fn in vars(math).values() if callable(fn)))


@handles(*METHODS, *CONVERSIONS, priority=1)
def conversion_of_known(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """Convert the number or numbers of such a tensor (`float(x)`, `x.tolist()`); None for any other tensor."""
    if len(args) != 1 or kwargs or not isinstance(args[0], TracedTensor):
        return None
    return converted(call.tracing, args[0], call.fn)


def number_of(tracing: Tracing, tensor: TracedTensor) -> Value | None:
    """The number in a tensor that depends only on constants; None if it is not known."""
    return converted(tracing, tensor, Tensor.item)


def converted(tracing: Tracing, tensor: TracedTensor, convert: Callable[..., object]) -> Value | None:
    """The result of `convert` for the tensor; None if its elements are not known, or if `convert` raises."""
    # A `__torch_function__` of the program may answer with another number.
    if tensor.node is None or tensor.python_type() is not Tensor or tracing.overrides.present:
        return None
    if tracing.sizes.floats or tracing.fakes.symbols.specialized:
        # The number may be computed from one that varies. A graph break lets the code behind it serve all such numbers.
        return None
    if not isinstance(tensor.fake.numel(), int) or tensor.fake.numel() > MOST_ELEMENTS:
        return None
    known = KnownValues()
    try:
        made = known.converted(tensor.node, convert)
    # an infinity or NaN can't be converted to int
    except (NotKnown, ArithmeticError, RuntimeError, TypeError, ValueError):
        return None
    as_eager = all(is_as_eager(tracing, node, value) for node, value in known.values.items())
    return tracing.as_value(made) if as_eager and isinstance(made, (bool, int, float, list)) else None


def is_as_eager(tracing: Tracing, node: fx.Node, value: object) -> bool:
    """Whether eager mode would have the same value at this point of the program as the one computed on the CPU."""
    fake = node.meta.get("example_value")
    if not isinstance(value, Tensor) or not isinstance(fake, Tensor):
        return True
    traced = tracing.objects.by_fake.get(id(fake))
    if traced is None or fake.device.type != "cpu":  # kernels of other devices round differently
        return False
    # Another dtype: it was computed under autocast, which is off now, or the reverse.
    return (value.dtype, value.shape) == (fake.dtype, fake.shape) and not was_written(tracing, traced)


def was_written(tracing: Tracing, value: TracedTensor) -> bool:
    """Whether the graph writes to the tensor, or has made it another one."""
    effects = tracing.effects
    known = value in effects.altered or effects.writes_to(value) or effects.writes_uncounted(value)
    return known or version_of(value.fake) > 0
