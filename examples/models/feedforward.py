"""A feed-forward net on flattened 28x28 images."""

import torch
from torch import Tensor, nn

from .example import Example, seeded, sum_of_squares


class FeedForward(nn.Module):
    def __init__(self, inputs: int = 784, hidden: int = 500, classes: int = 10) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.reshape(-1, 28 * 28)
        return self.fc2(self.relu(self.fc1(x)))


def example(batch: int = 100) -> Example:
    images = torch.randn(batch, 1, 28, 28, generator=seeded())
    return Example("FeedForward", FeedForward(), (images,), sum_of_squares)
