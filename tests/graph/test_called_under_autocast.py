"""Functions that are called with autocast on, and switch it off for a part: that part is computed as it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import armature
from armature.pipeline.session import session

X = torch.linspace(-1, 1, 16).reshape(4, 4)
W = torch.linspace(0.3, 1, 16).reshape(4, 4)


def product(x: Tensor) -> Any:
    with torch.autocast("cpu", enabled=False):
        precise = x @ W
    return precise, x @ W


def narrow(x: Tensor) -> Any:
    with torch.autocast("cpu", enabled=False):
        made = F.linear(x.bfloat16(), W.bfloat16()), x.bfloat16().cumsum(0)
    return (*made, F.linear(x, W))


def convolved(x: Tensor) -> Any:
    with torch.autocast("cpu", enabled=False):
        precise = F.conv1d(x[None], W[:, :, None])
    return precise, torch.bmm(x[None], precise)


def angles(x: Tensor) -> Any:
    """As rotary embeddings compute them."""
    with torch.autocast(device_type="cpu", enabled=False):
        places = (W[None, :, :1] @ torch.arange(300.0, 304.0)[None, None]).transpose(1, 2)
        cos = torch.cat((places, places), -1).cos()
    return (x.repeat(1, 2) * cos).to(x.dtype), cos


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
@pytest.mark.parametrize("program", [product, narrow, convolved, angles])
def test_as_in_eager_mode(program: Callable[[Tensor], Any], backend: str, learns: bool) -> None:
    armature.reset()
    compiled = armature.compile(program, backend=backend, fullgraph=True)
    for enabled in (True, False, True):
        with torch.autocast("cpu", enabled=enabled):
            found, expected = compiled(X.clone().requires_grad_(learns)), program(X.clone().requires_grad_(learns))
        torch.testing.assert_close(found, expected)


def written_first(x: Tensor) -> Any:
    x.add_(1)
    return torch.einsum("ij,kj->ik", x, W).relu(), F.conv1d(x[None], W[:, :, None], padding="same")


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "auto"])
@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.einsum("ij,kj->ik", x, x).relu() * 2,
        lambda x: (torch.tensordot(x, x, 1), torch.inner(x, W), F.linear(x, W).relu()),
        lambda x: (F.linear(x, W) + x @ W, F.layer_norm(x, (4,)), x.softmax(-1)),
        lambda x: (torch.chain_matmul(x, W, W), x.inner(W)),
        product,
        written_first,
    ],
)
def test_in_inference_mode(program: Callable[[Tensor], Any], backend: str) -> None:
    armature.reset()
    compiled = armature.compile(program, backend=backend, fullgraph=True)
    with torch.inference_mode(), torch.autocast("cpu"):
        for _ in range(2):
            torch.testing.assert_close(compiled(X.clone()), program(X.clone()))


def test_what_autocast_does_not_know_has_kernels_in_inference_mode() -> None:
    """Its parts are cast in the graph, which need not run as it was captured, and the program sees their dtype."""

    def program(x: Tensor) -> Tensor:
        y = torch.einsum("ij,kj->ik", x, W).relu() * 2
        return y + (1 if y.dtype == torch.bfloat16 else 2)

    armature.reset()
    with torch.inference_mode(), torch.autocast("cpu"):
        torch.testing.assert_close(armature.compile(program, fullgraph=True)(X), program(X))
    assert session().totals().kernels > 0
