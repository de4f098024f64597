"""Collectives of torch.distributed in a graph, with one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from armature.api import public as api
from armature.plugin_api import functional_collectives
from armature.testing.handler_kit import break_id

dist = pytest.importorskip("torch.distributed")
if not functional_collectives.AVAILABLE:
    pytest.skip("torch was built without torch.distributed", allow_module_level=True)
functional = pytest.importorskip("torch.distributed._functional_collectives")

SCALED = dist._make_nccl_premul_sum(2.0)  # a reduction that has no form with a new tensor


@pytest.fixture(autouse=True)
def processes() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def reduced(x: Tensor) -> Tensor:
    return functional.all_reduce(x + 1, "sum", dist.group.WORLD) * 2


def gathered(x: Tensor) -> Tensor:
    return functional.all_gather_tensor(x + 1, 1, dist.group.WORLD) * 2


def scattered(x: Tensor) -> Tensor:
    return functional.reduce_scatter_tensor(x + 1, "max", 0, dist.group.WORLD) * 2


def exchanged(x: Tensor) -> Tensor:
    return functional.all_to_all_single(x + 1, [4], [4], dist.group.WORLD) * 2


def broadcast(x: Tensor) -> Tensor:
    return functional.broadcast(x + 1, 0, dist.group.WORLD) * 2


def reduced_in_place(x: Tensor) -> Tensor:
    y = x + 1
    part = y[1:]
    assert dist.all_reduce(y) is None
    dist.all_reduce(y, op=dist.ReduceOp.MAX, group=dist.group.WORLD)
    return y * part.sum()


def input_reduced(x: Tensor) -> Tensor:
    dist.all_reduce(x.mul_(2), dist.ReduceOp.PRODUCT)
    return x + 1


def gathered_in_place(x: Tensor) -> Tensor:
    out, parts = x.new_empty(x.shape), [x.new_empty(x.shape)]
    dist.all_gather_into_tensor(out, x)
    dist.all_gather(parts, x)
    return out * 2 + parts[0]


def scattered_in_place(x: Tensor) -> Tensor:
    out = x.new_empty(x.shape)
    dist.reduce_scatter_tensor(out, x, op=dist.ReduceOp.MIN)
    return out * 2


def exchanged_in_place(x: Tensor) -> Tensor:
    out, other = x.new_empty(x.shape), x.new_empty(x.shape)
    dist.all_to_all_single(out, x)
    dist.all_to_all_single(other, x, [4], [4])
    return out * 2 + other


def told(x: Tensor) -> tuple[Tensor, list[int], str]:
    group = dist.group.WORLD
    known = group.rank() + 2 * group.size() + 4 * dist.get_rank(group) + 8 * dist.get_world_size(group)
    return x + known, dist.get_process_group_ranks(group), group.group_name + group.name()


PROGRAMS = (
    reduced, gathered, scattered, exchanged, broadcast, reduced_in_place, input_reduced, gathered_in_place,
    scattered_in_place, exchanged_in_place, told,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_one_graph(fn: Callable[[Tensor], Any], backend: str) -> None:
    x = torch.randn(4, 3)
    compiled = api.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        mine, theirs = x.clone(), x.clone()
        found, expected = compiled(mine), fn(theirs)
        assert str(found) == str(expected)
        assert torch.equal(mine, theirs)


def test_kernels_around_a_collective() -> None:
    x = torch.randn(4, 3)
    torch.testing.assert_close(api.compile(reduced_in_place, fullgraph=True)(x), reduced_in_place(x))


@pytest.mark.filterwarnings("ignore:.* is deprecated")
def test_a_gradient_goes_through() -> None:
    def fn(x: Tensor) -> Tensor:
        return (functional.all_gather_tensor_autograd(x * 2, 0, dist.group.WORLD) ** 2).sum()

    mine, theirs = (torch.ones(4, 3, requires_grad=True) for _ in range(2))
    api.compile(fn, backend="eager", fullgraph=True)(mine).backward()
    fn(theirs).backward()
    assert mine.grad is not None and theirs.grad is not None and torch.equal(mine.grad, theirs.grad)


def test_another_group_is_another_graph() -> None:
    def fn(x: Tensor, group: Any) -> tuple[Tensor, str]:
        dist.all_reduce(y := x + 1, group=group)
        return y, group.group_name

    compiled = api.compile(fn, backend="eager", fullgraph=True)
    other = dist.new_group([0])
    for group in (dist.group.WORLD, other, dist.group.WORLD):
        assert compiled(torch.ones(2), group)[1] == group.group_name


def test_groups_made_anew() -> None:
    compiled = api.compile(reduced_in_place, backend="eager", fullgraph=True)
    x = torch.ones(4, 3)
    assert torch.equal(compiled(x), reduced_in_place(x))
    dist.destroy_process_group()
    with pytest.raises(ValueError, match="not been initialized"):
        api.compile(reduced_in_place, backend="eager")(x)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert torch.equal(compiled(x), reduced_in_place(x))


def reduces(x: Tensor, **options: Any) -> Tensor:
    dist.all_reduce(x, **options)
    return x + 1


@pytest.mark.parametrize(
    ("fn", "broken_by"),
    [
        (lambda x: reduces(x.clone(), async_op=True), "collective-async"),
        (lambda x: reduces(x.t().clone(memory_format=torch.preserve_format)), "collective-layout"),
        (lambda x: reduces(x.to(torch.complex64)), "collective-layout"),
        (lambda x: reduces(x.clone().requires_grad_().exp()), "collective-gradient"),
        (lambda x: reduces(x.clone(), group=3), "collective-group"),
        (lambda x: reduces(x.clone(), op=SCALED), "collective-reduction"),
        (lambda x: reduces(3), "collective-argument"),
        (lambda x: dist.all_gather([x.new_empty(12)], x) or x + 1, "collective"),
        (lambda x: dist.all_gather_into_tensor(x.new_empty(12), x) or x + 1, "collective"),
        (lambda x: dist.all_to_all_single(x.new_empty(4, 3), x.double()) or x + 1, "collective"),
    ],
)
@pytest.mark.filterwarnings("ignore:.* is deprecated")
def test_what_would_differ_breaks(fn: Callable[[Tensor], Any], broken_by: str) -> None:
    assert break_id(fn, (torch.ones(4, 3),)) == broken_by


def test_collectives_that_are_kept_break() -> None:
    def fn(x: Tensor) -> Tensor:
        y = x + 1
        dist.all_reduce(y)
        return y

    compiled = api.compile(fn, backend="eager")
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    with dist.distributed_c10d._coalescing_manager(dist.group.WORLD):
        assert break_id(fn, (torch.ones(2),)) == "collective"
        compiled(torch.ones(2))
        assert len(dist.distributed_c10d._world.pg_coalesce_state[dist.group.WORLD]) == 2
