"""torch.autograd.grad in a compiled function: the gradient also goes through what was computed before the graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature
from armature import config
from armature.pipeline.session import session
from armature_torch_handlers.programs import transforms

grad = torch.autograd.grad


def after_a_break(x: Tensor, g: Tensor) -> Any:
    y = (x * x).sin()
    armature.graph_break()
    return grad((y * x).sum(), x)


def twice_with_breaks(x: Tensor, g: Tensor) -> Any:
    y = (x * x).sin()
    armature.graph_break()
    (slope,) = grad(y, x, torch.ones_like(y), create_graph=True)
    size = slope.square().sum()
    armature.graph_break()
    return grad(size, (x,), allow_unused=True)


BEYOND: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "in part": lambda x, g: grad(g.sum() + x.sum(), x),
    "at all": lambda x, g: grad(g.sum(), x, allow_unused=True),
    "the output itself": lambda x, g: grad(g, [x], torch.ones_like(g), allow_unused=True),
    "both": lambda x, g: grad((g * x).sum(), (g, x)),
    "by keyword": lambda x, g: grad(outputs=(g * x).sum(), inputs=(x,), materialize_grads=True),
    "differentiated again": lambda x, g: grad((g * x).sum(), x, create_graph=True)[0] * 2,
    "after a break": after_a_break,
    "twice": twice_with_breaks,
}


def results(fn: Callable[..., Any], x: Tensor, g: Tensor) -> list[Tensor]:
    found = fn(x, g)
    parts = list(found) if isinstance(found, tuple) else [found]
    if parts[0].requires_grad:
        parts[0].sum().backward()
        parts += [x.grad] if x.grad is not None else []
    return [part.detach() for part in parts]


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("name", BEYOND)
def test_through_what_was_computed_before(name: str, backend: str) -> None:
    armature.reset()
    quick = armature.compile(BEYOND[name], backend=backend)
    for _ in range(2):
        mine, theirs = (torch.linspace(0.5, 1.5, 3, requires_grad=True) for _ in range(2))
        ours, wanted = results(quick, mine, mine * 3), results(BEYOND[name], theirs, theirs * 3)
        torch.testing.assert_close(ours, wanted)


INSIDE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "leaves": lambda x, g: grad((x * g.detach()).sum(), x),
    "the input with the history": lambda x, g: grad((g * 2).exp().sum(), g),
    "made in the graph": lambda x, g: grad((x.detach().requires_grad_() * g).sum(), [g]),
}


def of_a_computed_one(x: Tensor, g: Tensor) -> Any:
    h = g * 2
    return grad((h * x).sum(), [h], retain_graph=True)


@pytest.mark.parametrize("fn", [*INSIDE.values(), of_a_computed_one])
def test_within_the_graph_it_stays_there(fn: Callable[[Tensor, Tensor], Any]) -> None:
    armature.reset()
    quick = armature.compile(fn, fullgraph=True)
    x = torch.linspace(0.5, 1.5, 3, requires_grad=True)
    torch.testing.assert_close(quick(x, x * 3), fn(x, x * 3))


MODEL = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
HELD: dict[str, Tensor] = {**dict(MODEL.named_parameters())}


def loss(x: Tensor) -> Tensor:
    return MODEL(x).square().sum()


def itself(tensor: Tensor) -> Tensor:
    return tensor


ITERABLES: dict[str, Callable[[Tensor], Any]] = {
    "a generator": lambda x: grad(loss(x), MODEL.parameters(), create_graph=True),
    "by keyword": lambda x: grad(outputs=loss(x), inputs=MODEL.parameters()),
    "values of a dict": lambda x: grad(loss(x), HELD.values()),
    "map": lambda x: grad(loss(x), map(itself, HELD.values())),
    "filter": lambda x: grad(loss(x), filter(lambda p: p.dim() > 1, MODEL.parameters())),
    "an iterator": lambda x: grad(loss(x), iter(list(HELD.values()))),
    "reversed": lambda x: grad(loss(x), reversed(list(HELD.values()))),
    "a set": lambda x: grad(loss(x), {MODEL[0].weight}),
    "a deque": lambda x: grad(loss(x), deque(MODEL.parameters())),
    "a list of parameters": lambda x: grad(loss(x), nn.ParameterList(MODEL.parameters())),
    "outputs and their gradients": lambda x: grad(
        (loss(x * k) for k in (1, 2)), list(HELD.values()), (torch.full((), k) for k in (3.0, 4.0))
    ),
}


@pytest.mark.parametrize("fn", ITERABLES.values(), ids=ITERABLES)
@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_any_iterable_of_tensors(fn: Callable[[Tensor], Any], backend: str) -> None:
    armature.reset()
    quick, x = armature.compile(fn, fullgraph=True, backend=backend), torch.linspace(-1, 1, 6).view(2, 3)
    torch.testing.assert_close(quick(x), fn(x))
    torch.testing.assert_close(quick(x), fn(x))


@pytest.mark.skipif(not transforms.TAKES_DICTS, reason="this version of torch takes no dict")
def test_a_dict_of_tensors() -> None:
    armature.reset()
    x = torch.ones(2, 3)
    found = armature.compile(lambda: grad(loss(x), HELD), fullgraph=True)()
    torch.testing.assert_close(found, grad(loss(x), HELD))


def test_a_leaf_that_has_a_history_later() -> None:
    armature.reset()
    quick = armature.compile(BEYOND["in part"])
    x = torch.ones(3, requires_grad=True)
    torch.testing.assert_close(quick(x, torch.ones(3, requires_grad=True))[0], torch.ones(3))
    torch.testing.assert_close(quick(x, x * 3)[0], torch.full((3,), 4.0))
    assert len(session().compilations) >= 2


def score(x: Tensor) -> Any:
    """As score functions and energies of samplers are written."""
    with torch.enable_grad():
        x = x.clone().requires_grad_()
        y = loss(x)
    return grad(y, x)[0], y.detach()


def outside_of_the_mode(x: Tensor) -> Any:
    with torch.enable_grad():
        x = x.clone().requires_grad_()
        hidden = MODEL[0](x).tanh()
    scale = x.detach() * 2
    with torch.enable_grad():
        y = (MODEL[2](hidden) * scale[:, :2]).square().sum(-1)
        first = grad(y.sum(), x, create_graph=True)[0].sum()
    return grad(first, x)[0] + scale, first.detach()


def in_steps(x: Tensor) -> Any:
    for _ in range(3):
        x = x - 0.1 * score(x)[0]
    return x


@pytest.mark.parametrize("fn", [score, outside_of_the_mode, in_steps])
def test_of_what_was_computed_in_another_grad_mode(fn: Callable[[Tensor], Any]) -> None:
    armature.reset()
    quick = armature.compile(fn, fullgraph=True)
    with config.patch(strict=True):
        for rows in (4, 5, 6):
            x = torch.linspace(-1, 1, 3 * rows).view(rows, 3)
            for mode in (torch.no_grad, torch.enable_grad):
                with mode():
                    torch.testing.assert_close(quick(x), fn(x))
