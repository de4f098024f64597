"""The seam to tensors that hold others: what torch counts as one, and what it says of itself while it dispatches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._library.fake_class_registry import FakeScriptObject
from torch._subclasses.fake_tensor import FakeTensor
from torch.testing._internal.two_tensor import TwoTensor

from armature.torch_abi import fake, wrappers


class Noting(TwoTensor):
    seen: list[bool] = []

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        Noting.seen.append(wrappers.in_dispatch())
        return super().__torch_dispatch__(func, types, args, kwargs or {})


class Described(TwoTensor):
    said: Any = None

    def __tensor_flatten__(self):
        return ["a", "b"], self.said


def two(kind: Any = TwoTensor) -> Any:
    return kind(torch.ones(2, 3), torch.zeros(2, 3))


def test_which_classes_hold_tensors() -> None:
    kinds = (TwoTensor, torch.Tensor, nn.Parameter, nn.Buffer, FakeTensor, int)
    assert [wrappers.is_wrapper(kind) for kind in kinds] == [True, False, False, False, False, False]


def test_what_a_tensor_holds() -> None:
    x = two()
    assert wrappers.flatten(x).tensors == {"a": x.a, "b": x.b}
    assert [t is inner for t, inner in zip(wrappers.innermost(TwoTensor(x, x)), (x.a, x.b, x.a, x.b))] == [True] * 4
    assert list(wrappers.innermost(x.a)) == [x.a]
    assert wrappers.survives_rebuilding(x)
    assert not wrappers.survives_rebuilding(two(Described))


def test_a_class_that_dispatches_asks_nobody() -> None:
    assert wrappers.asks_as_tensors_do(TwoTensor)
    assert TwoTensor.__torch_function__ is torch._C._disabled_torch_function_impl


def test_fakes_are_of_the_class_and_share_memory() -> None:
    world = fake.FakeWorld()
    x = two().requires_grad_()
    made: Any = world.of(x)
    assert type(made) is TwoTensor and made.requires_grad and made.is_leaf
    assert made.a.untyped_storage()._cdata == world.of(x.a).untyped_storage()._cdata
    assert wrappers.fake_mode_of([3, made]) is world.mode
    assert isinstance(world.of(nn.Parameter(two())), nn.Parameter)
    with world.mode:
        out = made.detach().view(-1)
        version = fake.version_of(made)
        assert made.detach().add_(1).shape == (2, 3)
        assert fake.version_of(made) == version + 1
    assert type(out) is TwoTensor and isinstance(out.a, FakeTensor)
    deep: Any = world.of(TwoTensor(two(), two()))
    assert type(deep.a) is TwoTensor and isinstance(deep.a.b, FakeTensor)


OpaqueBase: Any = next(iter(wrappers.OPAQUE), object)
opaque = pytest.mark.skipif(not wrappers.OPAQUE, reason="this torch has no opaque objects")


class Meshed(TwoTensor):
    mesh: Any = None

    def __tensor_flatten__(self):
        return ["a", "b", "mesh"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        made = Meshed(inner["a"], inner["b"])
        made.mesh = inner["mesh"]
        return made


@opaque
def test_a_part_that_is_no_tensor() -> None:
    x, y = two(Meshed), two(Meshed)
    x.mesh = y.mesh = OpaqueBase()
    assert wrappers.flatten(x).tensors.keys() == {"a", "b"}
    assert wrappers.flatten(x).objects == {"mesh": x.mesh}
    assert wrappers.is_known(x.mesh) and not wrappers.is_known(object())
    assert wrappers.survives_rebuilding(x)
    test = wrappers.like(x)
    assert test(y)
    y.mesh = OpaqueBase()
    assert not test(y)


@opaque
def test_what_stands_for_such_a_part_in_a_graph() -> None:
    assert wrappers.is_part_placeholder(FakeScriptObject(OpaqueBase(), "Opaque", None))
    assert not wrappers.is_part_placeholder(OpaqueBase())


def test_metadata_is_compared_with_a_copy() -> None:
    x = two(Described)
    x.said = [1]
    test = wrappers.like(x)
    assert test(x)
    x.said[0] = 2
    assert not test(x)
    x.said = object()
    with pytest.raises(TypeError, match="copy"):
        wrappers.like(x)


def test_attributes_that_are_replaced_are_seen() -> None:
    x = TwoTensor(two(), two())
    before = wrappers.attributes_of(x)
    assert all(one is other for one, other in zip(before, wrappers.attributes_of(x), strict=True))
    x.a.b = torch.ones(2, 3)
    assert any(one is not other for one, other in zip(before, wrappers.attributes_of(x), strict=True))


def test_inside_of_a_dispatch() -> None:
    two(Noting) + 1
    assert Noting.seen == [True]
    with torch.inference_mode(), torch.no_grad():
        assert not wrappers.in_dispatch()
    assert not wrappers.in_dispatch()
