"""Seam to torch's operator of flexible attention: what it gives, asked with tensors without numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import DispatchKey
from torch._higher_order_ops.flex_attention import flex_attention, sdpa_dense
from torch.amp.autocast_mode import _cast

from armature.torch_abi.overrides import Asking
from armature.torch_abi.pytree import tree_leaves

dense: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = sdpa_dense
CASTS = {"cpu": DispatchKey.AutocastCPU, "cuda": DispatchKey.AutocastCUDA}


def item_by_tensors(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """`tensor[index]` where torch calls functions that are given to attention: a tensor of one int is an index like
    others, of which Python makes a number elsewhere."""
    leaves = tree_leaves(index)
    if not all(isinstance(leaf, (torch.Tensor, int)) for leaf in leaves):
        return tensor[index]
    return torch.ops.aten.index(tensor, [_as_index(leaf, tensor.device) for leaf in leaves])  # type: ignore[no-any-return]


def _as_index(leaf: Any, device: torch.device) -> torch.Tensor:
    return leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf, dtype=torch.int64, device=device)


def attention_results(
    tensors: Sequence[torch.Tensor], score: Any, mask: tuple[Any, ...], scale: Any, buffers: tuple[Any, Any]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What attention gives for fakes of query, key and value: itself, log-sum-exp and largest scores, in the dtypes and
    strides of eager mode. buffers: what the functions of scores and of the mask are given besides."""
    kind = tensors[0].device.type
    if CASTS.get(kind) in flex_attention.py_kernels and torch.is_autocast_enabled(kind):
        tensors = [_cast(one, kind, torch.get_autocast_dtype(kind)) for one in tensors]
    with Asking(), torch.no_grad(), torch.autocast(kind, enabled=False):
        return dense(*tensors, score, mask, scale, {}, *buffers)
