"""A variational autoencoder on flattened 28x28 images; the noise is drawn inside forward."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .example import Example, seeded


class VAE(nn.Module):
    def __init__(self, inputs: int = 784, hidden: int = 400, latent: int = 20) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.fc4 = nn.Linear(latent, hidden)
        self.fc5 = nn.Linear(hidden, inputs)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = F.relu(self.fc1(x))
        return self.mean(h), self.log_variance(h)

    def reparameterize(self, mean: Tensor, log_variance: Tensor) -> Tensor:
        std = torch.exp(log_variance / 2)
        return mean + torch.randn_like(std) * std

    def decode(self, z: Tensor) -> Tensor:
        return torch.sigmoid(self.fc5(F.relu(self.fc4(z))))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(x)
        return self.decode(self.reparameterize(mean, log_variance)), mean, log_variance


def evidence_bound(output: object) -> Tensor:
    assert isinstance(output, tuple)
    image, mean, log_variance = output
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return image.pow(2).mean() + divergence / image.numel()


def example(batch: int = 128) -> Example:
    images = torch.rand(batch, 784, generator=seeded())
    return Example("VAE", VAE(), (images,), evidence_bound)
