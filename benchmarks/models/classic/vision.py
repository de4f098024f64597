"""Networks for images: the families of convolution networks, and two without convolutions in their body."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.models.case import Case

BATCH, SIDE, LABELS = 4, 64, 10


def convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, batch norm, ReLU."""
    body = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(body, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def head(width: int) -> nn.Sequential:
    """Average over the image, and a score for each label."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, LABELS))


class Residual(nn.Module):
    """`body(x) + x`."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + x


class Bottleneck(nn.Module):
    """The block of ResNet-50; with `groups`, of ResNeXt."""

    def __init__(self, inputs: int, width: int, outputs: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            convolution(inputs, width, 1),
            convolution(width, width, 3, stride, groups),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        project = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Identity() if inputs == outputs and stride == 1 else project

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class SqueezeExcite(nn.Module):
    """Scale each channel by a function of all channels' averages."""

    def __init__(self, width: int, activation: type[nn.Module] = nn.SiLU, gate: type[nn.Module] = nn.Sigmoid) -> None:
        super().__init__()
        narrow = max(width // 4, 4)
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, narrow, 1), activation(), nn.Conv2d(narrow, width, 1), gate()
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale(x)


class InvertedResidual(nn.Module):
    """The block of MobileNetV2; with an activation and squeeze-and-excite, of MobileNetV3 and EfficientNet."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, activation: Callable[[], nn.Module], gated: bool
    ) -> None:
        super().__init__()
        wide = inputs * 4
        middle = [nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), activation()]
        self.body = nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), activation(),
            *middle, *([SqueezeExcite(wide)] if gated else []),
            nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.residual = inputs == outputs and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        out = self.body(x)
        return out + x if self.residual else out


def mobile(activation: Callable[[], nn.Module], gated: bool) -> nn.Module:
    """A small network of inverted residuals."""
    widths = (16, 24, 24, 40, 40, 80)
    blocks = [InvertedResidual(a, b, 2 if a != b else 1, activation, gated) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(convolution(3, 16, stride=2), *blocks, head(80))


def resnet50() -> nn.Module:
    """A quarter of ResNet-50's width."""
    stages = [(16, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
    blocks = [Bottleneck(a, b // 4, b, stride) for a, b, stride in stages]
    return nn.Sequential(convolution(3, 16, 7, 2), nn.MaxPool2d(3, 2, 1), *blocks, head(256))


def resnext() -> nn.Module:
    """Grouped convolutions in the middle of each block."""
    blocks = [Bottleneck(a, 64, b, stride, groups=8) for a, b, stride in [(16, 128, 1), (128, 128, 1), (128, 256, 2)]]
    return nn.Sequential(convolution(3, 16, 7, 2), nn.MaxPool2d(3, 2, 1), *blocks, head(256))


def vgg() -> nn.Module:
    """Plain convolutions, and three linear layers with dropout."""
    body = [convolution(3, 32), nn.MaxPool2d(2), convolution(32, 64), nn.MaxPool2d(2), convolution(64, 128)]
    body += [convolution(128, 128), nn.MaxPool2d(2)]
    top = [nn.Flatten(), nn.Linear(128 * 64, 256), nn.ReLU(True), nn.Dropout(), nn.Linear(256, LABELS)]
    return nn.Sequential(*body, *top)


class Fire(nn.Module):
    """SqueezeNet's block: two convolutions side by side."""

    def __init__(self, inputs: int, narrow: int, wide: int) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Conv2d(inputs, narrow, 1), nn.ReLU(True))
        self.small = nn.Conv2d(narrow, wide, 1)
        self.large = nn.Conv2d(narrow, wide, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze(x)
        return torch.cat([torch.relu(self.small(x)), torch.relu(self.large(x))], 1)


def squeezenet() -> nn.Module:
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    fires = [Fire(32, 8, 32), Fire(64, 8, 32), pool, Fire(64, 16, 64), Fire(128, 16, 64), head(128)]
    return nn.Sequential(nn.Conv2d(3, 32, 3, 2), nn.ReLU(True), pool, *fires)


class DenseBlock(nn.Module):
    """DenseNet's: each layer reads what all before it wrote."""

    def __init__(self, inputs: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(inputs + k * growth), nn.ReLU(), nn.Conv2d(inputs + k * growth, growth, 3, padding=1)
            )
            for k in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return torch.cat(found, 1)


def densenet() -> nn.Module:
    between = nn.Sequential(convolution(80, 40, 1), nn.AvgPool2d(2))
    return nn.Sequential(
        convolution(3, 32, 3, 2), DenseBlock(32, 12, 4), between, DenseBlock(40, 12, 4), nn.BatchNorm2d(88), head(88)
    )


class ShuffleUnit(nn.Module):
    """ShuffleNetV2's block: half of the channels pass, then the halves are interleaved."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        depthwise = nn.Sequential(nn.Conv2d(half, half, 3, 1, 1, groups=half, bias=False), nn.BatchNorm2d(half))
        self.body = nn.Sequential(convolution(half, half, 1), depthwise, convolution(half, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, 1)
        x = torch.cat([left, self.body(right)], 1)
        batch, width, rows, columns = x.shape
        return x.view(batch, 2, width // 2, rows, columns).transpose(1, 2).reshape(batch, width, rows, columns)


def shufflenet() -> nn.Module:
    units = [ShuffleUnit(48) for _ in range(4)]
    return nn.Sequential(convolution(3, 48, 3, 2), nn.MaxPool2d(3, 2, 1), *units, head(48))


class Inception(nn.Module):
    """GoogLeNet's block: four branches side by side."""

    def __init__(self, inputs: int, each: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList([
            convolution(inputs, each, 1),
            nn.Sequential(convolution(inputs, each // 2, 1), convolution(each // 2, each)),
            nn.Sequential(convolution(inputs, each // 4, 1), convolution(each // 4, each, 5)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), convolution(inputs, each, 1)),
        ])  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def googlenet() -> nn.Module:
    return nn.Sequential(
        convolution(3, 32, 7, 2),
        nn.MaxPool2d(3, 2, 1),
        Inception(32, 16),
        Inception(64, 24),
        Inception(96, 24),
        head(96),
    )


def convmixer() -> nn.Module:
    """Patches, then large depthwise convolutions with a residual, and pointwise ones."""
    width = 64
    layers: list[nn.Module] = []
    for _ in range(4):
        depthwise = Residual(nn.Conv2d(width, width, 7, groups=width, padding=3), nn.GELU(), nn.BatchNorm2d(width))
        layers += [depthwise, nn.Conv2d(width, width, 1), nn.GELU(), nn.BatchNorm2d(width)]
    return nn.Sequential(nn.Conv2d(3, width, 4, 4), nn.GELU(), nn.BatchNorm2d(width), *layers, head(width))


class MixerLayer(nn.Module):
    """MLP-Mixer's: one perceptron over places, one over channels."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.over_places = nn.Sequential(nn.Linear(places, 2 * places), nn.GELU(), nn.Linear(2 * places, places))
        self.over_channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.over_places(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_channels(self.norms[1](x))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 128, 8, 8)
        self.layers = nn.Sequential(*(MixerLayer((SIDE // 8) ** 2, 128) for _ in range(4)))
        self.top = nn.Sequential(nn.LayerNorm(128), nn.Linear(128, LABELS))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.top(self.layers(x)).mean(1)


class PatchTransformer(nn.Module):
    """A vision transformer of torch's own encoder layers."""

    def __init__(self) -> None:
        super().__init__()
        width = 128
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, (SIDE // 8) ** 2 + 1, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.top = nn.Linear(width, LABELS)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.top(self.layers(x)[:, 0])


def seen(build: Callable[[], nn.Module], batch: int = BATCH) -> Callable[[], Case]:
    """A network applied to a batch of images."""
    return lambda: Case(build(), (torch.rand(batch, 3, SIDE, SIDE),))


CASES: dict[str, Callable[[], Case]] = {
    "mobilenet_v2": seen(lambda: mobile(nn.ReLU6, gated=False)),
    "mobilenet_v3": seen(lambda: mobile(nn.Hardswish, gated=True)),
    "efficientnet": seen(lambda: mobile(nn.SiLU, gated=True)),
    "resnet50_narrow": seen(resnet50),
    "resnext": seen(resnext),
    "vgg": seen(vgg),
    "squeezenet": seen(squeezenet),
    "densenet": seen(densenet),
    "shufflenet": seen(shufflenet),
    "googlenet": seen(googlenet),
    "convmixer": seen(convmixer),
    "mlp_mixer": seen(Mixer),
    "patch_transformer": seen(PatchTransformer),
}
