"""Functions of `math` given int tensors with one element, as in `math.sqrt(step + 1)` for a step that is a tensor.

Python asks such a tensor for its number. If the frame receives the tensor on a CPU, or computes it from such a one and
ints, the compiled code computes the number before the graph (`number_tensors.py`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import attrs
import torch
from torch import fx

from armature.plugin_api import Call, TracedTensor, Tracing, Value, handles
from armature_torch_handlers.known_numbers import number_of as number_of_known
from armature_torch_handlers.known_numbers import was_written
from armature_torch_handlers.number_tensors import WHOLE, read_by

OF_ITEMS = {"prod", "fsum", "dist", "sumprod"}  # their arguments are iterated
FUNCTIONS = [fn for name, fn in vars(math).items() if callable(fn) and name not in OF_ITEMS and name[:2] != "__"]
OPERATORS: dict[Callable[[int, int], int], str] = {operator.add: "+", operator.sub: "-", operator.mul: "*"}


Step = tuple[Callable[[int, int], int], tuple[int | None, int | None]]


@attrs.frozen
class Computed:
    """The number in an int tensor after operators with ints. steps: operators, first to last, with their operands; None
    stands for the tensor. bits: of the tensor's dtype, in which results wrap around."""

    steps: tuple[Step, ...]
    bits: int

    def __call__(self, tensor: torch.Tensor) -> int:
        number = int(tensor)
        for function, (left, right) in self.steps:
            number = function(number if left is None else left, number if right is None else right)
        most = 1 << self.bits - 1
        return (number + most) % (2 * most) - most

    @property
    def words(self) -> str:
        made = "{}"
        for function, (left, right) in self.steps:
            parts = (made if left is None else f"{left}", made if right is None else f"{right}")
            made = f"({parts[0]} {OPERATORS[function]} {parts[1]})"
        return f"{made}.item()"


@handles(*FUNCTIONS, priority=3)
def of_given_numbers(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """Call the function with the numbers; None if there is no tensor, or the number in one is not known."""
    if kwargs or not any(isinstance(arg, TracedTensor) for arg in args):
        return None
    relied_on = dict(call.tracing.guards.records)
    numbers = [number_in(call.tracing, arg) if isinstance(arg, TracedTensor) else arg for arg in args]
    known = [number for number in numbers if number is not None]
    if len(known) < len(args):
        call.tracing.guards.records = relied_on
        return None
    return call.inline(call.fn, *known)


def number_in(tracing: Tracing, value: TracedTensor) -> Value | None:
    """The number in a tensor with one element; None if it is not known before the graph."""
    if (known := number_of_known(tracing, value)) is not None:
        return known
    steps: list[Step] = []
    dtype = value.dtype
    while value.source is None and value.node is not None and not was_written(tracing, value):
        tensor, step = step_of(value.node) or (value.node, None)
        operand = tracing.objects.by_fake.get(id(tensor.meta.get("example_value")))
        if step is None or not isinstance(operand, TracedTensor):
            return None
        steps.insert(0, step)
        value = operand
    if value.real is None or value.real.numel() != 1 or value.dtype is not dtype or dtype not in WHOLE:
        return None
    computed = Computed(tuple(steps), torch.iinfo(dtype).bits)
    return read_by(tracing, value, computed, computed.words)


def step_of(node: fx.Node) -> tuple[fx.Node, Step] | None:
    """The tensor and the step, where the node applies an operator to a tensor and an int; otherwise None."""
    function = next((fn for fn in OPERATORS if fn is node.target), None)
    if function is None or len(node.args) != 2 or node.kwargs:
        return None
    left, right = node.args
    if isinstance(left, fx.Node) and type(right) is int:
        return left, (function, (None, right))
    return (right, (function, (left, None))) if isinstance(right, fx.Node) and type(left) is int else None
