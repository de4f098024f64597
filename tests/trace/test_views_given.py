"""Inputs that are views of one tensor, an input or not: what is written to one gives a history to all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature import config

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def strict():
    with config.patch(strict=True):
        yield


def one_is_written(b, v, w, p):
    w.mul_(p)
    return v * w, v.requires_grad, w.requires_grad


def base_is_written(b, v, w, p):
    b.mul_(p)
    return v * w, v.requires_grad, w.requires_grad


def read_before(b, v, w, p):
    known = v.requires_grad
    w.mul_(p)
    return v * w, known, v.requires_grad, b.requires_grad


def both_are_written(b, v, w, p):
    v.add_(1)
    w.mul_(p)
    return v * w, v.requires_grad, b * 2


PROGRAMS = [one_is_written, base_is_written, read_before, both_are_written]


def views(size):
    b = torch.arange(2.0 * size).view(2, size).clone()
    return b, b[0], b[1]


def detached_first(size):
    b = torch.arange(2.0 * size).view(2, size).clone()
    return b, b.detach()[0], b[1]


def detached_second(size):
    b = torch.arange(2.0 * size).view(2, size).clone()
    return b, b[0], b.detach()[1]


def of_data(size):
    b = torch.arange(2.0 * size).view(2, size).clone()
    return b, b.data[0], b.data[1]


def separate(size):
    return torch.zeros(2, size), torch.ones(size), torch.ones(size)


KINDS = [views, detached_first, detached_second, of_data, separate]


def outcome(program: Program, made: tuple[torch.Tensor, ...]) -> list[object]:
    p = torch.full_like(made[1], 2.0).requires_grad_()
    value, *known = program(*made, p)
    grads = torch.autograd.grad(value.sum(), p) if value.requires_grad else [p]
    tensors = [*made, *(each for each in known if isinstance(each, torch.Tensor))]
    told = [(each.tolist(), each.requires_grad, each._version) for each in tensors]
    return [value.tolist(), grads[0].tolist(), told, [each for each in known if isinstance(each, bool)]]


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_kinds_of_views_follow_one_another(program, backend):
    for first in KINDS:
        armature.reset()
        compiled = armature.compile(program, backend=backend)
        for kind in (first, *KINDS):
            assert outcome(compiled, kind(4)) == outcome(program, kind(4)), (first, kind)


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_views_with_changing_sizes(program, backend):
    compiled = armature.compile(program, backend=backend, dynamic=True)
    for size in (4, 5, 9):
        assert outcome(compiled, views(size)) == outcome(program, views(size))


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_nobody_else_holds_the_base(backend):
    def program(x, p):
        b = x + 1
        v, w = b[0], b[1]
        del b
        armature.graph_break()
        w.mul_(p)
        return v * w, v.requires_grad

    def run(fn):
        p = torch.full((3,), 2.0, requires_grad=True)
        value, known = fn(torch.arange(6.0).view(2, 3), p)
        return value.tolist(), known, torch.autograd.grad(value.sum(), p)[0].tolist()

    assert run(armature.compile(program, backend=backend)) == run(program)


def test_one_graph():
    compiled = armature.compile(one_is_written, backend="eager", fullgraph=True)
    assert outcome(compiled, views(4)) == outcome(one_is_written, views(4))
