"""nn.Modules: parameters as inputs, containers, hooks, buffers that change, what torch's own modules do in Python."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from armature.frame.guards.kinds import TensorGuard, TypeGuard
from tests.support.tracing import check, trace

X = torch.linspace(-1.0, 1.0, 24).reshape(2, 3, 4)
IMAGE = torch.linspace(-1.0, 1.0, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)


class Layers(nn.Module):
    """Most things that a module may hold."""

    scale = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.named = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
        self.free = nn.Parameter(torch.ones(4))
        self.weights = nn.ParameterList([torch.full((4,), 2.0)])
        self.register_buffer("offset", torch.arange(4.0))
        self.register_buffer("nothing", None)
        self.config = {"depth": 2, "names": ["a", "b"]}
        self.tied = self.linear

    def forward(self, x: Tensor, flag: bool = True) -> tuple[Tensor, dict[str, Any]]:
        x = self.linear(x) * self.free + self.offset
        for i, block in enumerate(self.blocks):
            x = block(x) if i < self.config["depth"] else x + i
        for name in self.config["names"]:
            x = self.named[name](x)
        for name, layer in self.named.items():
            x = layer(x) + len(name)
        if self.nothing is None and self.training:
            x = x * self.scale
        x = self.tied(x) + self.blocks[-1].bias + self.weights[0]
        return x, {"count": len(self.blocks), "mean": x.mean(), "same": self.tied is self.linear}


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))

    def forward(self, x: Tensor) -> tuple[Tensor, list[str], int]:
        norm = sum(p.pow(2).sum() for p in self.parameters())
        names = [name for name, _ in self.named_parameters()]
        return self.net(x) + norm, names, len(list(self.modules()))


class Counter(nn.Module):
    """Changes itself in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("last", torch.zeros(2, 3, 4))
        self.log = ["start"]
        self.best = 0.5

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        self.last = x * 2
        self.log.append("step")
        self.best = self.best
        return self.last + self.seen


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]


class Custom(nn.Module):
    """Overrides what modules usually inherit."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def __call__(self, x: Tensor) -> Tensor:
        return self.forward(x) + 1

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) @ self.weight


MODULES: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
    "layers": (Layers(), (X,)),
    "named": (Named(), (X,)),
    "attention": (Attention(), (X,)),
    "custom": (Custom(), (X,)),
    "conv": (nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)), (IMAGE,)),
    "conv_transpose": (nn.ConvTranspose2d(3, 2, 3, stride=2), (IMAGE,)),
    "circular": (nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), (IMAGE,)),
    "pools": (nn.Sequential(nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Unflatten(1, (3, 1))), (IMAGE,)),
    "norms": (nn.Sequential(nn.GroupNorm(3, 3), nn.InstanceNorm2d(3, affine=True), nn.LocalResponseNorm(2)), (IMAGE,)),
    "layer_norm": (nn.Sequential(nn.LayerNorm(4), nn.RMSNorm(4)), (X,)),
    "activations": (nn.Sequential(nn.GELU(), nn.SiLU(), nn.LeakyReLU(), nn.ELU(), nn.Softmax(-1), nn.Sigmoid(), nn.PReLU()), (X,)),
    "dropout": (nn.Sequential(nn.Dropout(0.5), nn.Dropout1d(0.2)), (X,)),
    "embedding": (nn.Sequential(nn.Embedding(10, 4, padding_idx=0), nn.Linear(4, 2)), (torch.tensor([[1, 2], [0, 3]]),)),
    "embedding_bag": (nn.EmbeddingBag(10, 4, mode="mean"), (torch.tensor([[1, 2], [0, 3]]),)),
    "lstm": (nn.LSTM(4, 5, 2, batch_first=True), (X,)),
    "bilstm": (nn.LSTM(4, 5, bidirectional=True), (X,)),
    "gru": (nn.GRU(4, 5, batch_first=True), (X,)),
    "rnn": (nn.RNN(4, 5), (X,)),
    "lstm_cell": (nn.LSTMCell(4, 5), (X[0],)),
    "multihead": (nn.MultiheadAttention(4, 2, batch_first=True), (X, X, X)),
    "encoder": (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), (X,)),
    "decoder": (nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0, batch_first=True), (X, X)),
    "bilinear": (nn.Bilinear(4, 4, 2), (X, X)),
    "upsample": (nn.Upsample(scale_factor=2, mode="nearest"), (IMAGE,)),
    "shuffle": (nn.Sequential(nn.Conv2d(3, 8, 1), nn.PixelShuffle(2), nn.ZeroPad2d(1)), (IMAGE,)),
}  # fmt: skip


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", MODULES)
def test_forward_like_eager(name: str, training: bool) -> None:
    module, args = MODULES[name]
    check(type(module).forward, module.train(training), *args)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, y: F.cross_entropy(x, y.argmax(-1)),
        lambda x, y: F.cross_entropy(x, y.softmax(-1), label_smoothing=0.1),
        F.mse_loss,
        F.l1_loss,
        F.smooth_l1_loss,
        lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
        F.binary_cross_entropy_with_logits,
        lambda x, y: F.nll_loss(F.log_softmax(x, -1), y.argmax(-1)),
        lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
        lambda x, y: F.cosine_embedding_loss(x, y, torch.ones(3)),
        lambda x, y: nn.CrossEntropyLoss(reduction="sum")(x, y.argmax(-1)) if False else F.huber_loss(x, y),
    ],
)
def test_losses(loss: Any) -> None:
    def run(x: Tensor, y: Tensor) -> Tensor:
        return loss(x, y)

    check(run, X[0], X[1].flip(0))


def test_modules_as_losses_and_arguments() -> None:
    def run(criterion: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return criterion(x, y)

    check(run, nn.CrossEntropyLoss(), X[0], torch.tensor([0, 1, 3]))
    check(run, nn.MSELoss(), X[0], X[1])


def test_a_parameter_is_one_input_and_one_guard() -> None:
    traced = check(Layers.forward, Layers(), X)
    sources = [given.source.expr for given in traced.frame.inputs]
    assert len(sources) == len(set(sources))
    assert sum("linear" in source and "weight" in source for source in sources) == 1
    tensors = [guard.source.expr for guard in traced.guards(TensorGuard)]
    assert len(tensors) == len(set(tensors))
    assert sum(given.is_parameter for given in traced.frame.inputs) == len(sources) - 1


def test_modules_of_torch_cost_few_guards() -> None:
    module = nn.Sequential(*[nn.Linear(4, 4) for _ in range(20)])
    traced = trace(nn.Sequential.forward, module, X)
    per_layer = (len(traced.frame.guards) - len(traced.guards(TensorGuard))) / 20
    assert per_layer <= 8
    assert {guard.type_ for guard in traced.guards(TypeGuard)} == {nn.Sequential, nn.Linear}


def test_weight_tying_is_one_input() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embed(ids))

    traced = check(Tied.forward, Tied(), torch.tensor([0, 4]))
    assert len(traced.frame.inputs) == 2


def test_forward_hooks_run() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    module[0].register_forward_hook(lambda mod, args, out: out * 2)
    module[1].register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
    check(nn.Sequential.forward, module, X)


def test_batch_norm_counts() -> None:
    module = nn.BatchNorm1d(3).train()
    check(nn.BatchNorm1d.forward, module, X)
    assert int(module.num_batches_tracked) == 2


def test_module_that_changes_itself() -> None:
    traced = check(Counter.forward, Counter(), X)
    assert traced.frame.graph is not None


def test_functions_of_modules() -> None:
    net, extra = nn.Linear(4, 4), torch.ones(4)

    def step(x: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(net(x) + extra, target)

    check(step, X, X.flip(0))
