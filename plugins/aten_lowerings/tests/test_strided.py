"""Views by strides, against eager."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import armature
from armature.lower.data import ExternCall
from armature.pipeline.session import session
from armature.testing.lowering_kit import Kit

aten = torch.ops.aten
X = torch.arange(24, dtype=torch.float32)
DENSE = {
    "row": X, "matrix": X.view(4, 6), "transposed": X.view(4, 6).t(), "part": torch.arange(40.0)[7:31].view(2, 3, 4),
    "ones": X.view(1, 4, 1, 6), "channels last": X.view(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
}  # fmt: skip
VIEWS = [
    ((5, 4), (3, 1), 0), ((2, 3, 4), (12, 4, 1), 0), ((3, 3), (1, 6), 2), ((4,), (0,), 3), ((), (), 23),
    ((2, 1, 3), (7, 99, 2), 1),
]  # fmt: skip


@pytest.mark.parametrize("x", DENSE.values(), ids=DENSE)
@pytest.mark.parametrize(("size", "stride", "offset"), VIEWS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16, torch.bool], ids=str)
def test_views(
    kit: Kit, x: Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int, dtype: torch.dtype
) -> None:
    whole = x.untyped_storage().nbytes() // 4
    memory = x.as_strided((whole,), (1,), 0).to(dtype)
    x = memory.as_strided(x.shape, x.stride(), x.storage_offset())
    start = x.storage_offset() + offset
    assert not kit.check(aten.as_strided.default, x, size, stride, start).nodes
    kit.check(aten.as_strided_copy.default, x, size, stride, start)
    if x.storage_offset() == 0 and 0 not in stride:
        source = torch.arange(100, 100 + torch.Size(size).numel()).view(size).to(dtype)
        overlaps = (size, stride) == ((5, 4), (3, 1))
        if not overlaps:
            kit.check(aten.as_strided_scatter.default, x, source, size, stride, start)


def test_memory_around_the_tensor_is_left_to_torch(kit: Kit) -> None:
    part = torch.arange(40.0)[10:20]
    for x, args in ((part, ((5,), (1,), 0)), (part, ((12,), (1,), 10)), (X.view(4, 6)[:, :3], ((3,), (1,), 0))):
        (call,) = kit.check(aten.as_strided.default, x, *args, extern=True).nodes
        assert isinstance(call, ExternCall)


def test_of_a_part_of_what_the_graph_makes() -> None:
    def program(x: Tensor) -> Tensor:
        made = x * 2
        return made[1:].as_strided((3, 2), (2, 1), 6) + made[1].as_strided((3, 2), (1, 2), 0)

    x = torch.randn(4, 6)
    armature.reset()
    assert torch.equal(armature.compile(program, fullgraph=True)(x), program(x))


def windows(x: Tensor) -> Tensor:
    return x.as_strided((x.shape[0] - 2, 3), (1, 1)).sin().sum(1)


def test_sliding_windows_of_sizes_that_vary() -> None:
    armature.reset()
    compiled = armature.compile(windows, fullgraph=True, dynamic=True)
    for length in (7, 12, 30):
        x = torch.randn(length)
        torch.testing.assert_close(compiled(x), windows(x))
    assert session().totals().extern == 0 and len(session().compilations) == 1


def test_sliding_windows_in_training() -> None:
    x = torch.randn(12, requires_grad=True)
    armature.reset()
    found, expected = armature.compile(windows, fullgraph=True)(x), windows(x)
    torch.testing.assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found.square().sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.square().sum(), x)[0])
    assert session().totals().extern == 0


def test_writes_to_a_view() -> None:
    def program(x: Tensor) -> Tensor:
        y = x.clone()
        y.as_strided((4,), (7,)).fill_(5)
        return y

    x = torch.randn(4, 6)
    armature.reset()
    assert torch.equal(armature.compile(program, fullgraph=True)(x), program(x))
    assert session().totals().extern == 0


def test_overlapping_writes_are_left_to_torch_which_makes_them_in_order(kit: Kit) -> None:
    (call,) = kit.check(
        aten.as_strided_scatter.default, X, torch.ones(3, 3).cumsum(0), (3, 3), (1, 1), extern=True
    ).nodes
    assert isinstance(call, ExternCall)
