"""Numbers of tensors that depend on constants only, as in `float(torch.tensor(8 / 3).log2())`: they are constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

from torch import Tensor, fx

from armature.plugin_api import (
    Call,
    KnownValues,
    NotKnown,
    TracedTensor,
    Tracing,
    Value,
    handles,
)
from armature_torch_handlers.number_tensors import was_written

METHODS: Mapping[str, Callable[[Any], object]] = MappingProxyType({
    "item": lambda number: number,
    "__int__": int,
    "__float__": float,
})  # fmt: skip


@handles(int, float, priority=1)
def conversion_of_known(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """`int` or `float` of such a tensor; None: of anything else."""
    if len(args) != 1 or kwargs or not isinstance(args[0], TracedTensor):
        return None
    return number_of(call.tracing, args[0], cast("Callable[[Any], object]", call.fn))


def method_of_known(tracing: Tracing, tensor: TracedTensor, name: str) -> Value | None:
    """`.item()` of such a tensor, by the method's name; None: another method, or a tensor with an unknown number."""
    convert = METHODS.get(name)
    return None if convert is None else number_of(tracing, tensor, convert)


def number_of(tracing: Tracing, tensor: TracedTensor, convert: Callable[[Any], object]) -> Value | None:
    """What `convert` makes of the tensor's number; None: that is not known, or it raises an error."""
    # A `__torch_function__` of the program may answer with another number.
    if tensor.node is None or tensor.python_type() is not Tensor or tracing.overrides.present:
        return None
    if tracing.sizes.floats or tracing.fakes.symbols.specialized:
        # The number may be made from one that changes. A break leaves what follows it to all such numbers.
        return None
    known = KnownValues()
    try:
        made = convert(known.number(tensor.node))
    except (NotKnown, ValueError, OverflowError):  # there is no int of an infinity or NaN
        return None
    as_eager = all(is_as_eager(tracing, node, value) for node, value in known.values.items())
    return tracing.constant(made) if as_eager else None


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
