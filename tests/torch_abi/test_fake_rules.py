"""The fake mode refuses what a rule says the kernel refuses, and asks the meta function as a rule writes the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from armature.torch_abi.fake import FakeWorld
from armature.torch_abi.fake_rules import NO_RULES, FakeRules

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
