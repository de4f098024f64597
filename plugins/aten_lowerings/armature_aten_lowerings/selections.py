"""Sums over the elements selected by a condition, without making the selection, whose size is only known at run
time."""

from __future__ import annotations

import torch
from torch import fx

from armature_aten_lowerings.layouts import args_of
from armature_aten_lowerings.scalars import add_call

aten = torch.ops.aten


def sum_without_selecting(module: object, ctx: object) -> object:
    """Sum zeros for the elements left out, instead of gathering the others: for `x[mask].sum(0)`, which also computes
    the gradient of `row` in `x[mask] = row`. Kernels need sizes that are known in advance."""
    if not isinstance(module, fx.GraphModule):
        return module
    for node in list(module.graph.find_nodes(op="call_function", target=aten.index.Tensor)):
        first = _selecting(node)
        if first is not None and all(_sums(user, node, first) for user in node.users):
            for user in list(node.users):
                _replace(user, node, first)
            module.graph.erase_node(node)
    return module


def _selecting(node: fx.Node) -> int | None:
    """The axis that the node's only index, a condition, selects from; None for other indexing."""
    indices = args_of(node)[1]
    given = [k for k, index in enumerate(indices) if index is not None]
    if len(given) != 1:
        return None
    operands = (indices[given[0]], args_of(node)[0])
    condition, source = (operand.meta["val"] for operand in operands)
    plain = condition.dtype is torch.bool and condition.dim() > 0 and condition.device == source.device
    return given[0] if plain else None


def _sums(user: fx.Node, selected: fx.Node, axis: int) -> bool:
    """Whether it sums over the selected axis, and perhaps others."""
    return user.target in (aten.sum.default, aten.sum.dim_IntList) and axis in _summed(user, selected)


def _summed(user: fx.Node, selected: fx.Node) -> list[int]:
    """The summed axes of the selection: all, if none is named."""
    rank = selected.meta["val"].dim()
    named = args_of(user)[1] if len(user.args) > 1 else None
    return sorted(axis % rank for axis in named or range(rank))


def _replace(user: fx.Node, selected: fx.Node, axis: int) -> None:
    """Sum over the condition's axes instead of the one axis that selecting makes from them."""
    source = args_of(selected)[0]
    indices = args_of(selected)[1]
    left_out, wide = indices[axis], indices[axis].meta["val"].dim()
    summed = _summed(user, selected)
    axes = [k for k in summed if k < axis]
    axes += [*range(axis, axis + wide), *(k + wide - 1 for k in summed if k > axis)]
    with user.graph.inserting_before(user):
        left_out = add_call(user.graph, user, aten.logical_not.default, left_out)
        for _ in range(source.meta["val"].dim() - axis - wide):
            left_out = add_call(user.graph, user, aten.unsqueeze.default, left_out, -1)
        masked = add_call(user.graph, user, aten.masked_fill.Scalar, source, left_out, 0)
        total = add_call(user.graph, user, aten.sum.dim_IntList, masked, axes, **user.kwargs)
        for k in summed if len(user.args) > 2 and user.args[2] else ():
            total = add_call(user.graph, user, aten.unsqueeze.default, total, k)
    user.replace_all_uses_with(total)
    user.graph.erase_node(user)
