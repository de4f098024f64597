"""All examples by name, in the order in which the demo shows them."""

from __future__ import annotations

from collections.abc import Callable

from . import (
    attention,
    click_through,
    convnet,
    feedforward,
    gpt,
    lenet,
    linear_regression,
    lstm,
    resnet,
    vae,
)
from .example import Example

EXAMPLES: dict[str, Callable[[], Example]] = {
    "LeNet": lenet.example,
    "ConvNet": convnet.example,
    "ResNet": resnet.example,
    "FeedForward": feedforward.example,
    "LinearRegression": linear_regression.example,
    "LSTM": lstm.example,
    "BiLSTM": lstm.bidirectional_example,
    "ClickThrough": click_through.example,
    "MultiHeadAttention": attention.example,
    "GPT": gpt.example,
    "VAE": vae.example,
}
