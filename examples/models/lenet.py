"""LeNet-5 for 28x28 images: two convolutions with pooling, three linear layers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .example import Example, seeded, sum_of_squares


class LeNet(nn.Module):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


def example(batch: int = 64) -> Example:
    images = torch.randn(batch, 1, 28, 28, generator=seeded())
    return Example("LeNet", LeNet(), (images,), sum_of_squares)
