"""Strides that torch's kernels choose are computed as they choose them; rows of plugins come before the general rule."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from armature.torch_abi import fake_layouts
from armature.torch_abi.fake import FakeWorld
from armature.torch_abi.fake_rules import NO_RULES, FakeRules

aten = torch.ops.aten


@given(st.data())
def test_strides_are_those_of_torch(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from((1, 2, 3)), min_size=1, max_size=5))

    def some(shape: list[int]) -> Tensor:
        order = data.draw(st.permutations(range(len(shape))))
        dense = torch.empty([shape[axis] for axis in order]).permute([order.index(k) for k in range(len(shape))])
        ones = st.sampled_from((1, 2, 7, 30))
        strides = [data.draw(ones) if size == 1 else step for size, step in zip(shape, dense.stride(), strict=True)]
        return torch.empty_strided(shape, strides)

    a, b = some(sizes), some([data.draw(st.sampled_from((1, size))) for size in sizes])
    pairs = [(tuple(one.shape), one.stride()) for one in (a, b)]
    assert fake_layouts.iterated_strides(tuple(sizes), pairs, False) == torch.add(a, b).stride()
    assert fake_layouts.iterated_strides(tuple(sizes), pairs[:1], True) == torch.add(a, 2.0).stride()


def test_the_format_is_that_of_the_strides() -> None:
    rows = torch.empty(2, 3, 4, 5)
    assert fake_layouts.suggested_format(rows) is torch.contiguous_format
    channels = rows.contiguous(memory_format=torch.channels_last)
    assert fake_layouts.suggested_format(channels) is torch.channels_last


def by_columns(args: object, result: Tensor) -> Tensor:
    return result.new_empty_strided(result.shape, (1, result.shape[0]))


@pytest.mark.parametrize("rules, strides", [(NO_RULES, (3, 1)), (FakeRules({aten.exp.default: by_columns}), (1, 2))])
def test_the_fake_mode_follows_the_rules(rules: FakeRules, strides: tuple[int, ...]) -> None:
    world = FakeWorld(rules=rules)
    with world.mode:
        assert world.of(torch.rand(2, 3)).exp().stride() == strides


def test_elementwise_operators_need_no_rule() -> None:
    assert NO_RULES.layout_of(aten.add.Tensor) is fake_layouts.as_iterated
    assert NO_RULES.layout_of(aten.mm.default) is None
