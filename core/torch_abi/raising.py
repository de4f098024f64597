"""Operators that may raise because of their arguments' values, which fake tensors do not show."""

from __future__ import annotations

import functools
import operator
import re
from typing import Any

import torch
from torch import fx

from armature.torch_abi.pytree import tree_leaves
from armature.torch_abi.symbols import is_unbacked

# By prefixes of their names.
RAISES = re.compile(
    r"_*(index|gather|scatter|take|put|embedding|nll|cross_entropy|multi(?!ply)|one_hot|bincount|ctc|repeat_interleave|masked_scatter|"
    r"bernoulli|normal(?!ize)|poisson|binomial|cauchy|exponential|geometric|log_normal|cholesky|inv|pinv|solve|triangular|lu|"
    r"ldl|qr|svd|eig|lstsq|det(?!ach)|slogdet|logdet|matrix|tensorinv|tensorsolve|cond|hist|quantile|nanquantile|tensor_split|"
    r"max_unpool|fake_quantize|quantize|segment|pack|pad_packed|assert|check|item|tolist|local_scalar)"
)
# Division by zero, or zero to a negative power.
RAISES_FOR_INTEGERS = re.compile(r"_*(i?floordiv|floor_div|i?mod|remainder|fmod|div|i?pow|rpow|rmod|rfloordiv)")
REFLECTED = re.compile(r"_*r(floordiv|div|mod|pow)")  # the first argument is the divisor, or the power
# Errors about mixed dtypes that fake tensors may accept.
RAISES_FOR_MIXED = re.compile(
    r"_*(r?matmul|\w*mm|mv|addmv|(bi)?linear|\w*conv\w*|einsum|v?dot|tensordot|inner|lerp|cross|\w*attention|\w*_norm|lstm|gru|rnn)"
)
ITEMS = frozenset({operator.getitem, operator.setitem})


def may_raise(node: fx.Node) -> bool:
    """Whether a node's function may raise because of its arguments' values."""
    if node.op == "call_module" or any(is_unbacked(value) for value in values_of(node)):
        return True
    if node.target in ITEMS:
        indices = tree_leaves(node.args[1])
        return any(isinstance(index, fx.Node) and tensors_of(index) for index in indices)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    kind = _kind_of(name)
    if kind is RAISES_FOR_INTEGERS:
        found = tensors_of(node)
        known = not REFLECTED.match(name) and any(
            isinstance(number, (int, float)) and number > 0 for number in node.args[1:2]
        )
        return any(tensor.is_complex() for tensor in found) or not (known or all(map(torch.is_floating_point, found)))
    if kind is RAISES_FOR_MIXED:
        return len({tensor.dtype for given in node.all_input_nodes for tensor in tensors_of(given)}) > 1
    return kind is RAISES


@functools.lru_cache(maxsize=4096)
def _kind_of(name: str) -> re.Pattern[str] | None:
    """The first kind that a function belongs to, by its name."""
    shorter = name.removeprefix("linalg_")
    kinds = (RAISES_FOR_INTEGERS, RAISES_FOR_MIXED, RAISES)
    return next((kind for kind in kinds if kind.match(shorter if kind is RAISES else name)), None)


def values_of(node: fx.Node) -> list[Any]:
    """The values that a captured node returns, flattened."""
    return tree_leaves(node.meta.get("example_value"))


def tensors_of(node: fx.Node) -> list[torch.Tensor]:
    """The tensors among a node's values."""
    return [value for value in values_of(node) if isinstance(value, torch.Tensor)]
