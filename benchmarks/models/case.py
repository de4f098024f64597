"""A model of the zoo: the module with random weights, the arguments of one call, and the location of its loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import torch
from torch import nn


def loss_of(output: Any) -> torch.Tensor:
    """The loss that the model itself computes, or a sum over the first tensor of its result."""
    loss = getattr(output, "loss", None)
    if loss is not None:
        return torch.as_tensor(loss)
    tensor = output if isinstance(output, torch.Tensor) else first_tensor(output)
    return tensor.float().square().mean()


def first_tensor(output: Any) -> torch.Tensor:
    """The first floating-point tensor of a model's output."""
    values = output.values() if isinstance(output, Mapping) else output
    return next(item for item in values if isinstance(item, torch.Tensor) and item.is_floating_point())


@attrs.frozen
class Case:
    """One call of a model, `model(*args, **kwargs)`."""

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = attrs.field(factory=dict)
    loss: Callable[[Any], torch.Tensor] = loss_of
