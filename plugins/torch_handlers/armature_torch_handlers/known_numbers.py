"""Numbers of tensors that depend on constants only, as in `float(torch.tensor(8 / 3).log2())`: they are constants."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

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

MOST_ELEMENTS = 1024  # of a list that takes the place of a tensor
METHODS = (Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__, Tensor.item, Tensor.tolist)
CONVERSIONS = (int, float, operator.index, *(fn for fn in vars(math).values() if callable(fn)))


@handles(*METHODS, *CONVERSIONS, priority=1)
def conversion_of_known(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """What such a tensor's number or numbers are converted to; None: that of anything else."""
    if len(args) != 1 or kwargs or not isinstance(args[0], TracedTensor):
        return None
    return converted(call.tracing, args[0], call.fn)


def number_of(tracing: Tracing, tensor: TracedTensor) -> Value | None:
    """The number of such a tensor; None: it is not known."""
    return converted(tracing, tensor, Tensor.item)


def converted(tracing: Tracing, tensor: TracedTensor, convert: Callable[..., Any]) -> Value | None:
    """What `convert` makes of the tensor; None: its elements are not known, or it raises an error."""
    # A `__torch_function__` of the program may answer with another number.
    if tensor.node is None or tensor.python_type() is not Tensor or tracing.overrides.present:
        return None
    if tracing.sizes.floats or tracing.fakes.symbols.specialized:
        # The number may be made from one that changes. A break leaves what follows it to all such numbers.
        return None
    if not isinstance(tensor.fake.numel(), int) or tensor.fake.numel() > MOST_ELEMENTS:
        return None
    known = KnownValues()
    try:
        made = known.converted(tensor.node, convert)
    except (NotKnown, ArithmeticError, RuntimeError, TypeError, ValueError):  # there is no int of an infinity or NaN
        return None
    as_eager = all(is_as_eager(tracing, node, value) for node, value in known.values.items())
    return tracing.as_value(made) if as_eager and isinstance(made, (bool, int, float, list)) else None


def is_as_eager(tracing: Tracing, node: fx.Node, value: object) -> bool:
    """Whether the node's value at this point of the program is the one that was computed on the CPU."""
    fake = node.meta.get("example_value")
    if not isinstance(value, Tensor) or not isinstance(fake, Tensor):
        return True
    traced = tracing.objects.by_fake.get(id(fake))
    if traced is None or fake.device.type != "cpu":  # kernels of other devices round otherwise
        return False
    # Another dtype: it was computed under autocast, which is off now, or the reverse.
    return (value.dtype, value.shape) == (fake.dtype, fake.shape) and not was_written(tracing, traced)


def was_written(tracing: Tracing, value: TracedTensor) -> bool:
    """Whether the graph writes to the tensor, or has made it another one."""
    effects = tracing.effects
    known = value in effects.altered or effects.writes_to(value) or effects.writes_uncounted(value)
    return known or version_of(value.fake) > 0
