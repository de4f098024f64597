"""Linear regression with its training step: forward and loss in the module, the step as users write it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .example import Example, seeded


class LinearRegression(nn.Module):
    """Returns the mean squared error when a target is passed, else the prediction."""

    def __init__(self, features: int = 13) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1)

    def forward(self, x: Tensor, target: Tensor | None = None) -> Tensor:
        prediction = self.linear(x).squeeze(-1)
        if target is None:
            return prediction
        return F.mse_loss(prediction, target)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, target: Tensor) -> Tensor:
    """One step of gradient descent. Returns the loss before the step."""
    optimizer.zero_grad()
    loss = model(x, target)
    loss.backward()
    optimizer.step()
    return loss.detach()


def as_is(output: object) -> Tensor:
    assert isinstance(output, Tensor)
    return output


def example(batch: int = 256) -> Example:
    generator = seeded()
    x = torch.randn(batch, 13, generator=generator)
    weights = torch.randn(13, generator=generator)
    target = x @ weights + 0.1 * torch.randn(batch, generator=generator)
    return Example("LinearRegression", LinearRegression(), (x, target), as_is)
