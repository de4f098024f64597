"""Arguments that kernels of libraries would copy, computed where the copy would be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import fx

from armature_aten_lowerings.layouts import args_of
from armature_aten_lowerings.saving import has_numbers
from armature_aten_lowerings.scalars import add_call

aten = torch.ops.aten
COPIED: Mapping[torch._ops.OpOverload, tuple[int, int | None]] = {
    aten._embedding_bag_backward.default: (0, 9),
    aten._embedding_bag_dense_backward.default: (0, None),
}
"""Operators whose kernels first copy an argument that is not dense by rows: its position, and that of a flag with which
they don't."""


def sum_parts_apart(module: object, ctx: object) -> object:
    """Compute each part of a sum by itself, if the sum is only read in parts of which kernels of libraries would copy
    most. A part is freed after its call, where the sum would be held until the last call that reads a part of it."""
    if not isinstance(module, fx.GraphModule):
        return module
    copied = [place for target in COPIED for place in copied_arguments(module.graph, target)]
    sums = dict.fromkeys(args_of(part)[0] for part in copied if part.target is aten.select.int)
    for whole in sums:
        parts = list(whole.users)
        if whole.target is aten.add.Tensor and are_apart(whole, parts) and 2 * len(set(parts) & {*copied}) > len(parts):
            sum_apart(module.graph, whole, parts)
    return module


def copied_arguments(graph: fx.Graph, target: torch._ops.OpOverload) -> list[fx.Node]:
    """The arguments that the kernels of an operator copy."""
    place, unless = COPIED[target]
    calls = graph.find_nodes(op="call_function", target=target)
    given = map(args_of, calls)
    copied = [args[place] for args in given if unless is None or args[unless] is False]
    return [node for node in copied if has_numbers(node) and not node.meta["val"].is_contiguous()]


def are_apart(whole: fx.Node, parts: Iterable[fx.Node]) -> bool:
    """Whether all parts are selected along one axis, each once, from a sum of two tensors of its size."""
    if not has_numbers(whole) or any(part.target is not aten.select.int for part in parts):
        return False
    if any(user.op == "output" for part in parts for user in part.users):
        return False  # a result has the strides of a part
    places = [part.args[1:] for part in parts]
    size = whole.meta["val"].shape
    alike = [isinstance(n, fx.Node) and n.meta["val"].shape == size for n in whole.args]
    return all(alike) and not whole.kwargs and len({axis for axis, _ in places}) == 1 and len({*places}) == len(places)


def sum_apart(graph: fx.Graph, whole: fx.Node, parts: Iterable[fx.Node]) -> None:
    """Replace each part of a sum by the sum of the parts."""
    for part in parts:
        with graph.inserting_before(part):
            terms = [add_call(graph, part, aten.select.int, term, *part.args[1:]) for term in whole.args]
            made = add_call(graph, whole, aten.add.Tensor, *terms)
        part.replace_all_uses_with(made)
        graph.erase_node(part)
    graph.erase_node(whole)
