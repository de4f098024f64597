"""DTensors in compiled functions: nothing compiled is reused for another placement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

import armature


@pytest.fixture(scope="module", params=[1, 2])
def mesh(request: pytest.FixtureRequest) -> Iterator[DeviceMesh]:
    """One of so many processes, of which the others are not there: what they would send is any number."""
    if request.param == 1:
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    else:
        dist.init_process_group("fake", rank=0, world_size=request.param, store=FakeStore())
    yield init_device_mesh("cpu", (request.param,))
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def _nothing_compiled() -> None:
    armature.reset()


def numbers(*size: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(size).numel()).reshape(size)


def same(found: Any, expected: Any, mesh: DeviceMesh) -> None:
    if isinstance(expected, DTensor):
        assert type(found) is DTensor and found.placements == expected.placements
        assert found.shape == expected.shape and found.requires_grad == expected.requires_grad
        found, expected = found.to_local(), expected.to_local()
    if mesh.size() == 1:
        torch.testing.assert_close(found, expected)
    assert type(found) is type(expected) and found.shape == expected.shape and found.dtype == expected.dtype


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x: F.relu(x * 2 + 1).sin(),
    "local": lambda x: x.to_local() + 1,
    "placements": lambda x: x.to_local() * (2 if x.placements[0].is_shard() else 3),
    "sizes": lambda x: x.to_local() * x.shape[0] * x.device_mesh.size(),
    "everywhere": lambda x: x.redistribute(placements=[Replicate()]).to_local() * 2,
    "whole": lambda x: x.full_tensor() * 2,
    "sum": lambda x: x.sum(0),
    "linear": lambda x: F.linear(x, x),
}


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_placement_has_its_own_answer(mesh: DeviceMesh, name: str, backend: str) -> None:
    function = PROGRAMS[name]
    compiled = armature.compile(function, backend=backend)
    for placement, size in ((Shard(0), 4), (Shard(1), 4), (Replicate(), 4), (Partial(), 4), (Shard(0), 6)):
        x = DTensor.from_local(numbers(size, size), mesh, [placement])
        same(compiled(x), function(x), mesh)


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_made_inside(mesh: DeviceMesh, backend: str) -> None:
    def function(x: torch.Tensor) -> Any:
        return DTensor.from_local(x * 2, mesh, [Shard(0)]).redistribute(mesh, [Replicate()]).to_local() + 1

    compiled = armature.compile(function, backend=backend)
    for size in (4, 6):
        same(compiled(numbers(size, 4)), function(numbers(size, 4)), mesh)


def test_operators_are_in_one_graph(mesh: DeviceMesh) -> None:
    compiled = armature.compile(lambda x: x * 2, backend="eager", fullgraph=True)
    x = DTensor.from_local(numbers(4, 4), mesh, [Shard(0)])
    same(compiled(x), x * 2, mesh)


def test_a_placement_made_inside() -> None:
    compiled = armature.compile(lambda x: x.sum(Shard(dim=1).dim), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(numbers(4, 4)), numbers(4, 4).sum(1))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.down(F.relu(self.up(x)))


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("parallel", [True, False])
def test_distributed_modules_train(mesh: DeviceMesh, parallel: bool, backend: str) -> None:
    def make() -> nn.Module:
        if parallel:
            return parallelize_module(Layers(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        return distribute_module(Layers(), mesh)

    eager, module = make(), make()
    compiled = armature.compile(module, backend=backend)
    for rows in (3, 3, 5):
        for run in (eager, compiled):
            x = numbers(rows, 4)
            found = run(x if parallel else DTensor.from_local(x, mesh, [Replicate()])).pow(2).mean()
            found.backward()
        for one, other in zip(eager.parameters(), module.parameters()):
            same(other.grad, one.grad, mesh)
