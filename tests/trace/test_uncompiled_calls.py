"""Calls that no back end is given: on real tensors when the graph runs, with what is around them compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import armature
from armature.pipeline.session import session
from armature.plugin_api import (
    Call,
    Decision,
    Handler,
    Rule,
    Value,
    call_uncompiled,
    handles,
    hookimpl,
)
from armature.plugins import manager

Tensor = torch.Tensor
BACKENDS = ["eager", "aot_eager", "auto"]


def add_to(x: Tensor, out: Tensor, factor: float) -> None:
    """As a kernel does it: nothing but memory changes."""
    memory = out.detach().numpy()
    memory += x.detach().numpy() * factor


@handles(add_to)
def handler(call: Call, x: Value, out: Value, factor: Value) -> Value:
    return call_uncompiled(call.tracing, add_to, "add_to", [x, out, factor], frozenset({0}))


class Plugin:
    @hookimpl
    def armature_handlers(self) -> list[Handler]:
        return [handler.__armature_handler__]  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    armature.reset()
    with manager().registered(Plugin(), "outside"):
        yield
    armature.reset()


def same(fn: Callable[..., Any], backend: str, *args: Tensor, kernels: int | None = None, **options: Any) -> None:
    """Results, arguments and gradients as in eager mode."""
    found = []
    for run in (fn, armature.compile(fn, backend=backend, fullgraph=True, **options)):
        given = [arg.detach().clone().requires_grad_(arg.requires_grad) for arg in args]
        out = run(*given)
        outs = out if isinstance(out, tuple) else (out,)
        if any(one.requires_grad for one in outs):
            sum(one.sum() for one in outs).backward()
        found.append((outs, given, [one.grad for one in given if one.grad is not None], [g._version for g in given]))
    torch.testing.assert_close(*found)
    if backend == "auto" and kernels is not None:
        assert len(session().kernel_sources()) == kernels


@pytest.mark.parametrize("backend", BACKENDS)
def test_pieces(backend: str) -> None:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        a = x.sin() + 1
        out = torch.zeros(a.shape[0] * 2)
        add_to(a.view(-1), out[: a.shape[0]], 2.0)
        b = out[: a.shape[0]] * 2 + a
        add_to(b, y, a.shape[0] / 4)
        return b.cos() * y, out

    same(fn, backend, torch.randn(6), torch.randn(6), kernels=3)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_views_of_what_a_piece_makes(backend: str, dynamic: bool | None) -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        rows = torch.zeros(4, x.shape[0]) + 1
        part = rows[1:3]
        add_to(x.expand(2, x.shape[0]), part, 1.0 * x.shape[0])
        return rows * 2, part, rows[1] + 1

    for n in (5, 6, 7):
        same(fn, backend, torch.randn(n), dynamic=dynamic)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_argument_is_written(backend: str) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        z = y * 2
        add_to(x, y, 2.0)
        add_to(x, y, 1.0)
        return y + z

    same(fn, backend, torch.randn(5), torch.randn(5), kernels=2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_around(backend: str) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        hidden = (x * w).tanh()
        out = torch.zeros_like(hidden)
        with torch.no_grad():
            add_to(hidden, out, 2.0)
        return (hidden * out).sin()

    same(fn, backend, torch.randn(5), torch.randn(5, requires_grad=True))
    if backend == "auto":
        assert len(session().compilations[0].graphs) >= 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_way_back_reads_what_it_would_in_eager_mode(backend: str) -> None:
    """Where it could compute something again from what was overwritten, or keeps what is, the graph runs as it is."""

    def again(x: Tensor, w: Tensor) -> Tensor:
        product = x.sin() * w
        add_to(product, x, 2.0)
        return product.sum() + x.sum()

    def kept(x: Tensor, w: Tensor) -> Tensor:
        root = w.exp()
        square = root * root
        add_to(x, root, 2.0)
        return square.sum()

    def written_later(x: Tensor, w: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        add_to(x, out, 1.0)
        out.mul_(w.sum())
        add_to(x, out, 1.0)
        return out.cos()

    for fn in (again, kept, written_later):
        same(fn, backend, torch.randn(5), torch.randn(5, requires_grad=True))


def test_the_grad_mode_is_set_back_where_a_call_raises() -> None:
    def fn(x: Tensor) -> Tensor:
        out = torch.zeros(3)
        with torch.no_grad():
            add_to(x, out, 1.0)
        return out + 1

    compiled = armature.compile(fn, fullgraph=True, dynamic=True)
    torch.testing.assert_close(compiled(torch.ones(3)), fn(torch.ones(3)))
    with pytest.raises(ValueError):
        compiled(torch.ones(7))
    assert torch.is_grad_enabled()


class Labelled(torch.Tensor):
    """A tensor of another class, which such a call may treat as it likes."""


def outside_of_labelled(x: Tensor) -> Tensor:
    out = torch.zeros(3)
    add_to(x, out, 2.0)
    return out


def outside_in_vmap(x: Tensor) -> Tensor:
    def one(row: Tensor) -> Tensor:
        out = torch.zeros(3)
        add_to(torch.ones(3), out, 2.0)
        return row + out

    return torch.vmap(one)(x)


@pytest.mark.parametrize(
    ("fn", "x"), [(outside_of_labelled, torch.ones(3).as_subclass(Labelled)), (outside_in_vmap, torch.ones(2, 3))]
)
def test_arguments_that_are_no_plain_tensors_break_the_graph(fn: Callable[[Tensor], Tensor], x: Tensor) -> None:
    assert torch.equal(armature.compile(fn, backend="eager")(x), fn(x))
    assert "argument-of-outside-call" in {event.type.id for one in session().compilations for event in one.breaks}


class Rules:
    """A plugin that puts a function of torch in the graph, and does not say what its answer depends on."""

    @hookimpl
    def armature_rules(self) -> list[Rule]:
        return [Rule(torch.get_num_interop_threads, Decision.IN_GRAPH, "it has no effects", priority=10)]


def test_a_call_without_tensors_of_which_nothing_is_known_breaks_the_graph() -> None:
    with manager().registered(Rules(), "rules"):
        x = torch.ones(2)
        found = armature.compile(lambda x: x * torch.get_num_interop_threads(), backend="eager")(x)
        assert torch.equal(found, x * torch.get_num_interop_threads())
        (event, *_) = [event for one in session().compilations for event in one.breaks]
    assert (event.type.id, event.facts["function"]) == ("unknown-answer", "get_num_interop_threads")
