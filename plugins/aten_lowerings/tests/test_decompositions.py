"""What replaces operators gives their layouts, refuses what they refuse, and never gives its argument."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature
from armature.lower.data import ExternCall
from armature.pipeline.session import session


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


def compiled_as_loops(program: Callable[..., object], *args: Tensor) -> None:
    """The program gives what eager mode gives, and no operator of its graphs stays a call."""
    armature.reset()
    found, expected = armature.compile(lambda *args: program(*args), fullgraph=True)(*args), program(*args)
    torch.testing.assert_close(found, expected, check_stride=True, equal_nan=True)
    graphs = [graph for record in session().compilations for graph in record.graphs]
    assert graphs and not [step.target for graph in graphs for step in graph.plan.steps if isinstance(step, ExternCall)]


def filled_diagonal(x: Tensor) -> Tensor:
    x = x * 2
    x.diagonal(1).fill_(0)
    return x


GRID = torch.rand(4, 6) * 4 - 2
LOOPS: dict[str, Callable[[Tensor], object]] = {
    "diag_embed": lambda x: torch.diag_embed(x, 1) + 1,
    "cross": lambda x: torch.linalg.cross(x[:, :3], x[:, 3:]),
    "cross of a row": lambda x: torch.linalg.cross(x[:3], x[1:2, :1].expand(3, 6), dim=0),
    "block_diag": lambda x: torch.block_diag(x, x[0], x.new_ones(0, 2), x.T),
    "diagonal_copy": lambda x: torch.diagonal_copy(x, -1),
    "unfold_copy": lambda x: torch.unfold_copy(x, 1, 3, 2),
    "unbind_copy": lambda x: torch.unbind_copy(x, 1),
    "filled diagonal": filled_diagonal,
    "written diagonal": lambda x: torch.diagonal_scatter(x, x[0, :4] + 1, 2),
    "safe_softmax": lambda x: torch.ops.aten._safe_softmax(x.masked_fill(x > x[1:2].amin(), -torch.inf), -1),
    "xlog1py": lambda x: torch.special.xlog1py(x, x),
    "isposinf": lambda x: torch.isposinf(1 / x.relu()),
    "dropout, back": lambda x: torch.ops.aten.native_dropout_backward(x, x > 0, 2.0),
}


@pytest.mark.parametrize("name", LOOPS)
def test_operators_become_loops(name: str) -> None:
    compiled_as_loops(LOOPS[name], GRID)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reducing_scatters_become_loops(dtype: torch.dtype, reduce: str, include_self: bool) -> None:
    source, start = torch.rand(8, 3, dtype=dtype), torch.rand(4, 3, dtype=dtype)
    index = torch.tensor([0, 2, 2, 0, 2, 1, 1, 0])

    def program(start: Tensor, source: Tensor) -> Tensor:
        places = index[:, None].expand(8, 3)
        return start.scatter_reduce(0, places, source, reduce, include_self=include_self)

    compiled_as_loops(program, start, source)
    learned = start.clone().requires_grad_(), source.clone().requires_grad_()
    gradient = torch.rand_like(start)
    found = torch.autograd.grad(armature.compile(program, fullgraph=True)(*learned), learned, gradient)
    torch.testing.assert_close(found, torch.autograd.grad(program(*learned), learned, gradient))


@pytest.mark.parametrize("shape", [(1,), (1, 1), (5, 1), (1, 5), (2, 1, 3)])
def test_norms_over_axes_of_size_one_counted_from_the_back(shape: tuple[int, ...]) -> None:
    """torch 2.11 keeps such an axis in its decomposition, and in tensors without numbers."""

    def norms(t: torch.Tensor) -> list[torch.Tensor]:
        axes = (*range(-t.dim(), t.dim()), tuple(range(-t.dim(), 0)))
        made = [t.norm(p=2, dim=axis) for axis in axes]
        made += [torch.linalg.vector_norm(t, 3, axis, keepdim=True) for axis in axes]
        return [*made, t / t.norm(dim=-1, keepdim=True), t.norm()]

    x = torch.linspace(-1, 2, math.prod(shape)).reshape(shape)
    torch.testing.assert_close(armature.compile(norms, fullgraph=True)(x), norms(x))


@pytest.mark.parametrize("ends", [(0, 7), (4.3, 50), (4.3, 0), (-0.5, 3.9), (9, -3)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int8])
def test_integers_between_two_ends_are_the_kernels(ends: tuple[float, float], dtype: torch.dtype) -> None:
    def program(x: Tensor) -> list[Tensor]:
        return [x + torch.linspace(*ends, steps, dtype=dtype) for steps in (1, 2, 50)]

    compiled_as_loops(program, torch.zeros(1, dtype=dtype))


def test_integers_between_ends_that_change_share_code() -> None:
    def program(x: Tensor, end: int) -> Tensor:
        return x + torch.linspace(0, end, 5, dtype=torch.int64)

    x, compiled = torch.zeros(5, dtype=torch.int64), armature.compile(program, fullgraph=True)
    for end in (3, 7, 12, 50, -13):
        torch.testing.assert_close(compiled(x, end), program(x, end))
    assert len(session().compilations) == 2  # for 3, and for any


@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weight_norms_become_loops(dtype: torch.dtype, dim: int) -> None:
    v, g = torch.randn(5, 3, 4, dtype=dtype), torch.rand([5 if dim == 0 else 1, 1, 4 if dim == 2 else 1], dtype=dtype)
    aten = torch.ops.aten
    compiled_as_loops(lambda v, g: aten._weight_norm_interface(v, g, dim), v, g)

    def program(v: Tensor, g: Tensor) -> Tensor:
        return torch._weight_norm(v, g, dim).sin()

    given = [[t.clone().requires_grad_() for t in (v, g)] for _ in range(2)]
    compiled = armature.compile(program, fullgraph=True)
    found, expected = (
        torch.autograd.grad(f(*args), args, torch.ones_like(v))
        for f, args in zip((compiled, program), given, strict=True)
    )
    torch.testing.assert_close(found, expected)
    graphs = [graph for record in session().compilations for graph in record.graphs]
    assert not [step.target for graph in graphs for step in graph.plan.steps if isinstance(step, ExternCall)]


def test_a_weight_without_length_has_the_norm_of_eager() -> None:
    v, g = torch.zeros(2, 3), torch.ones(2, 1)
    v[0] = 1
    found = armature.compile(torch._weight_norm, fullgraph=True)(v, g, 0)
    torch.testing.assert_close(found, torch._weight_norm(v, g, 0), equal_nan=True)
