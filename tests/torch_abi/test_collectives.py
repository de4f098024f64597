"""The operators of `_c10d_functional`, and the seams to torch.distributed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from armature.torch_abi import collectives

pytestmark = pytest.mark.skipif(not collectives.AVAILABLE, reason="torch was built without torch.distributed")


@pytest.fixture
def group() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD  # type: ignore[misc]
    dist.destroy_process_group()


def test_the_group_of_all_processes(group: dist.ProcessGroup) -> None:
    assert collectives.group_or_default(None) is group
    assert collectives.group_or_default(group) is group
    assert not collectives.is_coalescing(group)
    with dist.distributed_c10d._coalescing_manager(group):
        assert collectives.is_coalescing(group)


def test_there_is_no_group_before_one_is_made() -> None:
    with pytest.raises(ValueError, match="not been initialized"):
        collectives.group_or_default(None)


def test_each_operator_gives_a_new_tensor(group: dist.ProcessGroup) -> None:
    x, name = torch.arange(4.0), group.group_name
    for found in (
        collectives.all_reduce(x, "sum", name),
        collectives.all_gather(x, 1, name),
        collectives.reduce_scatter(x, "max", 1, name),
        collectives.all_to_all(x, [4], [4], name),
    ):
        assert torch.equal(found, x)
        assert found.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("name", sorted(set(collectives.REDUCTIONS.values()) - {"avg"}))
def test_the_operators_know_the_reductions(group: dist.ProcessGroup, name: str) -> None:
    assert collectives.all_reduce(torch.tensor([3]), name, group.group_name).tolist() == [3]
