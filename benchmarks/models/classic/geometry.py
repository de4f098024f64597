"""Networks over points, graphs and fields."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.case import Case

NODES, EDGES, WIDTH = 400, 2400, 64


class PointNet(nn.Module):
    """A perceptron for each point, and the largest value over all of them."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 64, 64, 128, 256)
        self.each = nn.Sequential(*(
            nn.Sequential(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())
            for a, b in itertools.pairwise(widths)
        ))  # fmt: skip
        self.top = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, points: Tensor) -> Tensor:
        return self.top(self.each(points).amax(2))


class GraphConvolutions(nn.Module):
    """Messages along edges, summed at their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        degrees = torch.zeros(nodes.shape[0]).index_add(0, edges[1], torch.ones(edges.shape[1])).clamp(min=1)
        weights = (degrees[edges[0]] * degrees[edges[1]]).rsqrt()[:, None]
        for layer in self.layers:
            messages = layer(nodes)[edges[0]] * weights
            nodes = F.relu(torch.zeros_like(nodes).index_add(0, edges[1], messages))
        return nodes


class GraphAttention(nn.Module):
    """Attention over neighbours, the graph as a matrix of ones."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, WIDTH, bias=False)
        self.left, self.right = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 1)

    def forward(self, nodes: Tensor, joined: Tensor) -> Tensor:
        nodes = self.project(nodes)
        scores = F.leaky_relu(self.left(nodes) + self.right(nodes).T, 0.2)
        return F.elu(F.dropout(scores.masked_fill(~joined, -1e9).softmax(-1), 0.1, self.training) @ nodes)


class RadianceField(nn.Module):
    """NeRF: a perceptron over sines of places, and colours summed along rays."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(63, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))

    def forward(self, places: Tensor) -> Tensor:
        angles = places[..., None, :] * 2.0 ** torch.arange(10)[:, None]
        features = torch.cat([places, torch.sin(angles).flatten(-2), torch.cos(angles).flatten(-2)], -1)
        found = self.body(features)
        opacity = 1 - torch.exp(-F.relu(found[..., 3]) * 0.1)
        passed = torch.cumprod(torch.cat([torch.ones_like(opacity[:, :1]), 1 - opacity[:, :-1] + 1e-10], 1), 1)
        return ((opacity * passed)[..., None] * torch.sigmoid(found[..., :3])).sum(1)


class FourierOperator(nn.Module):
    """A layer of a Fourier neural operator: products of the lowest frequencies beside a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 32, 12, 2) * 0.05)
        self.local = nn.Conv1d(32, 32, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = torch.fft.rfft(x)[..., :12]
        mixed = torch.einsum("bim,iom->bom", found, torch.view_as_complex(self.weight))
        return F.gelu(torch.fft.irfft(F.pad(mixed, (0, x.shape[-1] // 2 + 1 - 12)), n=x.shape[-1]) + self.local(x))


def joined() -> Tensor:
    return (torch.rand(NODES, NODES) < 0.05) | torch.eye(NODES, dtype=torch.bool)


CASES: dict[str, Callable[[], Case]] = {
    "pointnet": lambda: Case(PointNet(), (torch.rand(4, 3, 512),)),
    "graph_convolutions": lambda: Case(
        GraphConvolutions(), (torch.rand(NODES, WIDTH), torch.randint(NODES, (2, EDGES)))
    ),
    "graph_attention": lambda: Case(GraphAttention(), (torch.rand(NODES, WIDTH), joined())),
    "radiance_field": lambda: Case(RadianceField(), (torch.rand(64, 32, 3),)),
    "fourier_operator": lambda: Case(FourierOperator(), (torch.rand(8, 32, 256),)),
}
