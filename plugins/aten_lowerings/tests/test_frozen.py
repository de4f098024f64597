"""Convolutions with frozen weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import armature
from armature.pipeline.session import session
from armature.plugin_api import onednn

aten = torch.ops.aten
NORM = aten._native_batch_norm_legit_no_training.default


def targets() -> list[object]:
    [graph] = session().compilations[-1].graphs
    return [node.target for node in graph.aten.module.graph.nodes if node.op == "call_function"]


def settled(module: nn.Module) -> nn.Module:
    """In inference, with running statistics as after training."""
    torch.manual_seed(0)
    for name, buffer in module.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.uniform_(0.5, 2)
    return module.eval()


class Depthwise(nn.Module):
    """One convolution, read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm = nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.BatchNorm2d(8, affine=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x)
        return self.norm(y) * y.mean((2, 3), keepdim=True)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "relu": (lambda: nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU()), (2, 8, 24, 24), 0),
    "relu6": (lambda: nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU6()), (2, 8, 24, 24), 0),
    "hardtanh": (lambda: nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), nn.Hardtanh()), (2, 8, 24, 24), 0),
    "silu": (lambda: nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16), nn.SiLU()), (2, 8, 24, 24), 0),
    "product": (lambda: nn.Sequential(nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16), nn.ReLU()), (2, 8, 24, 24), 0),
    "groups": (lambda: nn.Sequential(nn.Conv2d(8, 16, 3, groups=4), nn.BatchNorm2d(16)), (2, 8, 24, 24), 0),
    "1d": (lambda: nn.Sequential(nn.Conv1d(8, 16, 3), nn.BatchNorm1d(16, affine=False)), (2, 8, 24), 0),
    "3d": (lambda: nn.Sequential(nn.Conv3d(4, 4, 3), nn.BatchNorm3d(4)), (2, 4, 8, 8, 8), 0),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(8, 16, 3), nn.BatchNorm2d(16)), (2, 8, 24, 24), 0),
    "transposed, no bias": (
        lambda: nn.Sequential(nn.ConvTranspose2d(8, 4, 3, 2, 1, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU()),
        (2, 8, 12, 12),
        0,
    ),
    "transposed, groups": (
        lambda: nn.Sequential(nn.ConvTranspose2d(8, 16, 3, groups=4), nn.BatchNorm2d(16)),
        (2, 8, 24, 24),
        1,
    ),
    "transposed 1d": (lambda: nn.Sequential(nn.ConvTranspose1d(8, 16, 3), nn.BatchNorm1d(16)), (2, 8, 24), 0),
    "linear": (lambda: nn.Sequential(nn.Linear(40, 24), nn.BatchNorm1d(24), nn.ReLU()), (64, 40), 0),
    "linear, no bias": (lambda: nn.Sequential(nn.Linear(40, 24, bias=False), nn.BatchNorm1d(24)), (64, 40), 0),
    "linear of sequences": (
        lambda: nn.Sequential(nn.Linear(40, 24), nn.BatchNorm1d(30)),  # the channels are the steps
        (2, 30, 40),
        1,
    ),
    "read twice": (Depthwise, (2, 8, 24, 24), 1),
}


@pytest.mark.parametrize(("build", "shape", "norms"), MODELS.values(), ids=MODELS)
@torch.no_grad()
def test_batch_norms_become_part_of_convolutions(
    build: Callable[[], nn.Module], shape: tuple[int, ...], norms: int
) -> None:
    armature.reset()
    model, x = settled(build()), torch.randn(shape)
    if len(shape) == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    fn = armature.compile(model, fullgraph=True, options={"frozen": True})
    for _ in range(2):
        found, expected = fn(x), model(x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert found.stride() == expected.stride()
        for parameter in model.parameters():
            parameter.mul_(1.5)
    assert targets().count(NORM) == norms
    assert len(session().compilations) == 1


@torch.no_grad()
def test_half_precision_is_rounded_once() -> None:
    armature.reset()
    model = settled(nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16))).bfloat16()
    x = torch.randn(2, 8, 12, 12, dtype=torch.bfloat16)
    found = armature.compile(model, fullgraph=True, options={"frozen": True})(x)
    exact = model.float()(x.float())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), exact, rtol=3e-2, atol=3e-2)


@torch.no_grad()
def test_norms_that_learn_stay() -> None:
    armature.reset()
    model, x = nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16)).train(), torch.randn(2, 8, 12, 12)
    other = nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16)).train()
    other.load_state_dict(model.state_dict())
    fn = armature.compile(model, fullgraph=True, options={"frozen": True})
    for _ in range(2):
        torch.testing.assert_close(fn(x), other(x), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not onednn.is_there(), reason="torch was built without oneDNN")
@torch.no_grad()
def test_weights_of_windows_are_packed_and_those_of_products_are_not() -> None:
    armature.reset()
    model = settled(nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 1), nn.Tanh()))
    armature.compile(model, fullgraph=True, options={"frozen": True})(
        torch.randn(2, 8, 24, 24).contiguous(memory_format=torch.channels_last)
    )
    found = targets()
    assert found.count(onednn.fused_convolution()) == 1 and found.count(aten.mm.default) == 1
    assert aten.relu.default not in found  # oneDNN computes it


class Blurred(nn.Module):
    """A convolution whose weight is a parameter, expanded."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(1, 32, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.conv2d(x, self.weight.expand(32, 32, 3, 3))


def blurred(x: Tensor) -> Tensor:
    return torch.conv2d(x, torch.arange(9.0).softmax(0).reshape(1, 1, 3, 3).expand(32, 1, 3, 3), groups=32)


def summed(x: Tensor) -> Tensor:
    return torch.conv2d(x, torch.ones(4, 32, 3, 3)).relu()


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("make", [Blurred, lambda: blurred, lambda: summed], ids=["expanded", "blur", "ones"])
@pytest.mark.filterwarnings("error")
@torch.no_grad()
def test_weights_that_stay_in_the_graph_are_not_packed(make: Callable[[], Callable[..., Tensor]], frozen: bool) -> None:
    armature.reset()
    program = make()
    x = torch.randn(1, 32, 20, 20).contiguous(memory_format=torch.channels_last)
    compiled = armature.compile(program, fullgraph=True, options={"frozen": frozen})
    torch.testing.assert_close(compiled(x), program(x), rtol=1e-4, atol=1e-4)
    assert onednn.fused_convolution() not in targets()
