"""Whole programs with these kernels in place of the C++ ones: values and gradients are eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import armature

ALONE = {"disabled_plugins": ("cpu_cpp",)}
PROGRAMS: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "chain": (lambda x: (x * 2 + 1).tanh().relu(), (torch.randn(5, 7),)),
    "softmax": (lambda x: F.softmax(x, dim=-1), (torch.randn(4, 9),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (8,), w, b), (torch.randn(3, 8), torch.rand(8), torch.rand(8))),
    "transposed": (lambda x, y: x.t() + y, (torch.randn(6, 4), torch.randn(4, 6))),
    "gathered": (lambda x, i: x[i] * 2, (torch.randn(5, 3), torch.tensor([4, 0, -1]))),
    "padded": (lambda x: F.pad(x.sin(), (1, 2)), (torch.randn(2, 3),)),
    "counted": (lambda x: torch.arange(x.shape[0]) + x.argmax(), (torch.randn(6),)),
    "scattered": (lambda x, i: torch.zeros(3).index_add(0, i, x), (torch.ones(4), torch.tensor([2, 0, 2, 2]))),
    "written": (lambda x: x.clone().mul_(3).add_(x[0]), (torch.randn(4, 4),)),
    "empty": (lambda x: x + x[:0].exp().sum(), (torch.randn(4),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_eager(name: str, armature_watch: Any) -> None:
    program, inputs = PROGRAMS[name]
    found = armature.compile(program, options=ALONE)(*inputs)
    torch.testing.assert_close(found, program(*inputs))
    assert armature_watch.kernels >= 1
    assert all("np." in kernel.code for kernel in armature_watch.recording.kernels)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_model_trains(dynamic: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.LayerNorm(8), nn.Linear(8, 3))
    compiled = armature.compile(model, options=ALONE, dynamic=dynamic)

    def gradients(net: Any, size: int) -> list[Any]:
        model.zero_grad()
        x = torch.linspace(-1, 1, 4 * size).reshape(size, 4)
        F.cross_entropy(net(x), torch.arange(size) % 3).backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    for size in (5, 6):
        torch.testing.assert_close(gradients(compiled, size), gradients(model, size))


def test_what_numpy_lacks_runs_as_aten(armature_watch: Any) -> None:
    x = torch.randn(4).bfloat16()
    assert torch.equal(armature.compile(lambda x: x.sin() + 1, options=ALONE)(x), x.sin() + 1)
    armature_watch.expect(graphs=1, kernels=0)


def test_an_index_out_of_range_raises_as_in_eager() -> None:
    take = armature.compile(lambda x, i: x[i] + 1, options=ALONE)
    with pytest.raises(IndexError, match="out of bounds"):
        take(torch.randn(3), torch.tensor([3]))
