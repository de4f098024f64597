"""Modules that others cut in parts, in two processes: `fully_shard`, FullyShardedDataParallel, `parallelize_module`.

What talks to other processes around a block runs as it is; the block is one graph. Tensor-parallel modules are whole.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature
from armature.pipeline.session import session
from armature.plugin_api import data_parallel
from tests.support import processes

if not data_parallel.AVAILABLE:
    pytest.skip("torch was built without torch.distributed", allow_module_level=True)

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

WIDTH, ROWS, BLOCKS = 16, 4, 3
QUICK = {"backend": "aot_eager"}
LOW = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(WIDTH), Inner()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(self.norm(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(BLOCKS)])
        self.out = nn.Linear(WIDTH, 6)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def sharded(model: Model, mesh: DeviceMesh, **options: Any) -> Any:
    """FSDP2, for each block and for what is left."""
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def wrapped(model: Model, mesh: DeviceMesh) -> Any:
    """FSDP1."""
    policy = ModuleWrapPolicy({Block})
    device = torch.device("cpu")
    return FullyShardedDataParallel(model, use_orig_params=True, auto_wrap_policy=policy, device_id=device)


def by_tensors(model: Model, mesh: DeviceMesh) -> Any:
    """Each linear layer is in parts."""
    plan = {"*.inner.up": ColwiseParallel(), "*.inner.down": RowwiseParallel()}
    parallelize_module(model.blocks, mesh, plan)
    return parallelize_module(model, mesh, {"out": ColwiseParallel(output_layouts=Replicate())})


def by_sequences(model: Model, mesh: DeviceMesh) -> Any:
    """Between the layers, tensors are in parts by their second dimension."""
    whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    for block in model.blocks:
        plan = {
            "norm": SequenceParallel(),
            "inner": whole,
            "inner.up": ColwiseParallel(),
            "inner.down": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(block, mesh, plan)
    first = PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),), use_local_output=True)
    parallelize_module(model.blocks[0], mesh, first)
    return parallelize_module(model, mesh, {"out": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})


def gradients(model: nn.Module) -> list[Tensor]:
    """Whole ones; of parts that are on other processes nothing."""
    found = (p.grad for p in model.parameters() if p.numel())
    return [one.full_tensor() if isinstance(one, DTensor) else one for one in found if one is not None]


def far(left: list[Tensor], right: list[Tensor]) -> float:
    return max(float((one - other).abs().max().detach()) for one, other in zip(left, right, strict=True))


def compare(
    parallel: Callable[[Model, DeviceMesh], Any],
    place: str,
    rank: int,
    world: int,
    compiling: Mapping[str, Any] = QUICK,
    same_inputs: bool = False,
) -> dict[str, Any]:
    """Steps in eager mode, and compiled at a place: the whole, each block before it is made parallel, or after."""
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    plain = Model()
    model = copy.deepcopy(plain)
    eager = parallel(plain, mesh)
    armature.reset()
    if place == "blocks":
        for k, block in enumerate(model.blocks):
            model.blocks[k] = armature.compile(block, **compiling)
    called = model = parallel(model, mesh)
    if place == "whole":
        called = armature.compile(model, **compiling)
    torch.manual_seed(1 if same_inputs else rank + 1)
    apart, size = 0.0, 0.0
    for _ in range(3):
        x = torch.randn(ROWS, WIDTH, WIDTH)
        found = [eager(x), called(x)]
        for one in found:
            one.float().square().mean().backward()
        mine, other = gradients(eager), gradients(model)
        apart = max(apart, far(found[:1], found[1:]), far(mine, other))
        size = max(float(gradient.abs().max()) for gradient in other)
        eager.zero_grad()
        model.zero_grad()
    done = session().compilations
    return {
        "apart": apart,
        "size": size,
        "breaks": [str(event.facts.get("function", event.type.id)) for one in done for event in one.breaks],
        "captured": sorted({one.function for one in done if one.module is not None}),
    }


def rests(rank: int, world: int) -> dict[str, Any]:
    """A compiled block that is sharded: what is said of it and of the original is the same."""
    mesh = init_device_mesh("cpu", (world,))
    compiled = armature.compile(Block(), **QUICK)
    given = fully_shard(compiled, mesh=mesh)
    before = [isinstance(p, DTensor) for p in compiled.parameters()]
    compiled.unshard()
    after = [isinstance(p, DTensor) for p in compiled.parameters()]
    return {"given": given is compiled, "before": all(before), "after": not any(after), "class": type(given).__name__}


whole, blocks = "whole", "blocks"
SCENARIOS: dict[str, processes.Scenario] = {
    "sharded whole": functools.partial(compare, sharded, whole),
    "sharded blocks": functools.partial(compare, sharded, blocks, compiling={"fullgraph": True}),
    "low precision": functools.partial(compare, functools.partial(sharded, mp_policy=LOW), blocks),
    "kept": functools.partial(compare, functools.partial(sharded, reshard_after_forward=False), whole),
    "wrapped whole": functools.partial(compare, wrapped, whole),
    "tensors whole": functools.partial(compare, by_tensors, whole, same_inputs=True, compiling={"fullgraph": True}),
    "tensors blocks": functools.partial(compare, by_tensors, blocks, same_inputs=True),
    "sequences whole": functools.partial(compare, by_sequences, whole, same_inputs=True),
    "rests": rests,
}
COMPARED = [name for name in SCENARIOS if name != "rests"]


@pytest.fixture(scope="module")
def results() -> dict[str, list[Any]]:
    return processes.run(__file__)


@pytest.mark.parametrize("name", COMPARED)
def test_results_and_gradients_are_those_of_eager_mode(results: dict[str, list[Any]], name: str) -> None:
    for found in results[name]:
        assert found["apart"] < 1e-5
        assert found["size"] > 1e-4  # or there would be nothing to compare


@pytest.mark.parametrize(
    "name", ["sharded blocks", "low precision", "tensors whole", "tensors blocks", "sequences whole"]
)
def test_graphs_are_whole(results: dict[str, list[Any]], name: str) -> None:
    for found in results[name]:
        assert not found["breaks"]
        assert found["captured"] == ["Model.forward" if "whole" in name else "Block.forward"]


@pytest.mark.parametrize("name", ["sharded whole", "kept", "wrapped whole"])
def test_hooks_run_as_they_are_around_whole_blocks(results: dict[str, list[Any]], name: str) -> None:
    for found in results[name]:
        assert "Block.forward" in found["captured"]
        assert all("fsdp" in what or what.startswith("dict_") for what in found["breaks"]), found["breaks"]
        assert len(found["breaks"]) <= 4  # however many blocks there are


def test_a_compiled_block_that_is_sharded_says_what_the_original_says(results: dict[str, list[Any]]) -> None:
    for found in results["rests"]:
        assert found == {"given": True, "before": True, "after": True, "class": "CompiledModule"}


if __name__ == "__main__":
    processes.serve(SCENARIOS)
