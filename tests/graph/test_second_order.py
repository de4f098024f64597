"""Gradients of compiled graphs that are differentiated again, against eager mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import armature
from armature.torch_abi import training

Function = Callable[..., Any]
Derive = Callable[..., Sequence[Tensor | None]]
REFUSED = "can't be differentiated"


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def compiled(fn: Function) -> Function:
    return armature.compile(fn, fullgraph=True)


def waves(x: Tensor, w: Tensor) -> Tensor:
    return ((x @ w).tanh() * x.sum(1, keepdim=True)).sin()


def sine_of_sums(x: Tensor, w: Tensor) -> Tensor:
    """Compiled, it keeps for backward neither its input nor its output: the sums are the fewest bytes."""
    return x.sum(0).sin() * w[0]


def attention(x: Tensor, w: Tensor) -> Tensor:
    q = (x @ w)[None, None]
    return F.softmax(q @ q.transpose(-1, -2) / 2, -1) @ q


def penalty(fn: Function, x: Tensor, w: Tensor) -> Sequence[Tensor | None]:
    """A gradient penalty: the norm of one gradient is part of the loss."""
    out = fn(x, w)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return torch.autograd.grad((slope.norm(2, dim=1) - 1).pow(2).mean() + out.mean(), (x, w))


def unrolled(fn: Function, x: Tensor, w: Tensor) -> Sequence[Tensor | None]:
    """Steps of gradient descent, through which a gradient of what they began with is taken."""
    fast = w
    for _ in range(3):
        (slope,) = torch.autograd.grad(fn(x, fast).pow(2).mean(), fast, create_graph=True)
        fast = fast - 0.1 * slope
    return torch.autograd.grad(fn(x, fast).sum(), (x, w))


def fourth(fn: Function, x: Tensor, w: Tensor) -> Sequence[Tensor | None]:
    value = fn(x, w).sum()
    for _ in range(3):
        value = torch.autograd.grad(value, x, create_graph=True)[0].square().sum()
    return torch.autograd.grad(value, (x, w))


def by_the_gradient_that_came_in(fn: Function, x: Tensor, w: Tensor) -> Sequence[Tensor | None]:
    out = fn(x, w)
    pulled = torch.ones_like(out, requires_grad=True)
    slopes = torch.autograd.grad(out, (x, w), pulled, create_graph=True)
    return torch.autograd.grad([s.sum() for s in slopes], (pulled, x, w), allow_unused=True)


def through_backward(fn: Function, x: Tensor, w: Tensor) -> Sequence[Tensor | None]:
    fn(x, w).sum().backward(create_graph=True)
    slope, x.grad, w.grad = x.grad, None, None
    assert slope is not None
    slope.square().sum().backward()
    return x.grad, w.grad


def hessian(fn: Function, x: Tensor, w: Tensor) -> Sequence[Tensor | None]:
    return (torch.autograd.functional.hessian(lambda t: fn(t, w).sum(), x),)


def many_at_once(fn: Function, x: Tensor, w: Tensor) -> Sequence[Tensor | None]:
    out = fn(x, w)
    basis = torch.eye(out.numel()).view(out.numel(), *out.shape)
    return torch.autograd.grad(out, (x, w), basis, is_grads_batched=True)


DERIVATIONS = [penalty, unrolled, fourth, by_the_gradient_that_came_in, through_backward, hessian, many_at_once]


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.parametrize("fn", [waves, sine_of_sums, attention])
@pytest.mark.parametrize("derive", DERIVATIONS)
def test_derivatives_of_gradients_are_those_of_eager_mode(derive: Derive, fn: Function) -> None:
    if fn is sine_of_sums and derive in (penalty, unrolled):
        pytest.skip("its gradients have no norm for each row")
    x, w = torch.randn(4, 3, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
    ours = derive(compiled(fn), x.clone().requires_grad_(), w.clone().requires_grad_())
    theirs = derive(fn, x.clone().requires_grad_(), w.clone().requires_grad_())
    for mine, wanted in zip(ours, theirs, strict=True):
        assert (mine is None) == (wanted is None)
        assert mine is None or torch.allclose(mine, wanted), derive


def test_a_module_and_its_parameters() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 1))
    results = []
    x = leaf(5, 3)
    for run in (armature.compile(net), net):
        (slope,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        results.append(torch.autograd.grad(slope.square().sum(), [*net.parameters()], allow_unused=True))
    for mine, wanted in zip(*results, strict=True):
        assert (mine is None) == (wanted is None)
        assert mine is None or torch.allclose(mine, wanted, atol=1e-5)


def test_inputs_that_depend_on_one_another_and_sizes_that_change() -> None:
    def run(fn: Function, n: int) -> Sequence[Tensor]:
        torch.manual_seed(0)
        x = leaf(n, 3)
        y = x.exp()
        (slope,) = torch.autograd.grad(fn(x, y), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), x)

    def fn(x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sin().sum() / x.shape[0]

    made = compiled(fn)
    for n in (3, 4, 5):
        assert torch.allclose(run(made, n)[0], run(fn, n)[0], atol=1e-5)


def test_autocast_of_the_call() -> None:
    def run(fn: Function) -> Tensor:
        torch.manual_seed(0)
        x, w = leaf(4, 3), leaf(3, 3)
        with torch.autocast("cpu", torch.bfloat16):
            out = fn(x, w)
        (slope,) = torch.autograd.grad(out.float().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), w)[0]

    assert torch.allclose(run(compiled(waves)), run(waves), rtol=0.05, atol=0.05)


def test_fused_attention_has_second_derivatives() -> None:
    def run(fn: Function) -> Tensor:
        torch.manual_seed(0)
        q = leaf(1, 2, 4, 8)
        (slope,) = torch.autograd.grad(fn(q).sum(), q, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), q)[0]

    def written_out(q: Tensor) -> Tensor:
        return F.softmax(q @ q.transpose(-1, -2) / 8**0.5, -1) @ q

    ours = run(compiled(lambda q: F.scaled_dot_product_attention(q, q, q)))
    assert torch.allclose(ours, run(written_out), atol=1e-4)


def written_to_since(fn: Function) -> None:
    x, w = leaf(4, 3), leaf(3)
    out = fn(x, w)
    with torch.no_grad():
        w.add_(1)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    slope.sum().backward()


def dropped_since(fn: Function) -> None:
    x, w = leaf(4, 3), leaf(3)
    out = fn(x * 2, w)
    (slope,) = torch.autograd.grad(out.sum(), w, create_graph=True)
    slope.sum().backward()


@pytest.mark.parametrize("use", [written_to_since, dropped_since])
def test_a_gradient_is_refused_that_would_take_inputs_as_they_were(use: Callable[[Function], None]) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return (x.sum(0) + w).sin()

    with pytest.raises(RuntimeError, match=REFUSED):
        use(compiled(fn))


@pytest.mark.parametrize("net", [nn.Dropout(0.5), nn.BatchNorm1d(3)], ids=["draws", "writes"])
def test_a_gradient_is_refused_of_graphs_that_would_do_something_else_when_run_again(net: nn.Module) -> None:
    x = leaf(4, 3)
    out = armature.compile(lambda x: net(x.sin()).sin())(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=REFUSED):
        slope.sum().backward()


@pytest.mark.parametrize("derived", [False, True])
def test_a_second_derivative_that_is_refused_is_never_left_out(derived: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training.second_order, "unchanged", lambda held: None)
    run = compiled(sine_of_sums)
    x, seed = leaf(4, 3), leaf(3)
    given, w = x * 2 if derived else x, torch.ones(1, 3)
    (first,) = torch.autograd.grad(run(given, w), given, seed, create_graph=True)
    for wanted in (x, given, seed):
        total = first.sum() + (wanted**2).sum()
        with pytest.raises(RuntimeError, match=REFUSED):
            torch.autograd.grad(total, wanted, retain_graph=True)
