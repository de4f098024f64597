"""Computations on frames."""

from __future__ import annotations

import torch

from tinyframe.frame import Frame
from tinyframe.native import joined, width
from tinyframe.options import Options, option


def finite(column: torch.Tensor, limit: float = 1e4) -> torch.Tensor:
    """The column without infinities and NaN: the former become the limit, the latter 0."""
    return torch.nan_to_num(column, nan=0.0, posinf=limit, neginf=-limit)


def standardize(frame: Frame, options: Options) -> torch.Tensor:
    """All columns side by side with mean 0 and deviation 1."""
    epsilon = option(options, "epsilon", 1e-6)
    columns = joined([], [(column - column.mean()) / (column.std() + epsilon) for column in frame])
    return finite(torch.stack(columns, dim=-1))


def total(frame: Frame, options: Options) -> torch.Tensor:
    """The sum of the price column scaled by the option `scale` and divided by the number of columns."""
    return finite(finite(frame.price * option(options, "scale", 1.0))).sum() / width(frame.names)
