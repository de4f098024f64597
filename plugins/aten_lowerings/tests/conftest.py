"""The kit over this plugin's rows."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

import armature
from armature.lower.data import ExternCall
from armature.lower.lower import lower
from armature.testing.loop_evaluator import run_loops
from armature.testing.lowering_kit import Kit, ReferenceBackend, context, one_operator
from armature_aten_lowerings import plugin


@pytest.fixture(scope="session")
def kit() -> Kit:
    return Kit(tuple(plugin.armature_lowerings()))


@pytest.fixture
def on_gpu(kit: Kit) -> Callable[..., tuple[object, ...]]:
    """Computes an operator's results by the loops that it has on a GPU, without one."""
    backend = ReferenceBackend(device_types=frozenset(("cuda",)))

    def compute(op: torch._ops.OpOverload, *args: object) -> tuple[object, ...]:
        def faked(given: torch.Tensor) -> torch.Tensor:
            return torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device="cuda")

        with FakeTensorMode():
            fakes = pytree.tree_map_only(torch.Tensor, faked, args)
            loops = lower(one_operator(op, fakes, {}, op(*fakes)), context(kit.rows, backend))
        assert not any(isinstance(node, ExternCall) for node in loops.nodes)
        here = {name: attrs.evolve(one, device=torch.device("cpu")) for name, one in loops.buffers.items()}
        given = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        return tuple(run_loops(attrs.evolve(loops, buffers=here), given))

    return compute


@pytest.fixture(autouse=True)
def fresh() -> None:
    armature.reset()
    torch.manual_seed(0)
