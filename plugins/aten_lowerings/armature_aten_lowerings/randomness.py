"""Random numbers written into a tensor, as eager mode draws them.

Functional graphs have `x.normal_()` as an operator that returns a new tensor. The order of the numbers depends on the
layout of `x`, and torch's functional kernels fill a copy that may have another layout, so the program's own operator is
called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from armature.backend_api import Builder, CallInstead, TensorValue
from armature.plugin_api import Lowering

aten = torch.ops.aten
Overload = torch._ops.OpOverload

IN_PLACE: Mapping[Overload, Callable[..., Tensor]] = {
    aten.bernoulli.p: Tensor.bernoulli_,
    aten.bernoulli.Tensor: Tensor.bernoulli_,
    aten.cauchy.default: Tensor.cauchy_,
    aten.exponential.default: Tensor.exponential_,
    aten.geometric.default: Tensor.geometric_,
    aten.log_normal.default: Tensor.log_normal_,
    aten.normal_functional.default: Tensor.normal_,
    aten.random.default: Tensor.random_,
    aten.random.to: Tensor.random_,
    aten.uniform.default: Tensor.uniform_,
}


def lowerings() -> Iterable[Lowering]:
    """A row for each operator that fills a tensor."""
    return [Lowering(op, filled_by(draw)) for op, draw in IN_PLACE.items()]


def filled_by(draw: Callable[..., Tensor]) -> Callable[..., CallInstead]:
    """The lowering of the functional form of `draw`, which writes into its first argument."""

    def run(x: Tensor, *args: object, **kwargs: object) -> Tensor:
        made = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
        return draw(made, *args, **kwargs)

    def lowering(b: Builder, x: TensorValue, *args: object, **kwargs: object) -> CallInstead:
        return CallInstead(run)

    return lowering
