"""LSTM classifiers over image rows: one direction, and both."""

import torch
from torch import Tensor, nn

from .example import Example, seeded, sum_of_squares


class LSTMClassifier(nn.Module):
    def __init__(self, inputs: int = 28, hidden: int = 128, layers: int = 2, classes: int = 10) -> None:
        super().__init__()
        self.hidden = hidden
        self.layers = layers
        self.lstm = nn.LSTM(inputs, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        h0 = torch.zeros(self.layers, x.size(0), self.hidden, device=x.device)
        c0 = torch.zeros(self.layers, x.size(0), self.hidden, device=x.device)
        out, _ = self.lstm(x, (h0, c0))
        return self.fc(out[:, -1, :])


class BiLSTMClassifier(nn.Module):
    def __init__(self, inputs: int = 28, hidden: int = 64, layers: int = 2, classes: int = 10) -> None:
        super().__init__()
        self.hidden = hidden
        self.layers = layers
        self.lstm = nn.LSTM(inputs, hidden, layers, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(hidden * 2, classes)

    def forward(self, x: Tensor) -> Tensor:
        h0 = torch.zeros(self.layers * 2, x.size(0), self.hidden, device=x.device)
        c0 = torch.zeros(self.layers * 2, x.size(0), self.hidden, device=x.device)
        out, _ = self.lstm(x, (h0, c0))
        return self.fc(out[:, -1, :])


def example(batch: int = 32) -> Example:
    rows = torch.randn(batch, 28, 28, generator=seeded())
    return Example("LSTM", LSTMClassifier(), (rows,), sum_of_squares)


def bidirectional_example(batch: int = 32) -> Example:
    rows = torch.randn(batch, 28, 28, generator=seeded())
    return Example("BiLSTM", BiLSTMClassifier(), (rows,), sum_of_squares)
