"""Inputs that are reached only through unused outputs have no gradient, as in eager mode: optimizers tell None from
zeros."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx

import armature
from armature.torch_abi import undefined

Program = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]


def apart(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return x * a, b * 2, (a * b).sin()


def views(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    u, v = (x * a).sin(), (x * b).cos()
    return u, u.view(-1), v.t()


def parts(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    first, second = (a * 2).split(2)
    return first, second, b * x


def overlapping(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return (a * 2).unfold(0, 2, 1), (b * 3).expand(2, 3, 4), b.exp()


def written(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    x.add_(a)
    return b * 2, x * 3


def an_input(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return a, a * 2, b * x


def straight_through(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    z, q = x * a, x * b
    return z + (q - z).detach(), ((q - z.detach()) ** 2).sum()


def without_grad(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        factor = a * 2
    return x * b + factor, a * 3, b.exp()


def always_zero(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return (x * a).floor() + b, a * 2, a.sign() * b + a


def zeros_in_parts(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    first, second = (a * 2).split(2)
    return first.floor(), second * x[:1], b.unbind()[0].sign() + b[1]


def zeros_in_slices(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    whole = a * x
    return whole[:2].round(), whole[2:] * 2, torch.stack([b[0], b[1].floor(), a[0]])


PROGRAMS: tuple[Program, ...] = (
    apart, views, parts, overlapping, written, an_input, straight_through, without_grad, always_zero,
    zeros_in_parts, zeros_in_slices,
)  # fmt: skip


def gradients(program: Program, used: tuple[bool, ...], times: int = 1) -> list[Tensor | None]:
    """Of the inputs, after backward through the outputs that are used."""
    torch.manual_seed(0)
    leaves = [torch.randn(3, 4, requires_grad=True) for _ in range(3)]
    outputs = program(leaves[0] * 1, *leaves[1:])
    total = torch.stack([each.sum() for each, is_used in zip(outputs, used, strict=True) if is_used]).sum()
    for left in reversed(range(times)):
        total.backward(retain_graph=left > 0)
    return [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["auto", "eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_is_reached_through_unused_outputs_has_no_gradient(program: Program, backend: str, dynamic: bool) -> None:
    compiled = armature.compile(program, backend=backend, dynamic=dynamic)
    count = len(program(*(torch.ones(3, 4) for _ in range(3))))
    for used in filter(any, itertools.product((False, True), repeat=count)):
        for times in (1, 2):
            found, expected = gradients(compiled, used, times), gradients(program, used, times)
            assert [g is None for g in found] == [g is None for g in expected], used
            torch.testing.assert_close(
                [g for g in found if g is not None], [g for g in expected if g is not None], msg=str(used)
            )


def second_gradients(program: Program, used: tuple[bool, ...]) -> list[Tensor | None]:
    """Of the inputs: first derivatives through the outputs that are used, then those of the sum of their squares."""
    torch.manual_seed(0)
    leaves = [torch.randn(3, 4, requires_grad=True) for _ in range(3)]
    outputs = program(leaves[0] * 1, *leaves[1:])
    total = torch.stack([each.sin().sum() for each, is_used in zip(outputs, used, strict=True) if is_used]).sum()
    first = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
    squares = torch.stack([each.square().sum() for each in first if each is not None]).sum()
    second = torch.autograd.grad(squares, leaves, allow_unused=True) if squares.requires_grad else ()
    return [*first, *second]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_second_derivatives_of_captured_graphs(program: Program) -> None:
    compiled = armature.compile(program, backend="eager")
    count = len(program(*(torch.ones(3, 4) for _ in range(3))))
    for used in filter(any, itertools.product((False, True), repeat=count)):
        found, expected = second_gradients(compiled, used), second_gradients(program, used)
        assert [g is None for g in found] == [g is None for g in expected], used
        torch.testing.assert_close([g for g in found if g is not None], [g for g in expected if g is not None])


def test_weight_decay_leaves_parameters_without_gradient_alone() -> None:
    def train(program: Program) -> list[Tensor]:
        torch.manual_seed(0)
        x, a, b = (torch.randn(3, 4, requires_grad=True) for _ in range(3))
        optimizer = torch.optim.AdamW([a, b], lr=0.1, weight_decay=0.5)
        program(x * 1, a, b)[1].sum().backward()
        optimizer.step()
        return [a.detach(), b.detach()]

    torch.testing.assert_close(train(armature.compile(written)), train(written))


def test_feeds_are_read_from_both_graphs() -> None:
    aten = torch.ops.aten

    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        product = aten.mul.Tensor(x, y)
        return product, aten.sin.default(y), x, y

    def backward(x: Tensor, y: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
        return aten.mul.Tensor(first, y), aten.mul.Tensor(second, aten.cos.default(y))

    graphs = fx.symbolic_trace(forward), fx.symbolic_trace(backward)
    assert undefined.feeds(*graphs, [0, 1]) == (0b01, 0b10)
