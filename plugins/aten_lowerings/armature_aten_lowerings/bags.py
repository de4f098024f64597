"""Pooled embeddings of bags of one length, as calls with positions in two dimensions have them: gather and reduce rows.

Then what reads the result fuses with it, and results of several tables are joined where they are made. The library for
CPUs fetches rows ahead: it keeps what takes longer than its call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, fx

from armature.plugin_api import fake_of
from armature_aten_lowerings.common import add_call
from armature_aten_lowerings.layouts import args_of

aten = torch.ops.aten
MOST_ON_CPU = 1 << 17
"""Numbers that loops on a CPU sum as fast as the library (81,920: 8 and 11 us; 614,400: 58 and 46; one thread)."""
POOLED = (aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
MODES: Mapping[object, torch._ops.OpOverload] = {0: aten.sum.dim_IntList, 1: aten.mean.dim}
"""How the numbers of the operator's schema reduce a bag."""


def gather_bags(module: object, ctx: object) -> object:
    """The pass: pooled embeddings whose bags all have one length become rows that are gathered and reduced."""
    if not isinstance(module, fx.GraphModule):
        return module
    for target in POOLED:
        for node in module.graph.find_nodes(op="call_function", target=target):
            length = length_of_bags(node)
            if length and may_be_gathered(node) and is_faster(*map(fake_of, args_of(node)[:2])):
                _gather(node, length)
    return module


def length_of_bags(node: fx.Node) -> int:
    """The number of positions in each bag of a pooled embedding, if it is the same in all; 0 if not, or not known."""
    positions, offsets = args_of(node)[1:3]
    while offsets.target is aten.detach.default:
        (offsets,) = args_of(offsets)
    if offsets.target is not aten.arange.start_step or fake_of(positions).dim() != 1:
        return 0
    start, _, length = (*offsets.args, 1)[:3]
    if start != 0 or type(length) is not int or length < 1:
        return 0
    bags, count = fake_of(offsets).shape[0], fake_of(positions).shape[0]
    return length if str(bags * length) == str(count) else 0  # numbers, or symbols


def is_faster(table: Tensor, positions: Tensor) -> bool:
    """Whether loops take no longer than the library for CPUs; calls on a GPU save nothing."""
    work = positions.shape[0] * table.shape[1]
    return table.device.type != "cpu" or (type(work) is int and work <= MOST_ON_CPU)


def may_be_gathered(node: fx.Node) -> bool:
    """Whether gathering and reducing rows gives the same: no positions are left out or weighted, or the largest asked
    for."""
    _, _, _, _, mode, sparse, weights, last, padding = (*args_of(node), *DEFAULTS[len(node.args) :])[:9]
    known = all(user.target is operator.getitem for user in node.users)
    return known and not node.kwargs and mode in MODES and not (sparse or last) and padding == -1 and weights is None


DEFAULTS = (None, None, None, False, 0, False, None, False, -1)
"""Of the operator's arguments."""


def _bag_of_each(node: fx.Node, offsets: fx.Node, length: int) -> fx.Node:
    """The number of the bag that a position belongs to."""
    bags = add_call(node, aten.div.Tensor_mode, offsets, length, rounding_mode="floor")
    repeated = add_call(node, aten.expand.default, add_call(node, aten.unsqueeze.default, bags, 1), [-1, length])
    apart = add_call(node, aten.clone.default, repeated, memory_format=torch.contiguous_format)
    return add_call(node, aten.view.default, apart, [-1])


def _lengths(node: fx.Node, offsets: fx.Node, length: int) -> fx.Node:
    return add_call(node, aten.full_like.default, offsets, length)


def _no_maxima(node: fx.Node, offsets: fx.Node, length: int) -> fx.Node:
    return add_call(node, aten.new_zeros.default, offsets, [0])


FOR_BACKWARD: Mapping[object, Callable[[fx.Node, fx.Node, int], fx.Node]] = {
    1: _bag_of_each, 2: _lengths, 3: _no_maxima,
}  # fmt: skip
"""The other results of the operator, by their positions."""


def _gather(node: fx.Node, length: int) -> None:
    """Replace a pooled embedding, and what its gradient reads besides."""
    table, positions, offsets = args_of(node)[:3]
    mode = (*args_of(node), *DEFAULTS[len(node.args) :])[4]
    with node.graph.inserting_before(node):
        rows = add_call(node, aten.embedding.default, table, add_call(node, aten.view.default, positions, [-1, length]))
        made: dict[object, fx.Node] = {0: add_call(node, MODES[mode], rows, [1])}
        for part in node.users:
            if part.users and part.args[1] not in made:
                made[part.args[1]] = FOR_BACKWARD[part.args[1]](node, offsets, length)
    for part in list(node.users):
        if part.users:
            part.replace_all_uses_with(made[part.args[1]])
        node.graph.erase_node(part)
    node.graph.erase_node(node)
