"""Attention masks known at compile time: masks of all ones are removed, causal ones become a flag.

Models build masks from ranges and comparisons, often of sizes only (`arange(n) >= 0`). Such a mask is computed once,
while the graph is compiled. With a mask, attention uses slower kernels, or none that is fused.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

import torch
from torch import Tensor, fx
from torch.fx.node import Argument

from armature.plugin_api import KnownValues, NotKnown

attention = torch.nn.functional.scaled_dot_product_attention
PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def lets_all_pass(mask: Tensor) -> bool:
    """Whether a mask leaves all scores unchanged."""
    return bool(mask.all()) if mask.dtype == torch.bool else bool((mask == 0).all())


def is_causal(mask: Tensor) -> bool:
    """Whether each of L queries sees the keys up to its own position, in a mask [..., L, S].

    In an additive mask, the dtype's lowest number hides a score completely, because every query sees the first key.
    """
    lower = torch.ones(mask.shape[-2:], dtype=torch.bool).tril()
    if mask.dtype == torch.bool:
        return bool((mask == lower).all())
    gone = mask <= torch.finfo(mask.dtype).min / 2
    return bool(torch.where(lower, mask == 0, gone).all())


def simplify_masks(module: object, ctx: object) -> object:
    """Remove masks that hide nothing, replace causal ones by `is_causal`, and lay out the others for fused kernels."""
    if not isinstance(module, fx.GraphModule):
        return module
    known = KnownValues()
    for node in module.graph.find_nodes(op="call_function", target=attention):
        given = dict(zip(PARAMETERS, node.args)) | node.kwargs
        mask = given.get("attn_mask")
        if not isinstance(mask, fx.Node) or given.get("is_causal", False) is not False:
            continue
        needed = relevant_part(mask, known)
        value = value_if_known(needed, known)
        if value is not None and value.dim() >= 2 and lets_all_pass(value):
            node.args, node.kwargs = (), {**given, "attn_mask": None}
        elif value is not None and value.dim() >= 2 and is_causal(value) and value.shape[-2:] == scores(given):
            node.args, node.kwargs = (), {**given, "attn_mask": None, "is_causal": True}
        elif needed is not mask or must_be_laid_out(mask):
            node.args, node.kwargs = (), {**given, "attn_mask": laid_out(needed, mask, node)}
    return module


def value_if_known(node: fx.Node, known: KnownValues) -> Tensor | None:
    """The node's tensor if it does not depend on inputs; None for others, and for empty tensors."""
    try:
        value = known.of(node)
    except NotKnown:
        return None
    return value if isinstance(value, Tensor) and value.numel() else None


def relevant_part(mask: fx.Node, known: KnownValues) -> fx.Node:
    """The relevant part of a mask, if the rest changes nothing: the bias in `where(ones, bias, low)` or `bias + zeros`.

    Only attention reads the result, so it need not be a new tensor. It may lack leading or broadcast axes of the rest.
    """
    while True:
        args = mask.args
        if mask.op == "call_function" and mask.target is torch.where and len(args) == 3 and not mask.kwargs:
            condition, chosen, _ = args
            changes_nothing = isinstance(condition, fx.Node) and _passes(condition, known)
        elif mask.op == "call_function" and mask.target in (operator.add, torch.add) and len(args) == 2:
            chosen, other = args if not _is_known(args[0], known) else args[::-1]
            changes_nothing = not mask.kwargs and isinstance(other, fx.Node) and _passes(other, known)
        else:
            return mask
        if not changes_nothing or not isinstance(chosen, fx.Node) or dtype_of(chosen) != dtype_of(mask):
            return mask
        mask = chosen


def _is_known(node: object, known: KnownValues) -> bool:
    return isinstance(node, fx.Node) and value_if_known(node, known) is not None


def _passes(node: fx.Node, known: KnownValues) -> bool:
    value = value_if_known(node, known)
    return value is not None and lets_all_pass(value)


def dtype_of(node: fx.Node) -> torch.dtype | None:
    """The dtype of a tensor node."""
    return getattr(node.meta.get("example_value"), "dtype", None)


def must_be_laid_out(mask: fx.Node) -> bool:
    """Whether fused kernels refuse the mask's layout: on a GPU it must be contiguous along the keys."""
    fake = mask.meta.get("example_value")
    if not isinstance(fake, Tensor) or fake.device.type != "cuda" or not fake.dim():
        return False
    step = fake.stride(-1)
    return type(step) is int and step != 1


def laid_out(needed: fx.Node, mask: fx.Node, node: fx.Node) -> fx.Node:
    """The relevant part of a mask, in the mask's shape."""
    shape = mask.meta["example_value"].shape
    if not all(type(size) is int for size in shape):
        return mask
    with node.graph.inserting_before(node):
        made = node.graph.call_function(expanded, (needed, tuple(shape), must_be_laid_out(needed)))
    made.meta.update(mask.meta)
    return made


def expanded(mask: Tensor, shape: tuple[int, ...], copied: bool) -> Tensor:
    """The mask expanded to `shape`. A copy, if requested, is contiguous along the last axis, and has one row for those
    that are broadcast."""
    if copied:
        last = mask.dim() - 1
        rows = tuple(slice(1) if mask.stride(k) == 0 and k != last else slice(None) for k in range(mask.dim()))
        mask = mask[rows].contiguous()
    return mask.expand(shape)


def scores(given: Mapping[str, Argument]) -> tuple[object, object] | None:
    """Numbers of queries and keys, L and S, if they are not symbolic."""
    query, key = (_example(given[name]) for name in ("query", "key"))
    if not isinstance(query, Tensor) or not isinstance(key, Tensor) or query.dim() < 2 or key.dim() < 2:
        return None
    return (query.shape[-2], key.shape[-2])


def _example(value: Argument) -> object:
    return value.meta.get("example_value") if isinstance(value, fx.Node) else None
