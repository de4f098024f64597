"""Collectives between kernels: memory in use by others is left alone until it is complete."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from armature.api import public as api
from armature.plugin_api import functional_collectives

if not functional_collectives.AVAILABLE:
    pytest.skip("torch was built without torch.distributed", allow_module_level=True)

dist = torch.distributed
OPERATORS = torch.ops._c10d_functional


@pytest.fixture
def processes() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def gathered(x: Tensor) -> Tensor:
    return OPERATORS.wait_tensor(OPERATORS.all_gather_into_tensor(x * 2, 1, "0")) + 1


def coalesced(x: Tensor) -> Tensor:
    first, second = OPERATORS.all_reduce_coalesced([x * 2, x.sum(0)], "sum", "0")
    return OPERATORS.wait_tensor(first) + OPERATORS.wait_tensor(second)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("fn", [gathered, coalesced])
def test_like_eager(fn: object) -> None:
    x = torch.randn(4, 3)
    torch.testing.assert_close(api.compile(fn, fullgraph=True)(x), fn(x))  # type: ignore[operator]


@pytest.mark.usefixtures("processes")
def test_a_result_that_is_waited_for_later() -> None:
    started = OPERATORS.all_reduce(torch.ones(3), "sum", "0")
    assert api.compile(lambda x: OPERATORS.wait_tensor(x) + 1, fullgraph=True)(started).tolist() == [2, 2, 2]


PROGRAM = """
import sys
import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # later, its functions' defaults would keep the group
from armature.api import public as api

rank = int(sys.argv[1])
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[2], 2), rank=rank, world_size=2)

def fn(x):
    y = x + 1
    dist.all_reduce(y)
    parts = [torch.empty(4, 3) for _ in range(2)]
    dist.all_gather(parts, x * 2)
    whole, own = torch.empty(8, 3), torch.empty(2, 3)
    dist.all_gather_into_tensor(whole, x.exp())
    dist.reduce_scatter_tensor(own, x + 3)
    received = torch.empty((2, 6)[dist.get_rank()], 3)
    dist.all_to_all_single(received, x * x, ([1, 1], [3, 3])[dist.get_rank()], [1, 3])
    return y, parts[0] + 1, parts[1] + 1, whole * 2, own * 2, received * 2

torch.manual_seed(rank)
x = torch.randn(4, 3)
for options in ({}, {"backend": "eager"}):
    torch.testing.assert_close(api.compile(fn, fullgraph=True, **options)(x), fn(x))
api.reset()  # guards keep the group, whose threads must end before the interpreter does
dist.destroy_process_group()
"""


def test_two_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    both = [subprocess.Popen([*command, str(rank), str(tmp_path / "store")]) for rank in range(2)]
    assert [process.wait(timeout=300) for process in both] == [0, 0]
