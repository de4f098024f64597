"""What compiled graphs without gradients give and write to is used afterwards as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature

Program = Callable[[torch.Tensor, torch.Tensor], Any]


def detached_requires_gradients(x, p):
    x.detach().requires_grad_()
    z = x.detach()
    armature.graph_break()
    z.requires_grad_()
    return z, z is x, x.requires_grad


def memory_is_exchanged(x, p):
    z = x.detach()
    armature.graph_break()
    x.data = torch.full((3,), 5.0)
    z.mul_(2)
    return x, z


def view_of_input_joins_history(x, p):
    z = x.view(3)
    armature.graph_break()
    z.mul_(p)
    return x * 2, z, z is x


def view_of_result_joins_history(x, p):
    z = x * 2
    v = z[1:]
    armature.graph_break()
    v.mul_(p[1:])
    return z, v


def detached_view_does_not(x, p):
    z = x.detach()[1:]
    armature.graph_break()
    z.mul_(p[1:])
    return x, z


def same_size(x, p):
    z = x * 2
    armature.graph_break()
    v, w = z.view(3), z.detach()
    armature.graph_break()
    return v is z, w is z, v is w, z


PROGRAMS = [
    detached_requires_gradients, memory_is_exchanged, view_of_input_joins_history, view_of_result_joins_history,
    detached_view_does_not, same_size,
]  # fmt: skip


def outcome(program: Program) -> list[object]:
    x, p = torch.arange(1.0, 4), torch.full((3,), 2.0, requires_grad=True)
    seen: list[object] = []
    results = program(x, p)
    for value in (*results, x):
        if not isinstance(value, torch.Tensor):
            seen.append(value)
            continue
        grads = torch.autograd.grad(value.sum(), p, retain_graph=True, allow_unused=True) if value.grad_fn else None
        seen.append(
            (
                value.tolist(),
                value.requires_grad,
                value.is_leaf,
                None if grads is None or grads[0] is None else grads[0].tolist(),
            )
        )
    return seen


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda function: function.__name__)
def test_results_over_the_same_memory(program: Program, dynamic: bool | None) -> None:
    armature.reset()
    compiled = armature.compile(program, backend="auto", dynamic=dynamic)
    expected = outcome(program)
    assert outcome(compiled) == outcome(compiled) == expected


@pytest.mark.parametrize("write", [lambda x: x.mul_(2), lambda x: x.view(3).add_(1).sum(), lambda x: x[1:].zero_()])
def test_a_write_is_seen_by_what_was_saved_before(write: Callable[[torch.Tensor], Any]) -> None:
    armature.reset()
    compiled = armature.compile(write, backend="auto")
    for _ in range(2):
        p, x = torch.ones(3, requires_grad=True), torch.ones(3)
        loss = (p * x).sum()
        compiled(x)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_an_input_of_sizes_and_strides_that_change() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.view(3), y.detach(), y[1:], y[:2].neg()

    armature.reset()
    compiled = armature.compile(program, backend="auto")
    for y in (torch.ones(3), torch.ones(5), torch.arange(9.0).view(3, 3).t()[1], torch.arange(8.0)[::2]):
        x = torch.ones(3)
        found, expected = compiled(x, y), program(x, y)
        kept = [(t is x, t is y, t._is_view(), t._base is x, t.tolist()) for t in found]
        assert kept == [(t is x, t is y, t._is_view(), t._base is x, t.tolist()) for t in expected]


@pytest.mark.parametrize("learns", [False, True])
def test_a_write_through_data_is_not_counted(learns: bool) -> None:
    armature.reset()
    compiled = armature.compile(lambda x: x.data.mul_(2), backend="auto")
    for _ in range(2):
        p, x = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=learns)
        loss = (p * x).sum()
        compiled(x)
        loss.backward()
        assert (p.grad.tolist(), x._version) == ([2, 2, 2], 0)


def reads_another(p, x, q):
    q.data.mul_(2)
    return p * x


def reads_what_it_wrote(p, x, q):
    q.data.mul_(2)
    return q * x + p


def reads_before(p, x, q):
    result = q * q
    q.data.mul_(2)
    return result


@pytest.mark.parametrize("leaf", [False, True])
@pytest.mark.parametrize("program", [reads_another, reads_what_it_wrote, reads_before])
def test_no_gradient_comes_of_a_write_through_data(program: Callable[..., Any], leaf: bool) -> None:
    armature.reset()
    compiled = armature.compile(program, backend="auto", fullgraph=True)
    seen = []
    for function in (program, compiled, compiled):
        p, q = (torch.full((3,), 2.0, requires_grad=True) for _ in range(2))
        result = function(p, torch.arange(3.0), q if leaf else q * 1)
        result.sum().backward()
        seen.append([None if t is None else t.tolist() for t in (result, q, p.grad, q.grad)])
    assert seen[0] == seen[1] == seen[2]


def as_integers(x, p):
    return x.view(torch.int32), x


def as_integers_of_a_result(x, p):
    y = x * 2
    return y, y.view(torch.int32), y.view(torch.int32)[1:]


def as_integers_written(x, p):
    y = x.view(torch.int32)
    y.add_(1)
    return y, y[1:]


def conjugated(x, p):
    c = torch.complex(x, x * 2)
    return c.conj(), c.real, c.imag, c


def bits_of_what_learns(x, p):
    y = p * 2
    return y, y.view(torch.int32)


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize(
    "program", [as_integers, as_integers_of_a_result, as_integers_written, conjugated, bits_of_what_learns]
)
def test_views_as_other_numbers_share_memory(program, backend):
    def run(fn):
        x, p = torch.arange(1.0, 5)[1:], torch.full((3,), 2.0, requires_grad=True)
        results = fn(x, p)
        tensors = [*results, x]
        with torch.no_grad():
            results[0].mul_(2)
            x[1:].add_(1)
        shared = [[a.untyped_storage()._cdata == b.untyped_storage()._cdata for b in tensors] for a in tensors]
        return [(each.tolist(), each.stride(), each.storage_offset(), each.dtype) for each in tensors], shared

    assert run(armature.compile(program, backend=backend)) == run(program)


def split_input(x, p):
    return x.split(2)


def unbound_result(x, p):
    return (x * 2).unbind()


def made_without_gradients(x, p):
    with torch.no_grad():
        y = p.detach() * 2
        z = y[1:]
    return y, z


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("program", [split_input, unbound_result, made_without_gradients])
@pytest.mark.parametrize("position", [0, -1])
def test_views_that_must_not_join_a_history(program, position, backend):
    def run(fn):
        results = fn(torch.arange(1.0, 4), torch.full((3,), 2.0, requires_grad=True))
        try:
            results[position].mul_(torch.ones((), requires_grad=True))
            return [each.is_leaf for each in results]
        except RuntimeError as error:
            return str(error)

    assert run(armature.compile(program, backend=backend)) == run(program)
