"""Multi-head attention written out, with an optional mask and dropout."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .example import Example, seeded, sum_of_squares


class MultiHeadAttention(nn.Module):
    def __init__(self, width: int = 256, heads: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        assert width % heads == 0, f"{width} does not divide into {heads} heads"
        self.heads = heads
        self.head_width = width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def split(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        return x.view(batch, length, self.heads, self.head_width).transpose(1, 2)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.split(self.query(query)), self.split(self.key(key)), self.split(self.value(value))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.head_width)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = self.dropout(F.softmax(scores, dim=-1))
        mixed = torch.matmul(weights, v).transpose(1, 2).contiguous()
        batch, length = mixed.shape[:2]
        return self.out(mixed.view(batch, length, -1))


def example(batch: int = 8) -> Example:
    generator = seeded()
    length = 128
    query, key, value = (torch.randn(batch, length, 256, generator=generator) for _ in range(3))
    mask = torch.tril(torch.ones(length, length))[None, None]
    return Example("MultiHeadAttention", MultiHeadAttention(), (query, key, value, mask), sum_of_squares)
