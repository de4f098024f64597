"""Training in two processes with a GPU each: gradients are those of eager mode under the same wrapper."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import armature
from armature.pipeline.session import session
from tests.support import processes

if not dist.is_available() or not dist.is_nccl_available():
    pytest.skip("torch was built without NCCL", allow_module_level=True)

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
STEPS, WIDTH, ROWS = 3, 64, 8
Wrap = Callable[[nn.Module, Mapping[str, Any] | None], tuple[nn.Module, Callable[..., Any]]]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])
        self.last = nn.Linear(WIDTH, 8)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return torch.log_softmax(self.last(x), -1)


def whole(x: Tensor) -> Tensor:
    return x.full_tensor() if isinstance(x, DTensor) else x


def replicated(model: nn.Module, compiling: Mapping[str, Any] | None) -> tuple[nn.Module, Callable[..., Any]]:
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.1)
    return parallel, parallel if compiling is None else armature.compile(parallel, **compiling)


def compiled_first(model: nn.Module, compiling: Mapping[str, Any] | None) -> tuple[nn.Module, Callable[..., Any]]:
    inner = model if compiling is None else armature.compile(model, **compiling)
    parallel = DistributedDataParallel(inner, bucket_cap_mb=0.1)
    return parallel, parallel


def sharded(model: nn.Module, compiling: Mapping[str, Any] | None) -> tuple[nn.Module, Callable[..., Any]]:
    """FSDP2: each block is gathered before it runs, and compiled by itself."""
    assert isinstance(model, Layers)
    for block in model.blocks:
        fully_shard(block)
        if compiling is not None:
            block.forward = armature.compile(block.forward, **compiling)  # type: ignore[method-assign]
    fully_shard(model)
    return model, model


def in_parts(model: nn.Module, compiling: Mapping[str, Any] | None) -> tuple[nn.Module, Callable[..., Any]]:
    """Tensor parallelism: half of each block's inner width is on each GPU."""
    assert isinstance(model, Layers)
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model, model if compiling is None else armature.compile(model, **compiling)


def trained(wrap: Wrap, compiling: Mapping[str, Any], rank: int, world: int, autocast: bool = False) -> dict[str, Any]:
    """How far losses and gradients are apart at most, and what broke."""
    torch.manual_seed(0)
    plain = Layers().cuda()
    other = copy.deepcopy(plain)
    armature.reset()
    models = [wrap(plain, None), wrap(other, compiling)]
    same = wrap is in_parts  # both processes see the same rows
    apart = 0.0
    for turn in range(STEPS):
        torch.manual_seed(10 * turn + (0 if same else rank))
        x = torch.randn(ROWS, WIDTH, device="cuda")
        found = []
        for model, called in models:
            model.zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                loss = called(x).float().square().mean()
            loss.backward()
            found.append([loss.detach(), *(whole(p.grad) for p in model.parameters() if p.grad is not None)])
        assert len(found[0]) == len(found[1]) > 10
        apart = max(apart, *(float((a - b).abs().max()) for a, b in zip(*found, strict=True)))
    return {"apart": apart, **compiled()}


def compiled() -> dict[str, Any]:
    """What was compiled since the last reset."""
    done = session().compilations
    return {
        "breaks": [event.type.id for one in done for event in one.breaks],
        "captured": sum(one.module is not None for one in done),
    }


def reduced(rank: int, world: int) -> dict[str, Any]:
    """Collectives inside a graph, between kernels."""

    def fn(x: Tensor) -> Tensor:
        y = x.sin() * 2
        dist.all_reduce(y)
        parts = torch.empty(world * y.shape[0], *y.shape[1:], device=y.device)
        dist.all_gather_into_tensor(parts, y + rank)
        return parts.cos() + 1

    armature.reset()
    call = armature.compile(fn, fullgraph=True)
    x = torch.randn(6, 5, device="cuda")
    return {"apart": max(float((call(x) - fn(x)).abs().max()) for _ in range(3)), **compiled()}


KERNELS: dict[str, Any] = {"fullgraph": True}
SCENARIOS: dict[str, processes.Scenario] = {
    "replicated": functools.partial(trained, replicated, KERNELS),
    "compiled first": functools.partial(trained, compiled_first, KERNELS),
    "recorded": functools.partial(trained, compiled_first, {"mode": "reduce-overhead"}),
    "sharded": functools.partial(trained, sharded, KERNELS),
    "in parts": functools.partial(trained, in_parts, KERNELS),
    "autocast": functools.partial(trained, replicated, KERNELS, autocast=True),
    "collectives": reduced,
}


@pytest.fixture(scope="module")
def results() -> dict[str, list[Any]]:
    return processes.run(__file__, seconds=400)


@pytest.mark.parametrize("name", SCENARIOS)
def test_like_eager_mode(results: dict[str, list[Any]], name: str) -> None:
    for found in results[name]:
        assert found["apart"] < (2e-2 if name == "autocast" else 1e-4)
        assert found["breaks"] == []
        assert found["captured"] > 0


if __name__ == "__main__":
    processes.serve(SCENARIOS, "nccl")
