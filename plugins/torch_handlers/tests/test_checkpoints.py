"""Activation checkpointing in its forms: values, gradients, and what wants gradients, as in eager mode."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts

import armature

aten = torch.ops.aten
LAYER = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
SELECTIVE = functools.partial(create_selective_checkpoint_contexts, [aten.addmm.default])


def of_two(x: Tensor) -> Any:
    a, b, n = checkpoint(lambda x: (LAYER(x), (x > 0).sum(), 3), x, use_reentrant=True)
    return a * n + b


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "reentrant": lambda x: checkpoint(LAYER, x, use_reentrant=True) + 1,
    "without state of generators": lambda x: checkpoint(LAYER, x, use_reentrant=True, preserve_rng_state=False),
    "nested": lambda x: checkpoint(lambda x: checkpoint(LAYER, x.sin(), use_reentrant=True), x, use_reentrant=True),
    "several results": of_two,
    "dropout": lambda x: checkpoint(lambda x: nn.functional.dropout(LAYER(x), 0.5), x, use_reentrant=True),
    "in a row": lambda x: checkpoint_sequential(LAYER, 2, x, use_reentrant=True),
    "selective": lambda x: checkpoint(LAYER, x, use_reentrant=False, context_fn=SELECTIVE),
    "to the end": lambda x: checkpoint(LAYER, x, use_reentrant=False, early_stop=False),
}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("grad_mode", [True, False])
@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_one_graph(name: str, wanted: bool, grad_mode: bool) -> None:
    armature.reset()
    quick = armature.compile(PROGRAMS[name], backend="eager", fullgraph=True)
    results = []
    for fn in (quick, PROGRAMS[name]):
        LAYER.zero_grad()
        torch.manual_seed(0)
        x = torch.randn(2, 3, requires_grad=wanted)
        with torch.set_grad_enabled(grad_mode):
            result = fn(x)
        if result.requires_grad:
            result.square().sum().backward()
        results.append([result.detach(), result.requires_grad, x.grad, *[p.grad for p in LAYER.parameters()]])
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_a_call_without_gradients_warns() -> None:
    """Where the warning is shown, the graph breaks."""
    armature.reset()
    quick = armature.compile(PROGRAMS["reentrant"], backend="eager")
    for _ in range(2):
        with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
            quick(torch.ones(2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(torch.ones(2, 3, requires_grad=True))


PARAMETER = nn.Parameter(torch.ones(2, 3))
OTHERS: dict[str, Callable[[Tensor], Any]] = {
    "list": lambda x: checkpoint(lambda x: [x * 2], x, use_reentrant=True)[0] + 1,
    "input": lambda x: checkpoint(lambda x: x, x, use_reentrant=True) + 1,
    "parameter": lambda x: checkpoint(lambda x: PARAMETER, x, use_reentrant=True) + 1,
    "no gradient": lambda x: checkpoint(lambda x: x.detach() * 2, x, use_reentrant=True) + 1,
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_gradients_break(name: str) -> None:
    armature.reset()
    quick = armature.compile(OTHERS[name], backend="eager")
    x = torch.ones(2, 3, requires_grad=True)
    ours, theirs = quick(x), OTHERS[name](x)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert ours.requires_grad == theirs.requires_grad


def test_other_contexts_break() -> None:
    armature.reset()
    entered = []

    def contexts() -> Any:
        entered.append(1)
        return create_selective_checkpoint_contexts([])

    quick = armature.compile(
        lambda x: checkpoint(LAYER, x, use_reentrant=False, context_fn=contexts) + 1, backend="eager"
    )
    quick(torch.ones(2, 3, requires_grad=True))
    assert entered == [1]


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_of_compiled_modules(reentrant: bool, backend: str) -> None:
    block = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Tanh())
    gradients = []
    for fn in (block, armature.compile(block, backend=backend)):
        block.zero_grad()
        torch.manual_seed(0)
        x = torch.randn(2, 3, requires_grad=True)
        checkpoint(fn, checkpoint(fn, x, use_reentrant=reentrant), use_reentrant=reentrant).sum().backward()
        gradients.append((x.grad, block[0].weight.grad))
    torch.testing.assert_close(gradients[1], gradients[0])


def test_hooks_on_saved_tensors_see_the_same_tensors_in_each_call() -> None:
    def saved() -> list[tuple[int, ...]]:
        shapes: list[tuple[int, ...]] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: shapes.append(tuple(t.shape)) or t, lambda t: t):
            fn(x)
        return shapes

    fn = armature.compile(lambda x: LAYER(x).exp(), backend="eager")
    x = torch.randn(2, 3, requires_grad=True)
    assert saved() == saved() != []
