"""What DistributedDataParallel tells of its buckets: the reducer's own record of them is the judge."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from armature.torch_abi import data_parallel

pytestmark = pytest.mark.skipif(not data_parallel.AVAILABLE, reason="torch was built without torch.distributed")


@pytest.fixture(autouse=True)
def processes() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Watched(nn.Sequential):
    """Notes which DistributedDataParallel is at work."""

    found: tuple[Any, ...] = ()  # a module of its own would be a part of it

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.found = (data_parallel.active(),)
        return super().forward(x)


def layers() -> Watched:
    return Watched(*(nn.Linear(20, 20) for _ in range(5)))


def test_the_one_at_work() -> None:
    model = layers()
    parallel = nn.parallel.DistributedDataParallel(model)
    assert data_parallel.active() is None
    parallel(torch.randn(2, 20))
    assert model.found[0] is parallel
    assert data_parallel.active() is None


def test_what_it_reduces() -> None:
    model = layers()
    model[0].weight.requires_grad_(False)
    names = ["1.weight"]
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
    parallel = nn.parallel.DistributedDataParallel(model)
    kept = [p for name, p in model.named_parameters() if name not in ("0.weight", "1.weight")]
    assert list(map(id, data_parallel.reduced(parallel))) == list(map(id, kept))


@pytest.mark.parametrize("options", [{}, {"static_graph": True}, {"find_unused_parameters": True}])
def test_whether_buckets_follow_the_gradients(options: dict[str, Any]) -> None:
    parallel = nn.parallel.DistributedDataParallel(layers(), bucket_cap_mb=0.001, **options)
    assert data_parallel.keeps_buckets(parallel) is ("find_unused_parameters" in options)


SMALL = {"bucket_cap_mb": 0.003}
LIST = {"bucket_cap_mb_list": [0.001, 0.003]}
HAS_LIST = "bucket_cap_mb_list" in inspect.signature(nn.parallel.DistributedDataParallel.__init__).parameters


@pytest.mark.parametrize(
    "options", [{}, {"bucket_cap_mb": 0.001}, SMALL | {"static_graph": True}, *([LIST] if HAS_LIST else [])]
)
def test_buckets_are_those_that_the_reducer_makes(options: dict[str, Any]) -> None:
    """After the first backward the reducer makes its buckets anew, in the order in which gradients were made."""
    model = layers()
    parallel = nn.parallel.DistributedDataParallel(model, **options)
    for _ in range(4):
        parallel(torch.randn(2, 20)).sum().backward()
    told = parallel._get_ddp_logging_data()
    parameters = data_parallel.reduced(parallel)
    order = [int(k) for k in told["prev_iteration_grad_ready_order_indices"].split(", ")]
    found = data_parallel.buckets(parallel, [parameters[k] for k in order])
    sizes = [sum(parameters[order[k]].numel() * 4 for k in bucket) for bucket in found]
    assert sizes == [int(size) for size in told["rebuilt_bucket_sizes"].split(", ")]


def test_buckets_of_the_order_of_definition() -> None:
    model = layers()
    parallel = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001, find_unused_parameters=True)
    found = data_parallel.buckets(parallel, data_parallel.reduced(parallel))
    sizes = [sum(data_parallel.reduced(parallel)[k].numel() * 4 for k in bucket) for bucket in found]
    told = parallel._get_ddp_logging_data()
    assert sorted(sizes) == sorted(int(size) for size in told["bucket_sizes"].split(", "))
