"""What replaces operators gives their layouts, refuses what they refuse, and never gives its argument."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("turn", [torch.clone, lambda x: x.transpose(2, 3), lambda x: x.permute(0, 3, 1, 2)])
def test_shuffled_channels(turn: Callable[[Tensor], Tensor], groups: int) -> None:
    def program(x: Tensor) -> Tensor:
        return F.channel_shuffle(x, groups)

    x = turn(torch.rand(2, 4, 6, 4))
    expected, given = program(x), armature.compile(program, fullgraph=True)(x)
    torch.testing.assert_close(given, expected, rtol=0, atol=0)
    assert given.stride() == expected.stride()
    assert given.data_ptr() != x.data_ptr()


def test_index_add_refuses_a_source_of_another_shape() -> None:
    def program(x: Tensor, source: Tensor) -> Tensor:
        return x.index_add(0, torch.tensor([0, 1]), source)

    compiled = armature.compile(program)
    x, source = torch.rand(3, 2), torch.rand(2, 2)
    torch.testing.assert_close(compiled(x, source), program(x, source))
    with pytest.raises(RuntimeError) as expected:
        program(x, source[0])
    with pytest.raises(RuntimeError) as given:
        compiled(x, source[0])
    assert str(given.value) == str(expected.value)
    torch.testing.assert_close(compiled(x, source), program(x, source))


@pytest.mark.parametrize("power", [lambda x: 2**x, lambda x: x**2, lambda x: 2 // x, lambda x: torch.copysign(x, x[0])])
def test_numbers_on_either_side_give_eagers_strides(power: Callable[[Tensor], Tensor]) -> None:
    x = torch.rand(5, 4).t() + 1
    expected, given = power(x), armature.compile(lambda x: power(x), fullgraph=True)(x)
    torch.testing.assert_close(given, expected)
    assert given.stride() == expected.stride()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_soft_margins_far_from_zero_have_gradients(reduction: str) -> None:
    def gradient(loss: Callable[..., Tensor], dtype: torch.dtype) -> Tensor:
        x = torch.linspace(-30, 30, 13, dtype=dtype, requires_grad=True)
        loss(x, torch.ones(13, dtype=dtype), reduction=reduction).sum().backward()
        return x.grad

    exact = gradient(F.soft_margin_loss, torch.float64)
    found = gradient(armature.compile(lambda *args, **kwargs: F.soft_margin_loss(*args, **kwargs)), torch.float32)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=0)
