"""Networks that make images and samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.case import Case

BATCH, SIDE = 4, 32


def generator() -> nn.Module:
    """DCGAN's generator."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(64, 128, 4, 1, 0, bias=False), nn.BatchNorm2d(128), nn.ReLU(True)]
    for inputs, outputs in ((128, 64), (64, 32)):
        layers += [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator() -> nn.Module:
    """DCGAN's discriminator."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 4, 2, 1), nn.LeakyReLU(0.2, True)]
    for inputs, outputs in ((32, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2, True)]
    return nn.Sequential(*layers, nn.Conv2d(128, 1, 4), nn.Flatten(), nn.Sigmoid())


class Styled(nn.Module):
    """Instance norm and reflected borders, as in CycleGAN and style transfer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width, affine=True), nn.ReLU(),
            nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width, affine=True),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def style_transfer() -> nn.Module:
    """Down, residual blocks, up by the nearest pixel."""
    return nn.Sequential(
        nn.ReflectionPad2d(3), nn.Conv2d(3, 32, 7), nn.InstanceNorm2d(32, affine=True), nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, 1), nn.InstanceNorm2d(64, affine=True), nn.ReLU(), Styled(64), Styled(64),
        nn.Upsample(scale_factor=2), nn.Conv2d(64, 32, 3, 1, 1), nn.InstanceNorm2d(32, affine=True), nn.ReLU(),
        nn.ReflectionPad2d(3), nn.Conv2d(32, 3, 7),
    )  # fmt: skip


def super_resolution() -> nn.Module:
    """ESPCN: channels become pixels at the end."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 5, 1, 2), nn.Tanh(), nn.Conv2d(64, 32, 3, 1, 1), nn.Tanh(), nn.Conv2d(32, 9, 3, 1, 1),
        nn.PixelShuffle(3),
    )  # fmt: skip


class Twice(nn.Sequential):
    """Two convolutions with group norm and SiLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, 1, 1), nn.GroupNorm(8, outputs), nn.SiLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1), nn.GroupNorm(8, outputs), nn.SiLU(),
        )  # fmt: skip


class UNet(nn.Module):
    """Down, up, with skip connections."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([Twice(3, 32), Twice(32, 64), Twice(64, 128)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2)])
        self.merge = nn.ModuleList([Twice(128, 64), Twice(64, 32)])
        self.top = nn.Conv2d(32, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for k, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if k else x)
            found.append(x)
        for up, merge, skip in zip(self.up, self.merge, (found[1], found[0]), strict=True):
            x = merge(torch.cat([up(x), skip], 1))
        return self.top(x)


def steps_embedded(steps: Tensor, width: int) -> Tensor:
    """Sines and cosines of diffusion steps."""
    rates = torch.exp(torch.arange(width // 2, device=steps.device) * (-math.log(10000.0) / (width // 2)))
    angles = steps[:, None].float() * rates
    return torch.cat([torch.cos(angles), torch.sin(angles)], -1)


class Denoiser(nn.Module):
    """A block of a diffusion network: convolutions scaled by the step, and attention over places."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 64, 3, 1, 1), nn.Conv2d(64, 3, 3, 1, 1)
        self.step = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 128))
        self.norms = nn.ModuleList(nn.GroupNorm(8, 64) for _ in range(3))
        self.convolutions = nn.ModuleList(nn.Conv2d(64, 64, 3, 1, 1) for _ in range(2))
        self.qkv, self.project = nn.Conv2d(64, 192, 1), nn.Conv2d(64, 64, 1)

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        x = self.first(x)
        scale, shift = self.step(steps_embedded(steps, 64))[..., None, None].chunk(2, 1)
        y = self.convolutions[0](F.silu(self.norms[0](x)))
        x = x + self.convolutions[1](F.silu(self.norms[1](y) * (1 + scale) + shift))
        query, key, value = self.qkv(self.norms[2](x)).flatten(2).transpose(1, 2).chunk(3, -1)
        attended = F.scaled_dot_product_attention(query[:, None], key[:, None], value[:, None])[:, 0]
        return self.last(x + self.project(attended.transpose(1, 2).view_as(x)))


class DiffusionTransformer(nn.Module):
    """Two blocks of DiT: norms without weights of their own, scaled and shifted by the step."""

    def __init__(self) -> None:
        super().__init__()
        width = 128
        self.patches, self.top = nn.Conv2d(3, width, 4, 4), nn.Linear(width, 48)
        self.step = nn.Sequential(nn.Linear(64, width), nn.SiLU())
        self.scales = nn.ModuleList(nn.Linear(width, 6 * width) for _ in range(2))
        self.attention = nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(2))
        self.perceptrons = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 512), nn.GELU("tanh"), nn.Linear(512, width)) for _ in range(2)
        )

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        condition = self.step(steps_embedded(steps, 64))
        for scales, attention, perceptron in zip(self.scales, self.attention, self.perceptrons, strict=True):
            parts = scales(condition)[:, None].chunk(6, -1)
            y = F.layer_norm(x, x.shape[-1:]) * (1 + parts[0]) + parts[1]
            x = x + parts[2] * attention(y, y, y, need_weights=False)[0]
            y = F.layer_norm(x, x.shape[-1:]) * (1 + parts[3]) + parts[4]
            x = x + parts[5] * perceptron(y)
        return self.top(F.layer_norm(x, x.shape[-1:]))


class Coupling(nn.Module):
    """RealNVP's layer, with the logarithm of its determinant."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width // 2, 64), nn.ReLU(), nn.Linear(64, width))

    def forward(self, x: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        left, right = x.chunk(2, 1)
        scale, shift = self.net(left).chunk(2, 1)
        scale = torch.tanh(scale)
        return torch.cat([right * scale.exp() + shift, left], 1), total + scale.sum(1)


class Flow(nn.Module):
    """Coupling layers, and the likelihood of their output."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Coupling(32) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        total = x.new_zeros(x.shape[0])
        for layer in self.layers:
            x, total = layer(x, total)
        return total - 0.5 * (x**2).sum(1)


def images(channels: int = 3, side: int = SIDE) -> Tensor:
    return torch.rand(BATCH, channels, side, side)


CASES: dict[str, Callable[[], Case]] = {
    "gan_generator": lambda: Case(generator(), (torch.randn(BATCH, 64, 1, 1),)),
    "gan_discriminator": lambda: Case(discriminator(), (images(),)),
    "style_transfer": lambda: Case(style_transfer(), (images(),)),
    "super_resolution": lambda: Case(super_resolution(), (images(1),)),
    "unet": lambda: Case(UNet(), (images(),)),
    "denoiser": lambda: Case(Denoiser(), (images(side=16), torch.randint(1000, (BATCH,)))),
    "diffusion_transformer": lambda: Case(DiffusionTransformer(), (images(), torch.randint(1000, (BATCH,)))),
    "coupling_flow": lambda: Case(Flow(), (torch.randn(256, 32),)),
}
