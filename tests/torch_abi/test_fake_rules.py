"""The fake mode refuses what a rule says the kernel refuses, and asks the meta function as a rule writes the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from armature.torch_abi.fake import DYNAMIC_SHAPE, UNSUPPORTED_OPERATOR, FakeWorld
from armature.torch_abi.fake_rules import NO_RULES, AxesOfOne, FakeResult, FakeRules
from armature.torch_abi.known_strides import are_known

aten = torch.ops.aten


def are_alike(args: Sequence[Any]) -> bool:
    return bool(args[0].dtype == args[1].dtype)


def rows_first(args: Sequence[Any]) -> Sequence[Any]:
    return (args[0].contiguous(), *args[1:])


def test_operands_that_the_kernel_refuses() -> None:
    world, x = FakeWorld(rules=FakeRules(takes={aten.add.Tensor: are_alike})), torch.rand(2)
    with world.mode:
        assert (world.of(x) + world.of(x)).shape == (2,)
        with pytest.raises(
            RuntimeError, match=r"add.Tensor does not take tensors of torch.float32\[2\], torch.float64"
        ):
            world.of(x) + world.of(x).double()


def test_the_call_as_the_meta_function_gets_it() -> None:
    x = torch.rand(3, 2).t()
    for rules, strides in ((NO_RULES, (1, 2)), (FakeRules(rewritten={aten.flip.default: rows_first}), (3, 1))):
        world = FakeWorld(rules=rules)
        with world.mode:
            assert world.of(x).flip(0).stride() == strides


def test_operators_that_are_not_run_on_fakes() -> None:
    for reason, error in ((FakeResult.WRONG, UNSUPPORTED_OPERATOR), (FakeResult.UNSIZED, DYNAMIC_SHAPE)):
        world = FakeWorld(rules=FakeRules(fakes={aten.add.Tensor: reason}))
        with world.mode, pytest.raises(error):
            world.of(torch.rand(2)) + 1


def test_what_a_rule_says_of_axes_of_one() -> None:
    for axes in AxesOfOne:
        world = FakeWorld(rules=FakeRules(axes_of_one={aten.mm.default: axes}))
        with world.mode:
            x = world.of(torch.rand(1, 1))
            made = x @ x
        assert are_known(made) is (axes is not AxesOfOne.GUESSED)
    assert NO_RULES.of(aten.mm.default).axes_of_one is AxesOfOne.GUESSED
    assert NO_RULES.of(aten.add.Tensor).axes_of_one is NO_RULES.of(aten.view.default).axes_of_one is AxesOfOne.GIVEN


def test_layouts_that_need_no_mode() -> None:
    assert not NO_RULES.of(aten.add.Tensor).in_mode
    assert FakeRules(relaid={aten.mm.default: lambda args, result: result}).of(aten.mm.default).in_mode
