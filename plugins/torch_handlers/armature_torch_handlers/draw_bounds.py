"""Comparisons of `torch.rand` that are the same for each number drawn, as `torch.rand([]) < self.layerdrop` with a
`layerdrop` of 0: the branch is known, the draw stays in the graph."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import Tensor, fx

from armature.plugin_api import Call, TracedTensor, Tracing, Value, function_of, handles
from armature_torch_handlers.known_numbers import was_written

# What `draw <op> number` is for every draw in [0, 1): None where it depends on the draw.
ALWAYS: dict[object, Callable[[float], bool | None]] = {
    operator.lt: lambda number: True if number >= 1 else False if number <= 0 else None,
    operator.le: lambda number: True if number >= 1 else False if number < 0 else None,
    operator.gt: lambda number: False if number >= 1 else True if number < 0 else None,
    operator.ge: lambda number: False if number >= 1 else True if number <= 0 else None,
}
NAMES: dict[object, object] = {
    torch.lt: operator.lt, torch.le: operator.le, torch.gt: operator.gt, torch.ge: operator.ge,
}  # fmt: skip
SWAPPED: dict[object, object] = {
    operator.lt: operator.gt, operator.le: operator.ge, operator.gt: operator.lt, operator.ge: operator.le,
}  # fmt: skip
DRAWS = (torch.rand, torch.rand_like)
SELECTIONS = (operator.getitem, torch.squeeze, torch.Tensor.view, torch.reshape)  # keep the numbers they select


@handles(Tensor.__bool__, Tensor.is_nonzero, priority=2)
def truth_of_draw(call: Call, tensor: Value) -> Value | None:
    """The truth of such a comparison; None for any other tensor."""
    tracing = call.tracing
    if not isinstance(tensor, TracedTensor) or tensor.node is None or tracing.overrides.present:
        return None
    if tensor.python_type() is not Tensor or is_written(tracing, tensor.node):
        return None
    function = NAMES.get(function_of(tensor.node), function_of(tensor.node))
    if function not in ALWAYS or len(tensor.node.args) != 2:
        return None
    left, right = tensor.node.args
    if not isinstance(left, fx.Node):
        function, left, right = SWAPPED[function], right, left
    if not isinstance(right, (int, float)) or not isinstance(left, fx.Node) or not is_draw(tracing, left):
        return None
    truth = ALWAYS[function](right)
    return None if truth is None or tensor.fake.numel() != 1 else tracing.constant(truth)


def is_draw(tracing: Tracing, node: fx.Node) -> bool:
    """Whether the numbers are those that `torch.rand` has drawn, in [0, 1)."""
    while function_of(node) in SELECTIONS and isinstance(node.args[0], fx.Node) and not is_written(tracing, node):
        node = node.args[0]
    return function_of(node) in DRAWS and "out" not in node.kwargs and not is_written(tracing, node)


def is_written(tracing: Tracing, node: fx.Node) -> bool:
    """Whether the graph has written to the node's tensor."""
    traced = tracing.objects.by_fake.get(id(node.meta.get("example_value")))
    return traced is None or was_written(tracing, traced)
