"""Products of matrices as loops: for a back end that computes them, in compilations that measure."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest
import torch

from armature import config
from armature.lower.data import ExternCall, LoopGraph
from armature.lower.lower import lower
from armature.lower.verify import verify
from armature.testing.loop_evaluator import run_loops
from armature.testing.lowering_kit import EVERYTHING, Kit, ReferenceBackend, context, one_operator

aten = torch.ops.aten
BACKEND = ReferenceBackend(
    features=attrs.evolve(EVERYTHING, products=frozenset((torch.float32, torch.bfloat16, torch.int8)))
)


@pytest.fixture
def measuring() -> Iterator[None]:
    with config.patch(autotune=True):
        yield


def lowered(kit: Kit, op: torch._ops.OpOverload, *args: object, **kwargs: object) -> LoopGraph:
    graph = lower(one_operator(op, args, kwargs, op(*args, **kwargs)), context(kit.rows, BACKEND))
    verify(graph)
    return graph


def check(kit: Kit, op: torch._ops.OpOverload, *args: object, **kwargs: object) -> None:
    graph = lowered(kit, op, *args, **kwargs)
    assert not any(isinstance(node, ExternCall) for node in graph.nodes)
    tensors = [leaf for leaf in args if isinstance(leaf, torch.Tensor)]
    (found,) = run_loops(graph, tensors)
    assert isinstance(found, torch.Tensor)
    kit.close(found, op(*args, **kwargs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_they_are_what_eager_gives(kit: Kit, measuring: None, dtype: torch.dtype) -> None:
    x, w, bias = torch.randn(5, 7).to(dtype), torch.randn(9, 7).to(dtype).t(), torch.randn(9).to(dtype)
    check(kit, aten.mm.default, x, w)
    check(kit, aten.mm.default, x[:1], w[:, :1])
    check(kit, aten.addmm.default, bias, x, w)
    check(kit, aten.addmm.default, bias, x, w, beta=0.5, alpha=2)
    check(kit, aten.bmm.default, x.expand(3, 5, 7), torch.randn(3, 7, 4).to(dtype))
    check(kit, aten.baddbmm.default, torch.randn(5, 1).to(dtype), x.expand(3, 5, 7), torch.randn(3, 7, 4).to(dtype))


def test_what_is_multiplied_by_zero_is_not_read(kit: Kit, measuring: None) -> None:
    nothing = torch.full((9,), float("nan"))
    check(kit, aten.addmm.default, nothing, torch.randn(5, 7), torch.randn(7, 9), beta=0)


def test_of_integers(kit: Kit, measuring: None) -> None:
    x, w = (torch.randint(-128, 128, shape).to(torch.int8) for shape in ((32, 24), (24, 16)))
    check(kit, aten._int_mm.default, x, w)


def test_elsewhere_they_stay_aten_calls(kit: Kit) -> None:
    x, w = torch.randn(5, 7), torch.randn(7, 9)
    assert isinstance(lowered(kit, aten.mm.default, x, w).nodes[0], ExternCall)
    with config.patch(autotune=True):
        assert isinstance(kit.lower(aten.mm.default, x, w).nodes[0], ExternCall)
        assert isinstance(lowered(kit, aten.mm.default, x.double(), w.double()).nodes[0], ExternCall)
