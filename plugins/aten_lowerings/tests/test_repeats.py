"""Elements repeated or left out in order: no index is left in the graph, and results and layouts are eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature
from armature.pipeline.session import session
from armature.testing.lowering_kit import Kit

aten = torch.ops.aten
INDICES = frozenset({aten.index.Tensor, aten._unsafe_index.Tensor})
Program = Callable[[Tensor], Tensor]


def indices_of(fn: Program, x: Tensor) -> int:
    """The number of indices that are left in the graph; checks the result on the way."""
    armature.reset()
    with torch.no_grad():
        wanted, found = fn(x), armature.compile(fn, fullgraph=True)(x)
    assert torch.equal(found, wanted)
    assert found.stride() == wanted.stride()
    [graph] = session().compilations[-1].graphs
    return sum(node.target in INDICES for node in graph.aten.module.graph.nodes)


GONE: dict[str, Program] = {
    "an image": lambda x: F.interpolate(x, scale_factor=2),
    "other factors": lambda x: F.interpolate(x, scale_factor=(3, 2)),
    "one axis": lambda x: F.interpolate(x, size=(6, 24)),
    "the exact nearest": lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"),
    "a row": lambda x: F.interpolate(x[0], scale_factor=4),
    "a volume": lambda x: F.interpolate(x[None], scale_factor=2),
    "an index": lambda x: x[:, torch.arange(9) // 3],
    "of the first axis": lambda x: x[torch.arange(4, dtype=torch.int32) // 2],
    "a broken factor": lambda x: F.interpolate(x, scale_factor=1.5),
    "fewer elements": lambda x: F.interpolate(x, scale_factor=0.5),
    "a step": lambda x: x[:, :, torch.arange(3) * 2 + 1],
    "an exact broken factor": lambda x: F.interpolate(x, size=(7, 5), mode="nearest-exact"),
    "of a computed image": lambda x: F.interpolate(x.abs() * 2, scale_factor=2).relu(),
}
LEFT: dict[str, Program] = {
    "uneven steps": lambda x: x[:, :, torch.tensor([0, 0, 1, 1, 2, 3, 3, 4, 4])],
    "a part": lambda x: x[:, :, torch.arange(3) + 2],
    "another order": lambda x: x[:, 2 - torch.arange(6) // 2],
    "the whole tensor again": lambda x: x[:, torch.arange(6) % 3],
    "one index for two axes": lambda x: x[torch.arange(2), torch.arange(2)],
    "another axis more": lambda x: x[:, (torch.arange(6) // 2)[None]],
    "axes apart": lambda x: x[(torch.arange(4) // 2)[:, None], :, torch.arange(12) // 2],
}


@pytest.mark.parametrize("fn", GONE.values(), ids=GONE)
def test_repeated_elements_are_not_looked_up(fn: Program) -> None:
    assert indices_of(fn, torch.randn(2, 3, 6, 8)) == 0


@pytest.mark.parametrize("fn", LEFT.values(), ids=LEFT)
def test_other_indices_stay(fn: Program) -> None:
    assert indices_of(fn, torch.randn(2, 3, 6, 8)) == 1


def test_images_with_channels_last_keep_their_layout() -> None:
    indices_of(GONE["an image"], torch.randn(2, 3, 6, 8).to(memory_format=torch.channels_last))


def test_gradients_of_repeated_elements() -> None:
    x, y = (torch.randn(2, 3, 6, 8, generator=torch.Generator().manual_seed(0)).requires_grad_() for _ in range(2))
    for fn in (GONE["an image"], GONE["an index"]):
        wanted = torch.autograd.grad(fn(x).square().sum(), x)
        found = torch.autograd.grad(armature.compile(fn, fullgraph=True)(y).square().sum(), y)
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool], ids=str)
def test_repeat_interleave(kit: Kit, dim: int, dtype: torch.dtype) -> None:
    x = (torch.randn(3, 5, 20) * 9).to(dtype)
    kit.check(aten.repeat_interleave.self_int, x, 3, dim)
    kit.check(aten.repeat_interleave.self_int, x.transpose(0, 2), 2, dim)
