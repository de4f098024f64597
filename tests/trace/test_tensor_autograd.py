"""What autograd, grad and inference mode, autocast and the default dtype and device do inside a compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import armature
from tests.support.tensor_programs import compare


def one_needs_grad() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(1.0, 7).reshape(2, 3).requires_grad_(), torch.linspace(1, 2, 6).reshape(2, 3)


def with_grads() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = one_needs_grad()
    (x * y).sum().backward()
    return x, y


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, y=None):
        ctx.factor = factor
        ctx.mark_non_differentiable()
        return x * factor, x.sum()

    @staticmethod
    def backward(ctx, grad, grad_sum):
        return grad * ctx.factor + grad_sum, None, None


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = output.shape

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def plain(x, y):
    return x * y, x.sin(), y + 1


def no_grad(x, y):
    with torch.no_grad():
        a = x * 2
    b = x * 3
    with torch.enable_grad():
        c = x * 4
    return a, b, c, torch.is_grad_enabled()


@torch.no_grad()
def decorated(x, y):
    return x * 2, torch.is_grad_enabled()


def inner_decorated(x, y):
    @torch.no_grad()
    def inner(z):
        return z * 2

    return inner(x), inner(y) + x


def set_grad(x, y):
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    z = x * 2
    torch.set_grad_enabled(before)
    return z, x * 3


def set_grad_context(x, y):
    with torch.set_grad_enabled(False):
        z = x * 2
        with torch.set_grad_enabled(True):
            w = x * 3
    return z, w


def grad_modes_and_exceptions(x, y):
    try:
        with torch.no_grad():
            z = x * 2
            raise ValueError("inside")
    except ValueError:
        return z, x * 3, torch.is_grad_enabled()


def leaves_grad_off(x, y):
    torch.set_grad_enabled(False)
    return x * 2


def inference(x, y):
    with torch.inference_mode():
        z = y * 2
    return x * 2, z.shape


def inference_result(x, y):
    with torch.inference_mode():
        return y * 2


def autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ y.t()
        with torch.autocast("cpu", enabled=False):
            w = x @ y.t()
        inside = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return z, w, inside, torch.is_autocast_enabled("cpu")


@torch.autocast("cpu", dtype=torch.bfloat16)
def autocast_decorated(x, y):
    return x @ y.t()


def detach(x, y):
    return x.detach() * 2, (x * 2).detach(), x.detach().requires_grad


def data(x, y):
    z = x.data * 2
    return z, z.requires_grad, x.data.is_leaf


def queries(x, y):
    z = x * 2
    return x.requires_grad, y.requires_grad, z.requires_grad, x.is_leaf, z.is_leaf, z.detach().is_leaf, y.grad_fn


def grad_fn_of(x, y):
    return (x * 2).grad_fn is not None, type((x * 2).grad_fn).__name__


def grad_of(x, y):
    g = x.grad
    return g * 2 if g is not None else x * 0, y.grad


def grad_in_place(x, y):
    if x.grad is not None:
        x.grad.mul_(2)
        x.grad.zero_()
    return x * 1


def clears_grad(x, y):
    x.grad = None
    return x * 2


def sets_grad(x, y):
    x.grad = torch.ones_like(x) * 3
    return x * 2


def update_under_no_grad(x, y):
    with torch.no_grad():
        x.sub_(0.1 * y)
    return x * 2


def backward_inside(x, y):
    loss = (x * y).sum()
    loss.backward()
    return loss


def grad_inside(x, y):
    (g,) = torch.autograd.grad((x**2 * y).sum(), x)
    return g * 2


def double_grad_inside(x, y):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    return g, h


def requires_grad_on_new(x, y):
    z = torch.ones(2).requires_grad_()
    return (z * x.sum()).sum(), z.requires_grad


def requires_grad_no_change(x, y):
    return x.requires_grad_() * 2, y.requires_grad_(False) * 2


def requires_grad_on_input(x, y):
    y.requires_grad_()
    return (x * y).sum()


def sets_requires_grad(x, y):
    y.requires_grad = True
    return (x * y).sum()


def retain(x, y):
    z = x * 2
    z.retain_grad()
    (z * y).sum().backward()
    return z.grad


def hook_on_result(x, y):
    z = x * 2
    z.register_hook(lambda g: g * 3)
    return z.sum()


def custom_function(x, y):
    return Cube.apply(x) + Cube.apply(y)


def custom_function_two(x, y):
    a, b = Scaled.apply(x, 2.0)
    return a * b


def custom_function_straight(x, y):
    return Straight.apply(x * 1.3) * y


def checkpointed(x, y):
    return checkpoint(lambda a, b: (a * b).sin().exp(), x, y, use_reentrant=False)


def checkpointed_kwargs(x, y):
    def body(a, scale=1.0):
        return torch.dropout(a * scale, 0.5, True)

    return checkpoint(body, x, scale=2.0, use_reentrant=False, preserve_rng_state=True)


def default_dtype(x, y):
    return torch.ones(2).dtype, torch.get_default_dtype(), torch.tensor(1.5).dtype


def sets_default_dtype(x, y):
    torch.set_default_dtype(torch.float64)
    return torch.ones(2)


def device_context(x, y):
    with torch.device("cpu"):
        return torch.ones(2) + x.sum(), torch.arange(3)


def device_meta(x, y):
    with torch.device("meta"):
        return torch.ones(2).device, x * 2


def cond(x, y):
    return torch.cond(y.sum() > 3, lambda a: a * 2, lambda a: a * 3, (y,))


def functional_grad(x, y):
    return torch.func.grad(lambda a: (a**2).sum())(y)


def vmapped(x, y):
    return torch.vmap(lambda a, b: (a * b).sum())(y, y)


def loss_functions(x, y):
    f = nn.functional
    target = torch.tensor([0, 2])
    return f.cross_entropy(x, target), f.mse_loss(x, y), f.smooth_l1_loss(x, y), f.nll_loss(x.log_softmax(1), target)


ONE_GRAPH = [
    plain, no_grad, decorated, inner_decorated, set_grad, set_grad_context, grad_modes_and_exceptions, autocast,
    autocast_decorated, detach, data, queries, grad_of, update_under_no_grad, requires_grad_no_change,
    custom_function, custom_function_two, custom_function_straight, checkpointed, checkpointed_kwargs, default_dtype,
    device_context, loss_functions, grad_in_place, clears_grad, sets_grad,
]  # fmt: skip
ANY = [
    leaves_grad_off, grad_fn_of, backward_inside, grad_inside, double_grad_inside,
    requires_grad_on_new, requires_grad_on_input, sets_requires_grad, retain, hook_on_result, sets_default_dtype,
    device_meta, cond, functional_grad, vmapped,
]  # fmt: skip


@pytest.mark.parametrize("function", ONE_GRAPH, ids=lambda function: function.__name__)
def test_in_one_graph(function: Callable[..., Any]) -> None:
    compare(function, one_needs_grad, fullgraph=True, backward=True)


@pytest.mark.parametrize("function", ANY, ids=lambda function: function.__name__)
def test_as_eager(function: Callable[..., Any]) -> None:
    compare(function, one_needs_grad, fullgraph=False)


@pytest.mark.parametrize("function", [grad_of, grad_in_place, clears_grad, sets_grad, plain], ids=lambda f: f.__name__)
def test_where_gradients_are_there_already(function: Callable[..., Any]) -> None:
    compare(function, with_grads, fullgraph=True, backward=True)


@pytest.mark.parametrize("function", [plain, no_grad, set_grad, autocast, inference], ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_inside_a_mode(function: Callable[..., Any], mode: Callable[[], Any]) -> None:
    compare(function, one_needs_grad, fullgraph=False, around=mode)


def test_a_custom_function_under_the_default_compiler() -> None:
    x, y = (t.detach().requires_grad_() for t in one_needs_grad())
    compiled = armature.compile(lambda a, b: custom_function(a * 2, b).sum(), backend="aot_eager", fullgraph=True)
    compiled(x, y).backward()
    torch.testing.assert_close(x.grad, 3 * (2 * x) ** 2 * 2)


def backward_to_leaves(x, y):
    loss = (x * y).sum()
    loss.backward(inputs=[x])
    return x.grad * 2, loss


def backward_to_one(x, y):
    (x.exp() * y).sum().backward(inputs=x)
    return y + 1


def backward_to_unused(x, y):
    made = torch.ones(3, requires_grad=True)
    return (made * 2).sum(), (x * y).sum().backward(inputs=(leaf for leaf in [x]))


def backward_twice(x, y):
    loss = (x * y).sum()
    loss.backward(inputs=[x], retain_graph=True)
    loss.backward(inputs=[x])
    return x.grad + 1


def gradient_and_loss(x, y):
    loss = (x**2 * y).sum()
    return loss, torch.autograd.grad(loss, x)[0] * 2


TO_LEAVES = [backward_to_leaves, backward_to_one, backward_to_unused, backward_twice, gradient_and_loss]


@pytest.mark.parametrize("make", [one_needs_grad, with_grads])
@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("function", TO_LEAVES, ids=lambda function: function.__name__)
def test_gradients_of_leaves_that_the_call_names(function: Callable[..., Any], backend: str, make: Any) -> None:
    """In one graph. The gradient is added to one that is there, in its memory."""
    armature.reset()
    mine, ours, theirs = armature.compile(function, backend=backend, fullgraph=True), make(), make()
    for _ in range(3):
        held = ours[0].grad
        torch.testing.assert_close(mine(*ours), function(*theirs), check_stride=True)
        torch.testing.assert_close(ours[0].grad, theirs[0].grad, check_stride=True)
        assert held is None or ours[0].grad is held


def test_hooks_on_leaves_run() -> None:
    """Those that are registered later, too."""
    armature.reset()
    mine, (x, y), seen = armature.compile(backward_to_one), one_needs_grad(), []
    mine(x, y)
    handle = x.register_post_accumulate_grad_hook(lambda leaf: seen.append("after"))
    mine(x, y)
    handle.remove()
    x.register_hook(lambda grad: seen.append("before"))
    mine(x, y)
    assert seen == ["after", "before"]


def names_its_gradient(x, y):
    given = torch.full_like(y, 2.0)
    (x + 0).backward(given, inputs=[x])
    given.add_(1)
    return x.grad + y


@pytest.mark.parametrize(("function", "several"), [(names_its_gradient, False), (backward_to_one, True)])
def test_gradients_that_the_engine_alone_can_add(
    function: Callable[..., Any], several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient that is given becomes the leaf's; several processes have hooks that can't be seen."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: several)
    armature.reset()
    ours, theirs = one_needs_grad(), one_needs_grad()
    torch.testing.assert_close(armature.compile(function)(*ours), function(*theirs))
    torch.testing.assert_close(ours[0].grad, theirs[0].grad)
    assert [found.type.id for found in armature.explain(function)(*ours).breaks] == ["tensor-backward"]


@pytest.mark.parametrize("broken", [False, True])
def test_a_break_gives_a_result_that_another_one_needs_a_gradient_of_its_own(broken: bool) -> None:
    """Otherwise both results come from one autograd node, where the other doesn't lead to this one."""

    def two_results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = x * 2
        if broken:
            armature.graph_break()
        return features.sin(), features

    x = torch.linspace(-1.0, 1.0, 5, requires_grad=True)
    result, features = armature.compile(two_results)(x)
    features.retain_grad()
    result.sum().backward()
    if broken:
        torch.testing.assert_close(features.grad, features.detach().cos())
    else:
        assert features.grad is None
    torch.testing.assert_close(x.grad, 2 * (2 * x.detach()).cos())
