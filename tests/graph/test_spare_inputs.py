"""Backward makes results in the memory of saved tensors and of incoming gradients that nobody else holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session
from armature.schedule.data import Allocate
from armature.torch_abi import training

SIDE = 64


def network(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return (x @ first).sin() * second


@pytest.fixture(autouse=True)
def _fresh() -> None:
    armature.reset()


def weights() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(SIDE, SIDE, requires_grad=True) for _ in range(3)]


def overlaid() -> list[str]:
    """The saved tensors in whose memory the last graph makes results."""
    steps = session().compilations[-1].graphs[-1].plan.steps
    places = [step.over for step in steps if isinstance(step, Allocate) and step.over is not None]
    return [name for name in places if not name.startswith("tangents")]


def peak(run: Callable[[], object]) -> int:
    """Bytes that the call allocates at most."""
    with torch.profiler.profile(profile_memory=True) as profile:
        run()
    events = [event for event in cast(Any, profile.profiler).kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(itertools.accumulate(event.nbytes() for event in events), default=0)


def test_backward_needs_no_memory_for_a_result_that_takes_a_saved_tensors_place() -> None:
    given = weights()
    compiled = armature.compile(network, fullgraph=True)
    compiled(*given).sum().backward()
    assert len(overlaid()) == 1
    expected = torch.autograd.grad(network(*given).sum(), given)
    kept, total = compiled(*given).sum(), compiled(*given).sum()
    found: list[tuple[Tensor, ...]] = []
    whole = peak(lambda: found.append(torch.autograd.grad(kept, given, retain_graph=True)))
    less = peak(lambda: found.append(torch.autograd.grad(total, given)))
    assert whole - less == 4 * SIDE * SIDE
    found.append(torch.autograd.grad(kept, given))
    for each in found:
        torch.testing.assert_close(each, expected)


def test_saved_views_of_one_tensor_are_known_to_be_in_one_memory() -> None:
    """As in a model of interactions between features."""

    def pairs(first: Tensor, second: Tensor) -> Tensor:
        parts = torch.stack([first, second], 1)
        return (parts @ parts.transpose(1, 2)).flatten(1)

    given = weights()[:2]
    found = armature.compile(pairs, fullgraph=True)(*given)
    found.square().sum().backward()
    forward, backward = session().compilations[-1].graphs
    (group,) = backward.aten.shared_inputs
    assert len(group) == 2 and not forward.aten.shared_inputs
    places = backward.aten.module.graph.find_nodes(op="placeholder")
    assert all(places[k].meta["val"].numel() == 2 * SIDE * SIDE for k in group)
    expected = torch.autograd.grad(pairs(*given).square().sum(), given)
    torch.testing.assert_close(tuple(t.grad for t in given), expected, rtol=1e-4, atol=1e-4)


def test_saved_tensors_that_hooks_hold_keep_their_values() -> None:
    given = weights()
    compiled = armature.compile(network, fullgraph=True)
    compiled(*given).sum().backward()
    seen: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: seen.append(tensor) or tensor, lambda tensor: tensor):
        total = compiled(*given).sum()
    before = [each.detach().clone() for each in seen]
    torch.testing.assert_close(torch.autograd.grad(total, given), torch.autograd.grad(network(*given).sum(), given))
    assert overlaid() and seen
    torch.testing.assert_close([each.detach() for each in seen], before, rtol=0, atol=0)


def test_memory_of_numpys_arrays_keeps_its_values() -> None:
    given = weights()
    compiled = armature.compile(network, fullgraph=True)
    compiled(*given).sum().backward()
    arrays: list[Any] = []

    def pack(tensor: Tensor) -> int:
        arrays.append(tensor.detach().numpy().copy())
        return len(arrays) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda number: torch.from_numpy(arrays[number])):
        total = compiled(*given).sum()
    before = [each.copy() for each in arrays]
    torch.testing.assert_close(torch.autograd.grad(total, given), torch.autograd.grad(network(*given).sum(), given))
    assert overlaid() and all((one == other).all() for one, other in zip(arrays, before, strict=True))


def test_gradients_that_are_differentiated_again() -> None:
    given = weights()
    compiled = armature.compile(network, fullgraph=True)

    def second(run: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(run(*given).sum(), given, create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in first), given)

    found, expected = second(compiled), second(network)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-2)


def test_results_that_are_saved_stay_the_programs() -> None:
    given = weights()
    compiled = armature.compile(lambda x, first: torch.softmax(x @ first, -1), fullgraph=True)
    result = compiled(*given[:2])
    before = result.detach().clone()
    result.square().sum().backward()
    assert not overlaid()
    torch.testing.assert_close(result.detach(), before, rtol=0, atol=0)


def test_recorded_graphs_leave_saved_tensors_alone() -> None:
    compiled = armature.compile(network, fullgraph=True, mode="reduce-overhead")
    compiled(*weights()).sum().backward()
    assert not overlaid()


needs_lists = pytest.mark.skipif(not training._TAKES_LIST, reason="torch holds incoming gradients during backward")


def wave(x: Tensor) -> Tensor:
    return x.sin().cumsum(0)


@needs_lists
def test_an_incoming_gradient_gives_its_memory_to_the_result() -> None:
    x = torch.randn(SIDE, SIDE, requires_grad=True)
    compiled = armature.compile(wave, fullgraph=True)

    def bytes_of(run: Callable[[Tensor], Tensor]) -> int:
        scaled = run(x) * x.detach()  # whose backward makes the gradient
        return peak(lambda: torch.autograd.grad(scaled.sum(), x))

    bytes_of(compiled)
    assert bytes_of(wave) - bytes_of(compiled) >= 4 * SIDE * SIDE


@needs_lists
@pytest.mark.parametrize("holder", ["program", "hook", "retained", "both outputs", "graph kept"])
def test_incoming_gradients_that_others_hold_keep_their_values(holder: str) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin() * 3, x.cos() * 2

    x = torch.randn(SIDE, SIDE, requires_grad=True)
    compiled = armature.compile(fn, fullgraph=True)
    held: list[Tensor] = []

    def gradient(run: Callable[..., tuple[Tensor, Tensor]]) -> Tensor:
        one, other = run(x)
        if holder == "hook":
            one.register_hook(held.append)
        elif holder == "retained":
            one.retain_grad()
        whole = one + other if holder == "both outputs" else one
        held.append(torch.full_like(one, 2.0))
        whole.backward(held[-1], retain_graph=holder == "graph kept")
        if holder == "retained":
            held.append(cast(Tensor, one.grad))
        elif holder == "graph kept":
            whole.backward(held[-1])
        found, x.grad = cast(Tensor, x.grad), None
        return found

    for run in (compiled, compiled):
        torch.testing.assert_close(gradient(run), gradient(fn))
    assert all((each == 2).all() for each in held)
