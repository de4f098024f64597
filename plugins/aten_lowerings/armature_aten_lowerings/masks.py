"""Attention masks that are known before the graph runs: masks of all ones go away, causal ones become a flag.

Models build masks from ranges and comparisons, often of sizes alone (`arange(n) >= 0`). Such a mask is computed once,
while the graph is compiled. With one, attention takes slower kernels, or none that is fused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from armature.plugin_api import KnownValues, NotKnown

attention = torch.nn.functional.scaled_dot_product_attention
PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def lets_all_pass(mask: Tensor) -> bool:
    """Whether a mask changes no score."""
    return bool(mask.all()) if mask.dtype == torch.bool else bool((mask == 0).all())


def is_causal(mask: Tensor) -> bool:
    """Whether each of L queries sees the keys up to its own position, in a mask [..., L, S].

    Of added masks, a score that the lowest number of the dtype is added to is as good as gone, as every query sees the
    first key.
    """
    lower = torch.ones(mask.shape[-2:], dtype=torch.bool).tril()
    if mask.dtype == torch.bool:
        return bool((mask == lower).all())
    gone = mask <= torch.finfo(mask.dtype).min / 2
    return bool(torch.where(lower, mask == 0, gone).all())


def simplify_masks(module: object, ctx: object) -> object:
    """Leave out masks that let everything pass, and say `is_causal` for those that are."""
    if not isinstance(module, fx.GraphModule):
        return module
    known = KnownValues()
    for node in module.graph.find_nodes(op="call_function", target=attention):
        given = dict(zip(PARAMETERS, node.args)) | node.kwargs
        mask = given.get("attn_mask")
        if not isinstance(mask, fx.Node) or given.get("is_causal", False) is not False:
            continue
        try:
            value = known.of(mask)
        except NotKnown:
            continue
        if not isinstance(value, Tensor) or value.dim() < 2 or not value.numel():
            continue
        if lets_all_pass(value):
            node.args, node.kwargs = (), {**given, "attn_mask": None}
        elif is_causal(value) and value.shape[-2:] == scores(given):
            node.args, node.kwargs = (), {**given, "attn_mask": None, "is_causal": True}
    return module


def scores(given: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """Queries and keys, L and S, where they are numbers."""
    query, key = (given[name].meta.get("example_value") for name in ("query", "key"))
    if not isinstance(query, Tensor) or not isinstance(key, Tensor) or query.dim() < 2 or key.dim() < 2:
        return None
    return (query.shape[-2], key.shape[-2])
