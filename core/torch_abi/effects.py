"""Seam to operators with effects: a check of a tensor that is not removed from the graph although its result is unused.
AOTAutograd loses torch's own check, `aten._assert_async`, when gradients are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops import effects

NAME = "armature::check"


def _check(condition: Tensor, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _check_later(condition: Tensor, message: str) -> None:
    torch.ops.aten._assert_async.msg(condition, message)


def _defined() -> Callable[..., Any]:
    torch.library.define(NAME, "(Tensor condition, str message) -> ()")
    torch.library.impl(NAME, "CPU", _check)
    torch.library.impl(NAME, "CUDA", _check_later)
    torch.library.impl(NAME, "Meta", lambda condition, message: None)
    effects._register_effectful_op(NAME, effects._EffectType.ORDERED)
    return torch.ops.armature.check.default


CHECK: Callable[..., Any] = _defined()
"""`CHECK(condition, message)` in a graph: AssertionError where the one element is false; a later error on a GPU."""
