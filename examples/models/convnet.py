"""A two-layer convolutional net with batch norm, as in many first lessons."""

import torch
from torch import Tensor, nn

from .example import Example, seeded, sum_of_squares


class ConvNet(nn.Module):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.layer1 = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=5, stride=1, padding=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=2, stride=2),
        )
        self.layer2 = nn.Sequential(
            nn.Conv2d(16, 32, kernel_size=5, stride=1, padding=2),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=2, stride=2),
        )
        self.fc = nn.Linear(7 * 7 * 32, classes)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer1(x)
        out = self.layer2(out)
        out = out.reshape(out.size(0), -1)
        return self.fc(out)


def example(batch: int = 32) -> Example:
    images = torch.randn(batch, 1, 28, 28, generator=seeded())
    return Example("ConvNet", ConvNet(), (images,), sum_of_squares)
