"""torch.func inside compiled functions: like eager mode, in one graph where the function can be traced at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

import armature
from armature.trace.errors import GraphBreak
from tests.support.tensor_programs import compare
from tests.support.tracing import break_of, trace

torch.manual_seed(0)
NET = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def plain() -> tuple[torch.Tensor, ...]:
    return (torch.linspace(-1, 1, 12).reshape(3, 4),)


def leaf() -> tuple[torch.Tensor, ...]:
    return (torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_(),)


def weights() -> dict[str, torch.Tensor]:
    return {name: value.detach() for name, value in NET.named_parameters()}


def gradient(t):
    return grad(lambda x: (x**3).sum())(t)


def gradient_of_a_captured_sum(t):
    s = t.sum()
    return grad(lambda x: (x * s).sum())(t)


def gradients_of_two(t):
    return grad(lambda a, b: (a * b.sin()).sum(), argnums=(0, 1))(t, t + 1)


def gradient_and_aux(t):
    return grad(lambda a: ((a * a.sin()).sum(), {"aux": a + 1}), has_aux=True)(t)


def gradient_and_value(t):
    return grad_and_value(lambda x: x.sin().sum())(t)


def gradient_under_no_grad(t):
    with torch.no_grad():
        return grad(lambda x: (x**2).sum())(t)


def gradient_past_no_grad(t):
    def f(x):
        with torch.no_grad():
            c = x**2
        return (x - c).sum()

    return grad(f)(t)


def gradient_of_changes_in_place(t):
    def f(x):
        y = x * 1
        y.add_(1)
        y[0] = 0
        return (y**2).sum()

    return grad(f)(t)


def rows(t):
    return vmap(lambda r: r.sum() * r)(t)


def rows_with_another(t):
    return vmap(lambda r, s: r + s, in_dims=(0, None), out_dims=1)(t, t[0])


def rows_with_a_number(t):
    return vmap(lambda r, k: r * k, in_dims=(0, None))(t, 2.5)


def rows_with_captured(t):
    w = t[0] * 2
    return vmap(lambda r: (r * w).sum())(t)


def rows_of_a_dict(t):
    return vmap(lambda d: {"a": d["x"].sum(), "b": d["y"]}, in_dims=({"x": 0, "y": 0},))({"x": t, "y": t + 1})


def rows_to_two(t):
    return vmap(lambda r: (r, r.sum()), out_dims=(1, 0))(t)


def rows_in_chunks(t):
    return vmap(lambda r: r * 2, chunk_size=2)(t)


def rows_of_rows(t):
    return vmap(vmap(lambda x: x * 2 + 1))(t)


def rows_changed_in_place(t):
    return vmap(lambda r: r.add_(1))(t)


def rows_through_a_module(t):
    return vmap(NET)(t)


def rows_by_decorator(t):
    @vmap
    def f(r):
        return r.cumsum(0)

    return f(t)


ROW_SUMS = vmap(lambda r: r.sum())
SQUARES_GRADIENT = grad(lambda x: (x**2).sum())


def made_outside(t):
    return ROW_SUMS(t), SQUARES_GRADIENT(t)


def third_derivative(t):
    return vmap(vmap(grad(grad(grad(lambda x: x**4)))))(t)


def forward_mode(t):
    return jvp(torch.sin, (t,), (torch.ones_like(t),))


def forward_mode_twice(t):
    return jvp(lambda x: jvp(torch.sin, (x,), (torch.ones_like(x),))[1], (t,), (torch.ones_like(t),))


def forward_mode_aux(t):
    return jvp(lambda x: (x.sin(), x.cos()), (t,), (t,), has_aux=True)


def reverse_mode(t):
    out, back = vjp(torch.sin, t)
    return out, back(torch.ones_like(t)), back(t)


def hessian_times_vector(t):
    return jvp(grad(lambda x: (x**3).sum()), (t,), (torch.ones_like(t),))[1]


def jacobians(t):
    return jacrev(torch.sin)(t[0]), jacfwd(torch.sin)(t[0]), jacrev(lambda a, b: a * b, argnums=(0, 1))(t[0], t[1])


def jacobian_in_chunks(t):
    return jacrev(lambda a: a.sin(), chunk_size=2)(t[0])


def second_derivatives(t):
    return hessian(lambda x: (x**3).sum())(t[0])


def gradients_per_sample(t):
    def loss(params, x):
        return functional_call(NET, params, (x,)).sum()

    return vmap(grad(loss), in_dims=(None, 0))(weights(), t)


def ensemble(t):
    stacked = {name: torch.stack([value, value * 2]) for name, value in weights().items()}
    return vmap(lambda p, x: functional_call(NET, p, (x,)), in_dims=(0, None))(stacked, t)


def effects_of_the_function(t):
    seen = []

    def f(x):
        seen.append(tuple(x.shape))
        return (x**2).sum()

    return grad(f)(t), seen


def exception_that_is_caught(t):
    def f(x):
        raise ValueError(x.dim())

    try:
        vmap(f)(t)
    except ValueError as error:
        dims = error.args[0]
    return dims, vmap(lambda r: r + 1)(t)


def other_parameters(t):
    return functional_call(NET, {name: value * 2 for name, value in NET.named_parameters()}, (t,))


def own_parameters_after(t):
    other = functional_call(NET, {"0.weight": torch.ones(4, 4)}, t)
    return other, NET(t), [name for name, _ in NET.named_parameters()]


ONE_GRAPH = [
    gradient, gradient_of_a_captured_sum, gradients_of_two, gradient_and_aux, gradient_and_value,
    gradient_under_no_grad, gradient_past_no_grad, gradient_of_changes_in_place, rows, rows_with_another,
    rows_with_a_number, rows_with_captured, rows_of_a_dict, rows_to_two, rows_in_chunks, rows_of_rows,
    rows_changed_in_place, rows_through_a_module, rows_by_decorator, made_outside, third_derivative, forward_mode,
    forward_mode_twice, forward_mode_aux, reverse_mode, hessian_times_vector, jacobians, jacobian_in_chunks,
    second_derivatives, gradients_per_sample, ensemble, effects_of_the_function, exception_that_is_caught,
    other_parameters, own_parameters_after,
]  # fmt: skip


@pytest.mark.parametrize("program", ONE_GRAPH)
def test_one_graph(program: Callable[..., Any]) -> None:
    compare(program, plain, fullgraph=True)
    assert torch._C._functorch.maybe_current_level() is None


@pytest.mark.parametrize("program", [gradient, forward_mode, reverse_mode, other_parameters, jacobians])
def test_backward_through_it(program: Callable[..., Any]) -> None:
    compare(program, leaf, fullgraph=True, backward=True)


@pytest.mark.parametrize(
    "program", [gradient, gradient_and_aux, rows_to_two, forward_mode, reverse_mode, jacobians, gradients_per_sample]
)
@pytest.mark.parametrize("inputs", [plain, leaf])
def test_lowered(program: Callable[..., Any], inputs: Callable[[], Any]) -> None:
    armature.reset()
    expected = program(*inputs())
    found = armature.compile(program, fullgraph=True)(*inputs())
    torch.testing.assert_close(found, expected)


def squares(x):
    return (x.sin() * x).sum(-1)


def total(x):
    return (x.sin() * x).sum()


def twice(x):
    return x * 2


ROWS = torch.randn(3, 3)
LAYERS = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))

# Tensors that are first read inside a level, and are not of it.
OUTER: dict[str, Callable[[torch.Tensor], Any]] = {
    "grad": lambda t: grad(lambda y: LAYERS(y).sum())(t),
    "jacrev of a module": lambda t: jacrev(LAYERS)(t[0]),
    "jacfwd of a module": lambda t: jacfwd(LAYERS)(t[0]),
    "hessian of a module": lambda t: hessian(LAYERS)(t[0]),
    "vmap of jacrev of a module": lambda t: vmap(jacrev(LAYERS))(t),
    "a view of a parameter": lambda t: grad(lambda y: (y * VIEW).sum())(t),
    "rows of a tensor": lambda t: vmap(lambda y: y * ROWS[:, 1])(t),
    "one memory": lambda t: grad(lambda y: (y * ROWS * ROWS.t()).sum())(t),
}
VIEW = LAYERS[0].weight[:3].detach()


@pytest.mark.parametrize("program", OUTER.values(), ids=OUTER)
def test_tensors_first_read_inside_a_level(program: Callable[..., Any]) -> None:
    armature.reset()
    rows = torch.randn(3, 3)
    torch.testing.assert_close(armature.compile(program, fullgraph=True)(rows), program(rows))
    assert torch._C._functorch.maybe_current_level() is None


NESTED: dict[str, Callable[[torch.Tensor], Any]] = {
    "vmap of jacrev": lambda t: vmap(jacrev(torch.sin))(t),
    "vmap of jacfwd": lambda t: vmap(jacfwd(torch.sin))(t),
    "vmap of vmap of jacfwd": lambda t: vmap(vmap(jacfwd(torch.sin)))(t),
    "vmap of vmap of grad": lambda t: vmap(vmap(grad(torch.sin)))(t),
    "vmap of grad of grad": lambda t: vmap(grad(lambda y: grad(total)(y).sum()))(t),
    "vmap of jvp": lambda t: vmap(lambda y: jvp(total, (y,), (y,))[1])(t),
    "jacrev of jacrev": lambda t: jacrev(jacrev(squares))(t),
    "jacfwd of jacfwd": lambda t: jacfwd(jacfwd(squares))(t),
    "jacrev of jacfwd": lambda t: jacrev(jacfwd(squares))(t),
    "jacfwd of jacrev": lambda t: jacfwd(jacrev(squares))(t),
    "jacrev of vmap": lambda t: jacrev(vmap(total))(t),
    "grad of vmap": lambda t: grad(lambda y: vmap(total)(y).sum())(t),
    "jvp of jvp": lambda t: jvp(lambda z: jvp(squares, (z,), (z,))[1], (t,), (t,)),
    "jacrev of jacfwd, all zeros": lambda t: jacrev(jacfwd(twice))(t),
}


@pytest.mark.parametrize("inputs", [plain, leaf])
@pytest.mark.parametrize("program", NESTED.values(), ids=NESTED)
def test_nested_transforms_are_lowered(program: Callable[..., Any], inputs: Callable[[], Any]) -> None:
    armature.reset()
    expected = program(*inputs())
    found = armature.compile(program, fullgraph=True)(*inputs())
    torch.testing.assert_close(found, expected)
    assert torch._C._functorch.maybe_current_level() is None


def test_forward_modes_zeros_as_arguments() -> None:
    """They have no memory that a kernel could read."""
    armature.reset()
    (t,) = plain()
    zeros = jacrev(jacfwd(twice))(t[0])
    assert zeros._is_zerotensor()
    compiled = armature.compile(lambda a: (a * 2 + 1).relu())
    for given in (torch.rand(zeros.shape), zeros, torch.rand(zeros.shape)):
        torch.testing.assert_close(compiled(given), (given * 2 + 1).relu())


def prints(t):
    def f(x):
        print("inside")
        return (x**2).sum()

    return grad(f)(t) + 1


def asks_for_a_number(t):
    return vmap(lambda r: r * 2)(t) + grad(lambda x: (x * x.detach().sum().item()).sum())(t)


def branches(t):
    def f(x):
        if x.sum() > 0:
            return x.sum()
        return (x * 2).sum()

    return grad(f)(t)


def raises(t):
    def f(x):
        raise ValueError("no")

    return vmap(f)(t)


def wrong_dimension(t):
    return vmap(lambda r: r, in_dims=3)(t)


def not_a_scalar(t):
    return grad(lambda x: x)(t)


def changes_what_it_captured(t):
    z = torch.zeros(3, 4)

    def f(x):
        z.add_(x)
        return x.sum()

    return grad(f)(t), z


def break_between(t):
    out, back = vjp(torch.sin, t)
    print("between")
    return out, back(t)


def zeros_without_numbers(t):
    return jacfwd(jacfwd(twice))(t) + 0.0 * t  # torch's fake tensors have no zeros of forward mode


def made_of_a_graph(t):
    out, push = linearize(torch.sin, t)
    return out, push(t)


@pytest.mark.parametrize(
    "program",
    [
        prints, asks_for_a_number, branches, raises, wrong_dimension, not_a_scalar, changes_what_it_captured,
        break_between, made_of_a_graph, zeros_without_numbers,
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
def test_break(program: Callable[..., Any]) -> None:
    assert break_of(program, *plain())
    assert torch._C._functorch.maybe_current_level() is None, "tracing has left a level open"
    compare(program, plain, fullgraph=False)
    assert torch._C._functorch.maybe_current_level() is None


def test_a_tensor_of_the_inside_does_not_leave_the_graph() -> None:
    def escapes(t: torch.Tensor) -> Any:
        kept = []

        def f(x: torch.Tensor) -> torch.Tensor:
            kept.append(x)
            return (x**2).sum()

        return grad(f)(t), kept

    with pytest.raises(GraphBreak, match="value-not-rebuilt"):
        trace(escapes, *plain())
    armature.reset()
    found, kept = armature.compile(escapes, backend="eager")(*plain())
    torch.testing.assert_close(found, escapes(*plain())[0])
    assert torch._C._functorch.is_functorch_wrapped_tensor(kept[0])


class Counting(nn.Module):
    """Has a break, and a buffer that it replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x)
        print("forward")
        self.n = self.n + 1
        return self.fc(y) + self.n


def counting() -> tuple[Any, ...]:
    torch.manual_seed(0)
    return Counting(), torch.ones(3, 4)


def called_with_others(m, t):
    buffers = {"n": torch.ones(())}
    return functional_call(m, ({name: value * 2 for name, value in m.named_parameters()}, buffers), (t,)), buffers


def test_break_in_a_functional_call() -> None:
    compare(called_with_others, counting, fullgraph=False, backward=True)


def tied() -> tuple[Any, ...]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight = net[0].weight
    return net, torch.ones(3, 4)


def normed() -> tuple[Any, ...]:
    return nn.BatchNorm1d(4), torch.arange(12.0).reshape(3, 4)


def one_for_both(m, t):
    return functional_call(m, {"0.weight": torch.ones(4, 4)}, (t,)), m


def with_buffers(m, t):
    buffers = {name: value.clone() for name, value in m.named_buffers()}
    return functional_call(m, buffers, (t,)), buffers, m


def test_tied_parameters() -> None:
    compare(one_for_both, tied, fullgraph=True)


def test_buffers_that_forward_changes() -> None:
    compare(with_buffers, normed, fullgraph=True)


def missing(m, t):
    return functional_call(m, {"0.weight": torch.ones(4, 4)}, (t,), strict=True)


def test_strict() -> None:
    compare(missing, tied, fullgraph=False)


def test_inside_of_a_transform_the_function_runs_eagerly() -> None:
    armature.reset()
    compiled = armature.compile(lambda r: r.sin() + 1, backend="eager")
    compiled(torch.ones(4))
    torch.testing.assert_close(vmap(compiled)(*plain()), plain()[0].sin() + 1)
    torch.testing.assert_close(grad(lambda x: compiled(x).sum())(*plain()), plain()[0].cos())


def chosen_by_a_tensor(t):
    y = t + 1
    return torch.cond(t.sum() > 0, lambda x: x.sin() + y, lambda x: x.cos() - y, (t,))


def chosen_by_a_bool(t):
    return torch.cond(t.dim() == 2, lambda x: x.sin(), lambda x: x.cos(), (t,)), torch.cond(False, abs, torch.exp, [t])


def test_cond() -> None:
    compare(chosen_by_a_tensor, plain, fullgraph=True)
    compare(chosen_by_a_bool, plain, fullgraph=True)


def in_parts(t):
    return torch.utils.checkpoint.checkpoint_sequential(NET, 2, t, use_reentrant=False)


def test_checkpointed_sequence() -> None:
    compare(in_parts, leaf, fullgraph=True, backward=True)
