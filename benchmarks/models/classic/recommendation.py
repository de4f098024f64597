"""Networks for tables, recommendation and control."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn import functional as F

from benchmarks.models.case import Case

BATCH, FIELDS, ROWS, WIDTH = 256, 12, 1000, 16


def perceptron(widths: Sequence[int], activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers with an activation between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


class DLRM(nn.Module):
    """Facebook's: bags of embeddings and dense features meet in dot products of all pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode="sum") for _ in range(FIELDS))
        self.bottom = perceptron((13, 64, WIDTH))
        self.top = perceptron((WIDTH + (FIELDS + 1) * FIELDS // 2, 128, 64, 1))
        pairs = torch.tril_indices(FIELDS + 1, FIELDS + 1, -1)
        self.register_buffer("pairs", pairs)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        dense = self.bottom(dense)
        parts = torch.stack([dense, *(bag(sparse[:, k]) for k, bag in enumerate(self.bags))], 1)
        products = parts @ parts.transpose(1, 2)
        return torch.sigmoid(self.top(torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], 1)))


class DeepFM(nn.Module):
    """A factorisation machine and a perceptron over the same embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Embedding(FIELDS * ROWS, 1)
        self.factors = nn.Embedding(FIELDS * ROWS, WIDTH)
        self.deep = perceptron((FIELDS * WIDTH, 64, 32, 1))
        self.register_buffer("offsets", torch.arange(FIELDS) * ROWS)

    def forward(self, ids: Tensor) -> Tensor:
        ids = ids + self.offsets
        factors = self.factors(ids)
        crossed = 0.5 * (factors.sum(1) ** 2 - (factors**2).sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.linear(ids).sum(1) + crossed + self.deep(factors.flatten(1)))


class CollaborativeFiltering(nn.Module):
    """Neural collaborative filtering: a product of embeddings beside a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(ROWS, 2 * WIDTH), nn.Embedding(ROWS, 2 * WIDTH)
        self.deep = perceptron((2 * WIDTH, 32, 16))
        self.top = nn.Linear(WIDTH + 16, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        users, items = self.users(user).chunk(2, 1), self.items(item).chunk(2, 1)
        deep = self.deep(torch.cat([users[1], items[1]], 1))
        return torch.sigmoid(self.top(torch.cat([users[0] * items[0], deep], 1)))


class TabularTransformer(nn.Module):
    """A token for each column, attention over them, a score from the first."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.randn(FIELDS, 32) * 0.1) for _ in range(2))
        layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.top = nn.Sequential(nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.top(self.layers(x[..., None] * self.weight + self.bias)[:, 0])


class SoftActor(nn.Module):
    """The policy of soft actor-critic: a squashed Gaussian with the likelihood of its mean."""

    def __init__(self) -> None:
        super().__init__()
        self.body = perceptron((24, 256, 256))
        self.mean, self.scale = nn.Linear(256, 6), nn.Linear(256, 6)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden = F.relu(self.body(state))
        mean, scale = self.mean(hidden), self.scale(hidden).clamp(-5, 2).exp()
        likelihood = Normal(mean, scale, validate_args=False).log_prob(mean) - torch.log1p(
            -(torch.tanh(mean) ** 2) + 1e-6
        )
        return torch.tanh(mean) * scale, likelihood.sum(-1)


def numbers(*sizes: int) -> Tensor:
    return torch.rand(*sizes)


CASES: dict[str, Callable[[], Case]] = {
    "dlrm": lambda: Case(DLRM(), (numbers(BATCH, 13), torch.randint(ROWS, (BATCH, FIELDS, 4)))),
    "deepfm": lambda: Case(DeepFM(), (torch.randint(ROWS, (BATCH, FIELDS)),)),
    "collaborative_filtering": lambda: Case(
        CollaborativeFiltering(), (torch.randint(ROWS, (BATCH,)), torch.randint(ROWS, (BATCH,)))
    ),
    "tabular_transformer": lambda: Case(TabularTransformer(), (numbers(BATCH, FIELDS),)),
    "soft_actor": lambda: Case(SoftActor(), (numbers(BATCH, 24),)),
    "wide_perceptron": lambda: Case(perceptron((64, 512, 512, 512, 10), nn.SELU), (numbers(BATCH, 64),)),
}
