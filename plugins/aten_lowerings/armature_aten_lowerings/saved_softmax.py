"""Computes a softmax again in backward, where its argument is a cheap function of much smaller values.

Graph attention adds a score of each node to that of each other node: the sums are as many as the weights, but they are
made of two columns. Then the largest value and the sum of each row are saved, and not the weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, fx

from armature_aten_lowerings.layouts import args_of, is_view
from armature_aten_lowerings.saving import (
    depending_on_tangents,
    has_numbers,
    inlined,
    is_elementwise,
    is_on_cpu,
)

aten = torch.ops.aten
SMALLER = 2  # how many times the bytes of what it is computed from a softmax must have
MOST_NODES = 16  # operators that are computed again
LEAST_BYTES = 1 << 16


def recompute_softmax(module: object, ctx: object) -> object:
    """The pass, on the joint graph, on a CPU."""
    if not isinstance(module, fx.GraphModule):
        return module
    backward = depending_on_tangents(module.graph)
    for node in module.graph.find_nodes(op="call_function", target=aten._softmax.default):
        given, axis, _ = args_of(node)
        value = node.meta["val"]
        readers = [user for user in node.users if user in backward]
        derived = [user for user in readers if user.target is aten._softmax_backward_data.default]
        if not (derived and has_numbers(node) and is_on_cpu(node) and has_numbers(given)):
            continue
        plain = value.dtype in (torch.float32, torch.float64) and value.dtype == given.meta["val"].dtype
        cheap = plain and all(is_elementwise(user) or user in derived for user in readers)
        if cheap and LEAST_BYTES <= value.nbytes >= SMALLER * bytes_behind(given):
            write_out(node, derived, axis)
    return module


def bytes_behind(node: fx.Node) -> float:
    """The bytes of the values that elementwise operators compute this one from; infinite for too many operators."""
    seen: set[fx.Node] = set()
    todo, found = [node], 0.0
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        if len(seen) > MOST_NODES:
            return float("inf")
        if one.all_input_nodes and (is_elementwise(one) or is_view(one)):
            todo += one.all_input_nodes
        elif isinstance(one.meta.get("val"), Tensor) and has_numbers(one):
            found += one.meta["val"].nbytes
        else:
            return float("inf")
    return found


def write_out(node: fx.Node, derived: list[fx.Node], axis: int) -> None:
    """Replace a softmax, and its derivatives, by what they compute, of which the quotient is computed again."""
    given = args_of(node)[0]
    largest, total = inlined(node, lambda x: statistics(x, axis), given)
    (quotient,) = inlined(node, lambda x, m, s: (x - m).exp() / s, given, largest, total, recompute=True)
    node.replace_all_uses_with(quotient)
    node.graph.erase_node(node)
    for user in derived:
        gradient = args_of(user)[0]
        (found,) = inlined(user, lambda g, p: p * (g - (g * p).sum(axis, keepdim=True)), gradient, quotient)
        user.replace_all_uses_with(found)
        user.graph.erase_node(user)


def statistics(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The largest value along an axis, and the sum of exponentials beside it."""
    largest = x.amax(axis, keepdim=True)
    return largest, (x - largest).exp().sum(axis, keepdim=True)
