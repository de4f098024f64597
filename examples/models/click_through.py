"""Click-through rate: embeddings of categorical fields and dense features into a small net."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .example import Example, seeded


class ClickThrough(nn.Module):
    def __init__(self, fields: int = 8, categories: int = 1000, width: int = 16, dense: int = 13) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(categories, width) for _ in range(fields))
        self.bottom = nn.Sequential(nn.Linear(dense, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        self.top = nn.Sequential(
            nn.Linear(width * (fields + 1), 128),
            nn.ReLU(),
            nn.Dropout(0.0),
            nn.Linear(128, 64),
            nn.ReLU(),
            nn.Linear(64, 1),
        )

    def forward(self, categories: Tensor, dense: Tensor) -> Tensor:
        parts = [embed(categories[:, i]) for i, embed in enumerate(self.embeddings)]
        parts.append(self.bottom(dense))
        features = torch.cat(parts, dim=1)
        return torch.sigmoid(self.top(features)).squeeze(1)


def half_clicks(output: object) -> Tensor:
    assert isinstance(output, Tensor)
    labels = (torch.arange(output.numel(), device=output.device) % 2).to(output.dtype)
    return F.binary_cross_entropy(output, labels)


def example(batch: int = 256) -> Example:
    generator = seeded()
    categories = torch.randint(0, 1000, (batch, 8), generator=generator)
    dense = torch.randn(batch, 13, generator=generator)
    return Example("ClickThrough", ClickThrough(), (categories, dense), half_clicks)
