"""Replaces attention written as two products with a softmax in between by `scaled_dot_product_attention`.

Its CPU kernels never write the scores of all queries and keys to memory. That pays from WORTH scores on, with gradients
too (measured with one thread, as CPU time: 0.55 to 0.85 of the loops' in inference, 0.8 to 1.02 in training; below that
up to 1.4 times as much). Attention with an active dropout is left alone, to keep its own random numbers.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, fx
from torch.nn import functional

from armature.plugin_api import KnownValues, Match, Rewrite, Services, fake_of, function_of, rewriting
from armature_aten_lowerings.einsums import as_products
from armature_aten_lowerings.masks import value_if_known

WORTH = 1 << 19
PRODUCTS = frozenset((
    functional.linear, operator.matmul, torch.matmul, torch.bmm, torch.mm, torch.addmm, functional.embedding,
))  # fmt: skip
NOTHING = -1e9
"""A score that is replaced by at most this has no weight beside another."""


def scaled(scores: Tensor, factor: float, scaling: str) -> Tensor:
    """The scaled scores."""
    if scaling == "divided":
        return torch.div(scores, factor)
    return torch.mul(scores, factor) if scaling == "multiplied" else scores


def masked(scores: Tensor, mask: Tensor, fill: float, masking: str) -> Tensor:
    """The masked scores, in each of the ways to write that."""
    if masking == "filled":
        return scores.masked_fill(mask, fill)
    if masking == "chosen":
        return torch.where(mask, scores, fill)
    return torch.add(scores, mask) if masking == "added" else scores


def weighted(scores: Tensor, dim: int, dtype: torch.dtype, p: float, training: bool, dropping: str) -> Tensor:
    """The weights: a softmax, optionally with dropout."""
    weights = torch.softmax(scores, dim, dtype)
    if dropping == "function":
        return functional.dropout(weights, p, training)
    return torch.dropout(weights, p, training) if dropping == "torch's" else weights


def rewrites() -> Iterator[Rewrite]:
    """All variants, the longest first, because shorter patterns are parts of them."""
    scalings, maskings = ("divided", "multiplied", ""), ("filled", "chosen", "added", "")
    products: tuple[Callable[..., Tensor], ...] = (torch.matmul, torch.bmm)
    for product, scaling, masking, dropping in itertools.product(
        products, scalings, maskings, ("function", "torch's", "")
    ):
        name = "attention " + ", ".join(filter(None, (scaling, masking, dropping)))
        pattern = pattern_of(product, scaling, masking, dropping)
        yield Rewrite(pattern, replacement_of(scaling, masking), is_worth_it, name)


def pattern_of(product: Callable[..., Tensor], scaling: str, masking: str, dropping: str) -> Callable[..., object]:
    """One variant of attention, which does not use all parameters. `keys` is already transposed: [..., D, S]."""

    def attention(
        query: Tensor,
        keys: Tensor,
        value: Tensor,
        dim: int,
        dtype: torch.dtype,
        factor: float,
        mask: Tensor,
        fill: float,
        p: float,
        training: bool,
    ) -> object:
        scores = masked(scaled(product(query, keys), factor, scaling), mask, fill, masking)
        return product(weighted(scores, dim, dtype, p, training, dropping), value)

    return attention


def replacement_of(scaling: str, masking: str) -> Callable[..., object]:
    """The replacement for a pattern."""

    def attention(
        query: Tensor,
        keys: Tensor,
        value: Tensor,
        factor: object = 1.0,
        mask: Tensor | None = None,
        fill: object = None,
        **others: object,
    ) -> object:
        number = number_of(factor) or 1.0  # never zero, see _is_plain
        as_one = fake_of(node_of(query)).dim() == 3
        given = [one.unsqueeze(0) for one in (query, keys, value)] if as_one else [query, keys, value]
        mixed = functional.scaled_dot_product_attention(
            given[0],
            given[1].transpose(-2, -1),
            given[2],
            attn_mask=None if mask is None else four_axes(mask, masking),
            scale=1.0 / number if scaling == "divided" else number,
        )
        mixed = (mixed.squeeze(0) if as_one else mixed).contiguous()
        if mask is None or each_sees_a_key(node_of(mask), masking):
            return mixed
        return with_blind_queries(mixed, value, mask, masking, number_of(fill))

    return attention


def node_of(value: object) -> fx.Node:
    """The node of a value of the replacement, which is called with proxies."""
    if not isinstance(value, fx.Proxy):
        raise TypeError(f"a replacement is called with proxies, not with {type(value).__name__}")
    return value.node


def four_axes(mask: Tensor, masking: str) -> Tensor:
    """The mask as the kernel takes it: true where a key is visible, or a number to add."""
    shown = torch.logical_not(mask) if masking == "filled" else mask
    for _ in range(4 - fake_of(node_of(mask)).dim()):
        shown = shown.unsqueeze(0)
    return shown


def each_sees_a_key(mask: fx.Node, masking: str) -> bool:
    """Whether each query is known to see a key."""
    known = value_if_known(mask, KnownValues())
    if known is None:
        return False
    seen = known > -math.inf if masking == "added" else ~known if masking == "filled" else known
    return bool(seen.any(-1).all())


def with_blind_queries(mixed: Tensor, value: Tensor, mask: Tensor, masking: str, fill: float | None) -> Tensor:
    """The result corrected for queries that see no key, where the kernel returns zeros. Eager mode returns the mean of
    the values if all scores are equal, and NaN if they are minus infinity."""
    if masking == "added":
        blind = mask.amax(-1, True) == -math.inf
        return mixed * nan_where(blind, value)  # a product, so that gradients become NaN too
    blind = mask.all(-1, True) if masking == "filled" else torch.logical_not(mask.any(-1, True))
    mean = value.mean(-2, True)
    if fill == -math.inf:
        # NaN only if a query is blind: otherwise gradients of zero would become NaN.
        mean = mean * nan_where(blind.any(-2, True) if fake_of(node_of(mask)).dim() > 1 else blind, value)
    return torch.where(blind, mean, mixed)


def nan_where(condition: Tensor, like: Tensor) -> Tensor:
    """Factors: NaN under the condition, 1 elsewhere. They have the dtype of `like`; torch takes two numbers for
    float32."""
    return torch.where(condition, math.nan, 1.0).to(fake_of(node_of(like)).dtype)


def number_of(value: object) -> float | None:
    """A number, or a one-element tensor that depends on constants only; None for others."""
    node = value.node if isinstance(value, fx.Proxy) else value
    if isinstance(node, fx.Node):
        known = value_if_known(node, KnownValues())
        return None if known is None or known.numel() != 1 or known.dtype.is_complex else float(known)
    return float(node) if isinstance(node, (int, float)) and not isinstance(node, bool) else None


def is_worth_it(match: Match) -> bool:
    """Whether the operator is equivalent to the match, and faster."""
    query, keys, value, result = (*map(match.fake, ("query", "keys", "value")), fake_of(match.root))
    tensors = (query, keys, value, result)
    if not all(isinstance(one, Tensor) and one.dim() in (3, 4) for one in tensors):
        return False
    dtypes = {fake_of(node).dtype for node in match.inner} | {one.dtype for one in tensors}
    numbers = all(type(n) is int for one in tensors for n in one.shape)
    if len(dtypes) > 1 or not query.dtype.is_floating_point or query.device.type != "cpu" or not numbers:
        return False
    fits = (
        query.shape[:-2] == keys.shape[:-2] == value.shape[:-2]
        and query.shape[-1] == keys.shape[-2] == value.shape[-1]
        and result.shape == query.shape
        and result.is_contiguous()
        and match.fake("dim") in (-1, query.dim() - 1)
        and match.fake("dtype") in (None, query.dtype)
    )
    laid_out = all(_gets_same_gradient(match.bound[name]) for name in ("query", "keys", "value"))
    return fits and laid_out and math.prod(query.shape[:-1]) * keys.shape[-1] >= WORTH and _is_plain(match, query)


def _gets_same_gradient(node: object) -> bool:
    """Whether the kernels' gradients, which have another layout than eager mode's, are never visible to the program:
    each passes through a product on its way to an input, or ends in a sum."""
    todo, seen = [node], set[object]()
    while todo:
        current = todo.pop()
        if current in seen or not getattr(fake_of(current), "requires_grad", True):
            continue
        seen.add(current)
        if not isinstance(current, fx.Node) or function_of(current) in PRODUCTS:
            continue
        if current.op in ("placeholder", "get_attr") and fake_of(current).dim() > 1:
            return False
        todo += current.all_input_nodes
    return True


def _is_plain(match: Match, query: Tensor) -> bool:
    """Whether attention supports the match's scale, mask and dropout."""
    bound = match.bound
    if "factor" in bound and not number_of(bound["factor"]):
        return False
    if "p" in bound and bound["p"] != 0 and bound["training"] is not False:
        return False
    if "mask" not in bound:
        return True
    mask = match.fake("mask")
    if not isinstance(mask, Tensor) or mask.requires_grad or mask.dim() not in range(1, query.dim() + 1):
        return False
    if "fill" not in bound:
        return mask.dtype is query.dtype
    fill = number_of(bound["fill"])
    return mask.dtype is torch.bool and fill is not None and fill <= NOTHING


written_out = rewriting(rewrites())


def use_attention(module: object, ctx: Services) -> object:
    """The pass."""
    if isinstance(module, fx.GraphModule):
        as_products(module, WORTH)
    return written_out(module, ctx)
