"""DTensor in a graph: with one process, and the same with two."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from armature.api import public as api
from armature.plugin_api import functional_collectives

if not functional_collectives.AVAILABLE:
    pytest.skip("torch was built without torch.distributed", allow_module_level=True)

from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist = torch.distributed


def begin() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


@pytest.fixture(autouse=True)
def processes() -> Iterator[None]:
    begin()
    yield
    dist.destroy_process_group()


def mesh() -> Any:
    return dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))


def wrapped(x: Tensor, mesh: Any) -> Tensor:
    d = DTensor.from_local(x * 2, mesh, [Shard(0)])
    return d.redistribute(mesh, [Replicate()]).to_local() + 1


def summed(x: Tensor, mesh: Any) -> Tensor:
    d = DTensor.from_local(x.sin(), mesh, [Partial()])
    return d.redistribute(placements=[Shard(0)]).full_tensor() * 2


def multiplied(x: Tensor, mesh: Any) -> Tensor:
    d = DTensor.from_local(x, mesh, [Shard(0)])
    return (d @ d.t().redistribute(mesh, [Replicate()])).relu().to_local()


def facts(x: Tensor, mesh: Any) -> tuple[Tensor, bool, int]:
    d = DTensor.from_local(x, mesh, [Shard(-1)])
    placement = d.placements[0]
    known = placement.is_shard(1) and placement == Shard(1) and placement != Replicate() and d.placements == (Shard(1),)
    return d.to_local() + d.shape[1] + d.device_mesh.size(), known and isinstance(placement, Shard), placement.dim


def checked(x: Tensor, mesh: Any) -> Tensor:
    return wrapped(x, mesh) + mesh.get_group().size() + mesh.get_rank() + mesh.ndim


PROGRAMS = (wrapped, summed, multiplied, facts, checked)


@pytest.mark.parametrize("options", [{"backend": "eager"}, {"backend": "aot_eager"}, {}], ids=str)
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_one_graph(fn: Callable[[Tensor, Any], Any], options: dict[str, Any]) -> None:
    x, where = torch.randn(4, 3), mesh()
    compiled = api.compile(fn, fullgraph=True, **options)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, where), fn(x, where))


@pytest.mark.parametrize("options", [{"backend": "eager"}, {}], ids=str)
@pytest.mark.parametrize("fn", (wrapped, summed, multiplied), ids=lambda fn: fn.__name__)
def test_gradients(fn: Callable[[Tensor, Any], Tensor], options: dict[str, Any]) -> None:
    x, where = torch.randn(4, 3), mesh()
    mine, theirs = (x.clone().requires_grad_() for _ in range(2))
    api.compile(fn, fullgraph=True, **options)(mine, where).square().sum().backward()
    fn(theirs, where).square().sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("learns", [False, True])
def test_a_mesh_equal_to_one_of_an_ended_group(learns: bool) -> None:
    def fn(d: DTensor) -> DTensor | Tensor:
        result = (d * 2 + 1).relu()
        return result.to_local() if learns else result

    numbers = torch.randn(4, 3)
    for _ in range(2):
        mine, theirs = (distribute_tensor(numbers, mesh(), [Shard(0)]).requires_grad_(learns) for _ in range(2))
        found, expected = api.compile(fn, fullgraph=True)(mine), fn(theirs)
        torch.testing.assert_close(found, expected)
        if learns:
            found.square().sum().backward()
            expected.square().sum().backward()
            torch.testing.assert_close(mine.grad, theirs.grad)
        dist.destroy_process_group()
        begin()


@pytest.mark.parametrize("options", [{"backend": "eager"}, {}], ids=str)
def test_a_module_in_parts(options: dict[str, Any]) -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    parallelize_module(module, mesh(), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.randn(2, 4)
    expected = module(x)
    expected.sum().backward()
    grads = [parameter.grad.full_tensor() for parameter in module.parameters()]
    module.zero_grad()
    found = api.compile(module, fullgraph=True, **options)(x)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    for parameter, grad in zip(module.parameters(), grads, strict=True):
        assert type(parameter.grad) is DTensor
        torch.testing.assert_close(parameter.grad.full_tensor(), grad)


def test_other_placements_and_meshes_compile_again() -> None:
    def fn(d: DTensor, where: Any) -> tuple[Tensor, int, str]:
        kind = d.placements[0]
        return d.to_local() + 1, kind.dim if kind.is_shard() else -1, where.device_type

    compiled, x = api.compile(fn, backend="eager", fullgraph=True), torch.ones(4, 3)
    for placement in (Shard(0), Shard(1), Replicate(), Shard(0)):
        for where in (mesh(), mesh()):
            d = distribute_tensor(x, where, [placement])
            found, expected = compiled(d, where), fn(d, where)
            assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]


def test_a_placement_of_the_program_is_relied_on() -> None:
    where, x = mesh(), torch.ones(4, 3)

    def fn(x: Tensor, placements: list[Any]) -> tuple[Tensor, torch.Size]:
        d = DTensor.from_local(x, where, placements)
        return d.to_local() + 1, placements[0]

    compiled = api.compile(fn, backend="eager", fullgraph=True)
    for placement in (Shard(0), Shard(0), Shard(1), Replicate()):
        assert compiled(x, [placement])[1] == placement


def test_a_result_is_a_dtensor() -> None:
    where = mesh()
    compiled = api.compile(lambda d: (d * 2).relu(), fullgraph=True)
    for size in (4, 5, 6):
        d = distribute_tensor(torch.randn(size, 3), where, [Shard(0)])
        found, expected = compiled(d), (d * 2).relu()
        assert type(found) is DTensor and found.placements == (Shard(0),)
        assert found.device_mesh is expected.device_mesh  # of an ended group, if torch has seen such a mesh before
        torch.testing.assert_close(found.to_local(), expected.to_local())


def adds_to_local(d: DTensor) -> Any:
    d.to_local().add_(1)
    return d.full_tensor() * 2


def adds(d: DTensor) -> Any:
    local = d.to_local()
    d.add_(1)
    return local * 2


def gives_itself(d: DTensor) -> Any:
    return d.redistribute(placements=[Shard(0)]), d.to_local(), d


def gives_a_view(d: DTensor) -> Any:
    return d.view(-1), d


def gives_two_views(d: DTensor) -> Any:
    made = d * 2
    return made.view(-1), made.to_local()


def same(one: Any, other: Any) -> bool:
    parts = [t.to_local() if isinstance(t, DTensor) else t for t in (one, other)]
    return type(one) is type(other) and torch.equal(*parts)


@pytest.mark.parametrize("options", [{"backend": "eager"}, {}], ids=str)
@pytest.mark.parametrize("fn", (adds_to_local, adds, gives_itself, gives_a_view, gives_two_views))
def test_memory(fn: Callable[[DTensor], Any], options: dict[str, Any]) -> None:
    where, x = mesh(), torch.randn(4, 3)
    mine, theirs = (DTensor.from_local(x.clone(), where, [Shard(0)]) for _ in range(2))
    found, expected = api.compile(fn, fullgraph=True, **options)(mine), fn(theirs)
    assert same(mine, theirs)
    found, expected = ((r if isinstance(r, tuple) else (r,)) for r in (found, expected))
    assert all(map(same, found, expected))
    found[0].add_(1), expected[0].add_(1)
    assert all(map(same, found, expected)) and same(mine, theirs)


PROGRAM = """
import sys
import torch
import torch.distributed.nn.functional  # later, its functions' defaults would keep the group
from armature.api import public as api
sys.path.insert(0, sys.argv[3])
import test_dtensors as here

rank = int(sys.argv[1])
here.dist.init_process_group("gloo", store=here.dist.FileStore(sys.argv[2], 2), rank=rank, world_size=2)
torch.manual_seed(rank)
x, mesh = torch.randn(4, 3), here.mesh()
for fn in here.PROGRAMS:
    for options in ({}, {"backend": "eager"}):
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        found, expected = api.compile(fn, fullgraph=True, **options)(mine, mesh), fn(theirs, mesh)
        torch.testing.assert_close(found, expected)
        for result in (found, expected):
            (result[0] if isinstance(result, tuple) else result).square().sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)
api.reset()  # guards keep the group, whose threads must end before the interpreter does
here.dist.destroy_process_group()
"""


def test_two_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    rest = [str(tmp_path / "store"), os.path.dirname(__file__)]
    both = [subprocess.Popen([*command, str(rank), *rest]) for rank in range(2)]
    assert [process.wait(timeout=300) for process in both] == [0, 0]
