"""What autograd says of histories, and where they keep their notes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from armature.torch_abi import released


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 2


SAVING = {
    "itself": (torch.exp, True),
    "a number": (lambda x: x * 2, True),
    "a list": (lambda x: x[torch.tensor([1])], True),
    "a function": (Doubled.apply, True),
    "sizes": (lambda x: x.sum(), False),
    "nothing": (lambda x: x + 1, False),
}


@pytest.mark.parametrize("name", SAVING)
def test_what_is_released(name: str) -> None:
    fn, saves = SAVING[name]
    x = torch.ones(3, requires_grad=True)
    y = fn(x)
    released.gradients_releasing(y.sum(), x)
    assert released.all_released(y) == saves
    if saves:
        with pytest.raises(RuntimeError) as error:
            released.gradients_releasing([y.sum()], (x,))
        assert str(error.value) == released.message()


def test_the_message_is_torchs() -> None:
    assert "second time" in released.message() and "retain_graph=True" in released.message()


def test_only_what_autograd_runs_is_released() -> None:
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    h = x.exp()
    y = h * w
    released.gradients_releasing(y.sum(), w)
    assert released.all_released(y) and not released.all_released(h) and not released.all_released(x)
    assert released.causes(y, [1, x, h, w]) == [1, 2, 3] and released.causes(h, [w, x]) == [1]


def test_a_history_that_autograd_refuses() -> None:
    x = torch.ones(3, requires_grad=True)
    made = released.with_released_history(x.detach(), [x])
    assert made.requires_grad and made.data_ptr() == x.data_ptr()
    with pytest.raises(RuntimeError) as error:
        made.sum().backward()
    assert str(error.value) == released.message()
