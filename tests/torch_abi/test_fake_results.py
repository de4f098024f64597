"""Results of operators on fakes that are made from memory are those that torch computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from armature.plugins import manager
from armature.torch_abi.fake import FakeWorld, of_transform
from armature.torch_abi.fake_results import keyed_call
from armature.torch_abi.fake_rules import FakeRules
from armature.torch_abi.varying import Varying

CALLS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "new memory": lambda x, y: (x + y, x * 2, x @ y.mT, x.relu(), F.linear(x, y), x.clone(), x.double(), x > y),
    "views": lambda x, y: (x.mT, x.view(1, -1), x[1:, ::2], x.unsqueeze(0).expand(3, -1, -1), x.detach(), x[0]),
    "views of views": lambda x, y: x[1:].mT.unsqueeze(1)[..., 1:],
    "parts": lambda x, y: (x.split(1), x.chunk(2, 1), x.unbind()),
    "several results": lambda x, y: torch.native_layer_norm(x, [4], None, None, 1e-5),
    "products of batches": lambda x, y: torch.matmul(x.expand(2, 3, 4), y.mT),
    "attention": lambda x, y: F.scaled_dot_product_attention(x[None, None], y[None, None], x[None, None]),
    "convolution": lambda x, y: F.conv1d(x[None], y.reshape(2, 3, 2)),
    "of no tensor": lambda x, y: (torch.zeros(2, 3), torch.arange(3), torch.ones(2, dtype=torch.int64)),
    "conjugates": lambda x, y: (torch.complex(x, y).conj() * 2, torch.complex(x, y).conj().imag),
    "broken down": lambda x, y: (F.gelu(x).mean(1, keepdim=True), x.softmax(-1), x.reshape(-1), F.pad(x, (0, 1))),
    "in place": lambda x, y: (x + 1).mul_(y).mT.add_(1),
    "an index": lambda x, y: (x[torch.tensor([0, 2])], x[:, None, torch.arange(2)]),
}
CONTEXTS: dict[str, Callable[[], Any]] = {
    "gradients": contextlib.nullcontext,
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
}


def facts(result: Any, given: tuple[Tensor, ...]) -> list[Any]:
    """All that a fake tells, but for its history."""
    found: list[Any] = []
    for one in pytree.tree_leaves(result):
        if isinstance(one, Tensor):
            shared = [one.untyped_storage()._cdata == other.untyped_storage()._cdata for other in given]
            kept = {k: v for k, v in vars(one).items() if k != "fake_mode" and "epoch" not in k}
            found += [
                type(one), one.shape, one.stride(), one.storage_offset(), one.dtype, one.device, one.requires_grad,
                one.is_leaf, type(one.grad_fn), one.is_inference(), one._is_view(), one.is_conj(), one.is_neg(),
                0 if one.is_inference() else one._version, one.untyped_storage().nbytes(), shared, kept,
                torch._C._dispatch_key_set(one),
            ]  # fmt: skip
        else:
            found.append(one)
    return found


def run(rules: FakeRules, call: Callable[..., Any], context: Callable[[], Any], remembers: bool) -> list[Any]:
    """What a call gives on fakes of a new world."""
    world = FakeWorld(rules=rules)
    world.mode.cache_enabled = remembers
    with context():
        reals = torch.rand(3, 4, requires_grad=True), torch.rand(3, 4)  # a world knows them by their ids
        given = world.of(reals[0]), world.of(reals[1])
        with world.mode:
            result = call(*given)
            assert all(one.fake_mode is world.mode for one in pytree.tree_leaves(result) if type(one) is FakeTensor)
            return facts(result, given)


@pytest.fixture
def rules() -> FakeRules:
    return attrs.evolve(manager().tables().fake_rules)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", CALLS)
def test_a_remembered_result_is_what_torch_computes(name: str, context: str, rules: FakeRules) -> None:
    call, inside = CALLS[name], CONTEXTS[context]
    expected = run(rules, call, inside, remembers=False)
    assert not rules.results
    for _ in range(3):
        assert run(rules, call, inside, remembers=True) == expected
    assert any(rules.results.values()), "nothing was remembered"


def test_results_depend_on_types_layouts_and_the_default_dtype(rules: FakeRules) -> None:
    world = FakeWorld(rules=rules)
    x = world.of(torch.rand(3, 4))
    with world.mode:
        assert [(x.int() + n).dtype for n in (1, 1.0, True)] == [torch.int32, torch.float32, torch.int32]
        assert [one.clone().stride() for one in (x, world.of(torch.rand(4, 3)).mT)] == [(4, 1), (1, 3)]
        narrow = torch.zeros(2)
        torch.set_default_dtype(torch.float64)
        try:
            assert [narrow.dtype, torch.zeros(2).dtype] == [torch.float32, torch.float64]
        finally:
            torch.set_default_dtype(torch.float32)


def test_draws_and_writes_are_told_each_time(rules: FakeRules) -> None:
    for _ in range(2):
        world = FakeWorld(rules=rules)
        x = world.of(torch.rand(3, 4))
        with world.mode, torch.no_grad():
            assert not world.random
            torch.rand_like(x)
            assert world.random
            x.add_(1)
            assert [one for one, _ in world.take_written()] == [x]


def test_a_part_of_fixed_size_of_memory_of_unknown_size_is_computed(rules: FakeRules) -> None:
    world = FakeWorld(rules=rules)
    real = torch.rand(6, 4)
    x = world.of(real, axes=Varying(frozenset({0})))
    with world.mode:
        assert (x[:1].view(4) + 1).shape == (4,)
        assert x.as_strided((2,), (1,)).clone().shape == (2,)


def test_what_a_key_does_not_say_is_not_asked_of_memory() -> None:
    world, other, add = FakeWorld(), FakeWorld(), torch.ops.aten.add.Tensor
    real, longer, sparse = torch.rand(3), torch.rand(4), torch.rand(3).to_sparse()  # worlds know them by their ids
    x = world.of(real)
    assert keyed_call(world.mode, add, (x, x), {"alpha": 2}) is not None
    unknown = (real, other.of(real), world.of(longer, axes=Varying(frozenset({0}))), world.of(sparse), object())
    assert all(keyed_call(world.mode, add, (x, one), {}) is None for one in unknown)


def test_the_fake_of_an_input_is_of_no_level(rules: FakeRules) -> None:
    """Torch wraps what is made inside a level of a transform, except while the stack of levels is empty."""
    found: list[Tensor] = []
    real = torch.ones(2)

    def inside(x: Tensor) -> Tensor:
        found.append(torch.empty(2))
        found.append(FakeWorld(rules=rules).of(real))
        return x.sum()

    torch.func.grad(inside)(torch.ones(2))
    assert [of_transform(tensor) for tensor in found] == [True, False]
    assert isinstance(found[1], FakeTensor)
