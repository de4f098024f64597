"""Attention of queries of which some may see no key.

Eager mode returns the mean of the values if all scores are equal, and NaN if they are minus infinity. Kernels return
zeros or anything in the second case; in the first, their gradients are wrong: the logarithm of a row's sum is lost
beside its largest score. So no kernel is given such a row.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import attrs
import torch
from torch import Tensor, fx
from torch.nn.functional import scaled_dot_product_attention

from armature.plugin_api import Functions, KnownValues, fake_of, function_of, spelled
from armature_aten_lowerings.masks import value_if_known

CASTS = frozenset((
    Tensor.to, Tensor.float, Tensor.half, Tensor.bfloat16, Tensor.double, Tensor.type, Tensor.type_as,
))  # fmt: skip
VIEWS = frozenset((
    operator.getitem, Tensor.expand, Tensor.contiguous, Tensor.view, torch.clone, torch.reshape, torch.unsqueeze,
    torch.unflatten, torch.flatten, torch.squeeze, torch.detach, torch.transpose, torch.permute,
))  # fmt: skip
"""Functions whose result has no other elements than their first argument."""


HIDDEN = -1000.0
"""What hides a key, added to its score, is at most this."""


def sees_a_key(mask: fx.Node) -> bool:
    """Whether each query is known to see a key."""
    known = value_if_known(mask, KnownValues())
    return known is not None and bool((known if known.dtype is torch.bool else known > HIDDEN).any(-1).all())


def is_finite(numbers: Tensor, largest: float) -> Tensor:
    """Where numbers are at most the largest of a dtype."""
    return numbers.abs() <= largest


def hides_or_shows(numbers: Tensor) -> Tensor:
    """Where numbers change nothing, or hide a key: in any dtype, they have the same effect."""
    return (numbers == 0) | (numbers <= HIDDEN)


def consists_of(mask: object, fit: Callable[[Tensor], Tensor], functions: Functions) -> bool:
    """Whether all elements of a mask are known to fit, as when it is chosen from numbers that do."""
    while isinstance(mask, fx.Node):
        known = value_if_known(mask, KnownValues())
        if known is not None:
            return bool(fit(known).all())
        call, function = spelled(mask, functions), function_of(mask, functions)
        first, *others = (mask.args or (None,)) if call is None else call.arguments.values()
        if function is torch.where:
            return bool(others) and all(consists_of(one, fit, functions) for one in others)
        if function is torch.masked_fill:
            if not consists_of(others[1], fit, functions):
                return False
        elif function not in VIEWS:
            return False
        mask = first
    return isinstance(mask, (int, float)) and bool(fit(torch.tensor(float(mask), dtype=torch.float64)))


def is_exact_in(tensor: object, dtype: torch.dtype, functions: Functions) -> bool:
    """Whether a node's numbers have been numbers of a dtype before they were cast to a wider one."""
    while isinstance(tensor, fx.Node) and tensor.args:
        fake, function = fake_of(tensor), function_of(tensor, functions)
        if getattr(fake, "dtype", None) is dtype:
            return True
        if function not in VIEWS and (function not in CASTS or fake.dtype is not torch.float32):
            return False
        tensor = tensor.args[0]
    return False


def attended(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """The call of the operator."""
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale).contiguous()


@attrs.frozen
class BoolMask:
    """Attention with a mask that is true where a key is seen. fill: what stands for hidden scores. cleared: whether
    their weights are set to zero."""

    dtype: torch.dtype
    fill: float
    scale: float
    cleared: bool

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        blind = torch.logical_not(mask.any(-1, True))
        mixed = attended(query, key, value, torch.logical_or(mask, blind), self.scale)
        if self.cleared:
            return torch.where(blind, 0.0, mixed)
        mean = value.mean(-2, True)
        if self.fill == -math.inf:
            # NaN only if a query is blind: otherwise gradients of zero would become NaN.
            mean = mean * nan_where(blind.any(-2, True), self.dtype)
        return torch.where(blind, mean, mixed)


@attrs.frozen
class AddedMask:
    """Attention with a mask that is added to scores. scores: their dtype where it is. keys: their number.

    Beside a large number, scores have no bits left: then all keys have the same weight, while gradients reach queries
    and keys. Such a query is zero for the kernel, and its part in the gradient of keys is computed by itself: that of
    weights that are all the same is a product of small matrices.
    """

    dtype: torch.dtype
    scores: torch.dtype
    keys: int
    scale: float
    training: bool

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        best = mask.amax(-1, True)
        facts = torch.finfo(self.scores)
        lost = best <= max(-64 / facts.eps, facts.min)
        seen = torch.where(best <= HIDDEN, torch.where(mask == best, 0.0, mask - best), mask)
        part = torch.where(lost, query, 0.0)
        mixed = attended(query - part.detach(), key, value, seen.to(self.dtype), self.scale)
        if self.training:
            around = (value - value.mean(-2, True)).detach() * (self.scale / self.keys)
            same = part.detach() @ (key.transpose(-2, -1) @ around)
            mixed = mixed + (same - same.detach())
        return mixed * nan_where(best == -math.inf, self.dtype)  # a product, so that gradients become NaN too


def nan_where(condition: Tensor, dtype: torch.dtype) -> Tensor:
    """Factors: NaN under the condition, 1 elsewhere. torch takes two numbers for float32."""
    return torch.where(condition, math.nan, 1.0).to(dtype)
