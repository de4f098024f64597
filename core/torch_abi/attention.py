"""Seam to torch's attention, flexible or of nested tensors: the layout of its results, computed on fake tensors, and
which kernels torch chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import DispatchKey
from torch._higher_order_ops.flex_attention import flex_attention, sdpa_dense
from torch.amp.autocast_mode import _cast
from torch.backends.cuda import (
    SDPAParams,
    can_use_cudnn_attention,
    can_use_efficient_attention,
    can_use_flash_attention,
)
from torch.nested._internal import nested_tensor, sdpa
from torch.nn.attention import SDPBackend

from armature.torch_abi.overrides import Asking
from armature.torch_abi.pytree import tree_leaves

dense: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = sdpa_dense
NESTED: Any = nested_tensor
NESTED_ATTENTION: Any = sdpa


def autocast_to(tensor: torch.Tensor) -> torch.Tensor:
    """An argument of flexible attention in the dtype that autocast wants, where torch's operator casts it too."""
    kind = tensor.device.type
    key = getattr(DispatchKey, f"Autocast{torch._C._dispatch_key_for_device(kind)}", None)
    if key not in flex_attention.py_kernels or not torch.is_autocast_enabled(kind):
        return tensor
    cast: torch.Tensor = _cast(tensor, kind, torch.get_autocast_dtype(kind))
    return cast


def item_by_tensors(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """`tensor[index]` inside the functions passed to attention: there a one-element int tensor is an index like any
    other, while elsewhere Python makes a number of it."""
    leaves = tree_leaves(index)
    if not all(isinstance(leaf, (torch.Tensor, int)) for leaf in leaves):
        return tensor[index]
    found: torch.Tensor = torch.ops.aten.index(tensor, [_as_index(leaf, tensor.device) for leaf in leaves])
    return found


def _as_index(leaf: Any, device: torch.device) -> torch.Tensor:
    return leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf, dtype=torch.int64, device=device)


def attention_results(
    tensors: Sequence[torch.Tensor], score: Any, mask: tuple[Any, ...], scale: Any, buffers: tuple[Any, Any]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Attention's results for fakes of query, key and value: output, log-sum-exp and largest scores, with the dtypes
    and strides of eager mode. buffers: further arguments of the score and mask functions."""
    kind = tensors[0].device.type
    tensors = [autocast_to(one) for one in tensors]
    with Asking(), torch.no_grad(), torch.autocast(kind, enabled=False):
        return dense(*tensors, score, mask, scale, {}, *buffers)


def runs_fused(query: torch.Tensor, keys: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Whether `scaled_dot_product_attention` of fakes of a GPU's tensors runs as one kernel, in this process."""
    if not torch.get_device_module(query.device).is_available():
        return False
    # `torch._fused_sdp_choice` does not know fakes of a GPU up to torch 2.11 at least.
    asked = SDPAParams(query, keys, value, mask, 0.0, False, False)
    return can_use_flash_attention(asked) or can_use_efficient_attention(asked) or can_use_cudnn_attention(asked)


def nested_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """The result of `scaled_dot_product_attention` for fakes of jagged nested tensors.

    Without a kernel for them, torch reads the offsets to split them. This function computes the result's sizes, strides
    and dependencies, and whether random numbers are drawn.
    """
    given = (query, key, value)
    kinds = {(type(one), one.dim(), getattr(one, "_ragged_idx", None)) for one in given}
    with_heads = len(kinds) == 1 and query.is_nested and query.dim() == 4 and query._ragged_idx == 2
    if not with_heads or not _computes_by_part(*given, attn_mask, dropout_p, is_causal, enable_gqa):
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    query, key, value, attn_mask = NESTED_ATTENTION._autocast(query, key, value, attn_mask)
    NESTED_ATTENTION._validate_sdpa_input(query, key, value, attn_mask, dropout_p, is_causal, scale)
    rows = query.transpose(1, 2).values().sum(-1, keepdim=True) * (key.values().sum() + value.values().sum())
    made = torch.dropout(rows.expand(*rows.shape[:-1], value.size(-1)).contiguous(), dropout_p, train=dropout_p > 0)
    whole: torch.Tensor = NESTED.nested_view_from_values_offsets_lengths(
        made,
        query.offsets(),
        lengths=query.lengths(),
        min_seqlen=query._maybe_min_seqlen,
        max_seqlen=query._maybe_max_seqlen,
    )
    return whole.transpose(1, 2)


def _computes_by_part(query: Any, key: Any, value: Any, mask: Any, dropout: float, causal: bool, grouped: bool) -> bool:
    """Whether torch computes it part by part."""
    found = NESTED_ATTENTION._select_sdp_backend(query, key, value, mask, dropout, causal, grouped)
    return bool(found == SDPBackend.MATH)
