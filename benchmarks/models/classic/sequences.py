"""Networks for text, sound and other sequences."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.models.case import Case

VOCABULARY, BATCH, LENGTH, WIDTH = 2000, 4, 64, 128


class RecurrentLanguageModel(nn.Module):
    """Embedding, LSTM or GRU, and a score for each word."""

    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.cells = cell(WIDTH, WIDTH, num_layers=2, batch_first=True, dropout=0.1)
        self.top = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        return F.log_softmax(self.top(self.cells(self.words(ids))[0]), -1)


class TextConvolutions(nn.Module):
    """Kim's classifier: convolutions of several widths, the largest value of each."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.convolutions = nn.ModuleList(nn.Conv1d(WIDTH, 64, size) for size in (3, 4, 5))
        self.top = nn.Linear(192, 2)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids).transpose(1, 2)
        return self.top(F.dropout(torch.cat([F.relu(c(x)).amax(2) for c in self.convolutions], 1), 0.5, self.training))


class Positions(nn.Module):
    """Sines and cosines, added to a sequence."""

    def __init__(self) -> None:
        super().__init__()
        place = torch.arange(LENGTH)[:, None]
        rate = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10000.0) / WIDTH))
        table = torch.zeros(LENGTH, WIDTH)
        table[:, 0::2], table[:, 1::2] = torch.sin(place * rate), torch.cos(place * rate)
        self.register_buffer("table", table)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[: x.shape[1]]


class Translator(nn.Module):
    """The transformer of "Attention is all you need", by torch's own modules."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = Positions()
        self.body = nn.Transformer(WIDTH, 4, 2, 2, 4 * WIDTH, batch_first=True)
        self.top = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        source, target = (self.positions(self.words(x) * math.sqrt(WIDTH)) for x in (source, target))
        return self.top(self.body(source, target, tgt_mask=mask, tgt_is_causal=True))


class TemporalBlock(nn.Module):
    """Two dilated causal convolutions, as in temporal convolution networks."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.pad = 2 * dilation
        self.first = nn.utils.parametrizations.weight_norm(nn.Conv1d(width, width, 3, dilation=dilation))
        self.second = nn.utils.parametrizations.weight_norm(nn.Conv1d(width, width, 3, dilation=dilation))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.first(F.pad(x, (self.pad, 0))))
        return F.relu(self.second(F.pad(out, (self.pad, 0))) + x)


class WaveNet(nn.Module):
    """Gated dilated convolutions; a residual and a skip from each layer."""

    def __init__(self) -> None:
        super().__init__()
        width = 32
        self.first = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**k) for k in range(6))
        self.out = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(6))
        self.top = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, 64, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        skips = torch.zeros_like(x)
        for k, (gate, out) in enumerate(zip(self.gates, self.out, strict=True)):
            left, right = gate(F.pad(x, (2**k, 0))).chunk(2, 1)
            residual, skip = out(torch.tanh(left) * torch.sigmoid(right)).chunk(2, 1)
            x, skips = x + residual, skips + skip
        return self.top(skips)


class Conformer(nn.Module):
    """A block of speech recognition: half a perceptron, attention, a convolution module, half a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = (
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 512), nn.SiLU(), nn.Linear(512, WIDTH))
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.convolution = nn.Sequential(
            nn.Conv1d(WIDTH, 2 * WIDTH, 1), nn.GLU(1), nn.Conv1d(WIDTH, WIDTH, 15, padding=7, groups=WIDTH),
            nn.BatchNorm1d(WIDTH), nn.SiLU(), nn.Conv1d(WIDTH, WIDTH, 1),
        )  # fmt: skip
        self.final = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.first(x)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.convolution(x.transpose(1, 2)).transpose(1, 2)
        return self.final(x + 0.5 * self.last(x))


class StateSpace(nn.Module):
    """Mamba's selective scan, its loop over time written out."""

    def __init__(self) -> None:
        super().__init__()
        inner, states = 128, 8
        self.into, self.out = nn.Linear(64, 2 * inner), nn.Linear(inner, 64)
        self.convolution = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.select = nn.Linear(inner, 2 * states + 1)
        self.rates = nn.Parameter(torch.log(torch.arange(1.0, states + 1)).repeat(inner, 1))

    def forward(self, x: Tensor) -> Tensor:
        x, gate = self.into(x).chunk(2, -1)
        x = F.silu(self.convolution(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        write, read, step = torch.split(self.select(x), [8, 8, 1], -1)
        step = F.softplus(step)[..., None]
        decay = torch.exp(-step * torch.exp(self.rates))
        added = step * write[:, :, None, :] * x[..., None]
        state = torch.zeros_like(added[:, 0])
        found = []
        for k in range(x.shape[1]):
            state = decay[:, k] * state + added[:, k]
            found.append((state * read[:, k, None]).sum(-1))
        return self.out(torch.stack(found, 1) * F.silu(gate))


def ids() -> Tensor:
    return torch.randint(VOCABULARY, (BATCH, LENGTH))


CASES: dict[str, Callable[[], Case]] = {
    "lstm_language_model": lambda: Case(RecurrentLanguageModel(nn.LSTM), (ids(),)),
    "gru_language_model": lambda: Case(RecurrentLanguageModel(nn.GRU), (ids(),)),
    "text_convolutions": lambda: Case(TextConvolutions(), (ids(),)),
    "translator": lambda: Case(Translator(), (ids(), ids())),
    "temporal_convolutions": lambda: Case(
        nn.Sequential(*(TemporalBlock(64, 2**k) for k in range(4))), (torch.rand(BATCH, 64, 256),)
    ),
    "wavenet": lambda: Case(WaveNet(), (torch.rand(BATCH, 1, 1024),)),
    "conformer": lambda: Case(nn.Sequential(Conformer(), Conformer()), (torch.rand(BATCH, 128, WIDTH),)),
    "state_space": lambda: Case(StateSpace(), (torch.rand(BATCH, 32, 64),)),
}
