"""What derivatives of compiled gradients rest on: version counters, weak references to tensors, attention by parts."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from armature.torch_abi import second_order

aten = torch.ops.aten


def captured(function: Callable[..., object], *inputs: Tensor) -> fx.GraphModule:
    return make_fx(function)(*inputs)


def test_what_is_remembered_is_not_kept_alive() -> None:
    x, y = torch.randn(3), torch.randn(3)
    remember = second_order.remembering((), ())
    inputs = remember([x, y])
    assert inputs is not None
    found = second_order.unchanged(inputs)
    assert found is not None and found[0] is x and found[1] is y
    del found
    gone = weakref.ref(y)
    del y
    gc.collect()
    assert gone() is None and second_order.unchanged(inputs) is None


def test_writes_are_counted() -> None:
    x = torch.randn(3)
    inputs = second_order.remembering((), ())([x])
    assert inputs is not None and second_order.unchanged(inputs) is not None
    x.add_(1)
    assert second_order.unchanged(inputs) is None


def test_numbers_and_own_tensors_are_held() -> None:
    inputs = second_order.remembering((0,), (1,))([4, torch.ones(2)])
    assert inputs is not None
    found = second_order.unchanged(inputs)
    assert found is not None and found[0] == 4 and torch.equal(found[1], torch.ones(2))


def test_tensors_of_inference_mode_are_not_remembered() -> None:
    with torch.inference_mode():
        x = torch.randn(3)
    assert second_order.remembering((), ())([x]) is None


def test_a_graph_run_once_more_has_second_derivatives() -> None:
    x = torch.randn(3, requires_grad=True)
    module = captured(lambda x: (x.sin(),), x)
    replay = second_order.replay_of(module, module, (0,))
    assert replay is not None
    (gradient,) = replay.gradients([x], [(0, torch.ones(3))])
    assert gradient is not None
    (second,) = torch.autograd.grad(gradient.sum(), x)
    torch.testing.assert_close(second, -x.detach().sin())


def test_attention_has_second_derivatives() -> None:
    q = torch.randn(1, 2, 8, 16, requires_grad=True)

    class Attends(torch.nn.Module):
        def forward(self, q: Tensor) -> tuple[Tensor]:
            return (torch.nn.functional.scaled_dot_product_attention(q, q, q),)

    (gradient,) = second_order.Replay(fx.symbolic_trace(Attends()), (0,), ()).gradients([q], [(0, torch.ones_like(q))])
    assert gradient is not None
    (second,) = torch.autograd.grad(gradient.sum(), q)
    assert torch.isfinite(second).all()


@pytest.mark.parametrize(
    "function", [torch.rand_like, lambda x: x.add_(1), lambda x: aten.native_dropout(x, 0.5, True)[0]]
)
def test_graphs_that_give_something_else_are_not_run_again(function: Callable[[Tensor], Tensor]) -> None:
    module = captured(lambda x: (function(x),), torch.randn(3))
    assert second_order.replay_of(module, module, (0,)) is None
