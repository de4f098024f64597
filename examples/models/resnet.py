"""A residual network for 32x32 images, blocks [2, 2, 2]."""

import torch
from torch import Tensor, nn

from .example import Example, seeded, sum_of_squares


def conv3x3(channels_in: int, channels_out: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels_out, kernel_size=3, stride=stride, padding=1, bias=False)


class ResidualBlock(nn.Module):
    def __init__(
        self, channels_in: int, channels_out: int, stride: int = 1, downsample: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.conv1 = conv3x3(channels_in, channels_out, stride)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(channels_out, channels_out)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        residual = x
        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        if self.downsample is not None:
            residual = self.downsample(x)
        out += residual
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, blocks: list[int], classes: int = 10) -> None:
        super().__init__()
        self.channels = 16
        self.conv = conv3x3(3, 16)
        self.bn = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = self._layer(16, blocks[0])
        self.layer2 = self._layer(32, blocks[1], stride=2)
        self.layer3 = self._layer(64, blocks[2], stride=2)
        self.avg_pool = nn.AvgPool2d(8)
        self.fc = nn.Linear(64, classes)

    def _layer(self, channels: int, count: int, stride: int = 1) -> nn.Sequential:
        downsample = None
        if stride != 1 or self.channels != channels:
            downsample = nn.Sequential(conv3x3(self.channels, channels, stride), nn.BatchNorm2d(channels))
        layers = [ResidualBlock(self.channels, channels, stride, downsample)]
        self.channels = channels
        layers += [ResidualBlock(channels, channels) for _ in range(1, count)]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn(self.conv(x)))
        out = self.layer1(out)
        out = self.layer2(out)
        out = self.layer3(out)
        out = self.avg_pool(out)
        out = out.view(out.size(0), -1)
        return self.fc(out)


def example(batch: int = 16) -> Example:
    images = torch.randn(batch, 3, 32, 32, generator=seeded())
    return Example("ResNet", ResNet([2, 2, 2]), (images,), sum_of_squares, tolerance=1e-3)
