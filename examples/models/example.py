"""The description of an example that every model file returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn


@dataclass
class Example:
    """A model with its inputs. `loss` turns the model's output into a scalar to differentiate."""

    name: str
    model: nn.Module
    inputs: tuple[Tensor, ...]
    loss: Callable[[object], Tensor]
    tolerance: float = 1e-4  # largest absolute difference from eager that rounding can explain, in float32
    notes: str = field(default="")


def sum_of_squares(output: object) -> Tensor:
    """A loss for any tensor output."""
    assert isinstance(output, Tensor)
    return output.float().pow(2).mean()


def seeded(seed: int = 0) -> torch.Generator:
    """A generator for inputs, so that every run uses the same numbers."""
    return torch.Generator().manual_seed(seed)
