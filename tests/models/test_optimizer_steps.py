"""Steps of torch's optimizers, compiled: what eager computes, in a bounded number of launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature
from armature.pipeline.session import session
from armature.testing.differential import difference

SHAPES = ((8, 5), (5,), (3, 4, 2), (1,), (), (16,), (64, 3), (7,), (2, 9))
ROUNDS = 3

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {"lr": 0.1}),
    "SGD, momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    "SGD, Nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "Adam": (torch.optim.Adam, {"lr": 0.1}),
    "Adam, amsgrad": (torch.optim.Adam, {"lr": 0.1, "amsgrad": True, "weight_decay": 0.01}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.1}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.1}),
    "RMSprop, centered": (torch.optim.RMSprop, {"lr": 0.1, "centered": True, "momentum": 0.5}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
    "Adamax": (torch.optim.Adamax, {"lr": 0.1}),
    "NAdam": (torch.optim.NAdam, {"lr": 0.1}),
    "RAdam": (torch.optim.RAdam, {"lr": 0.1}),
    "Adadelta": (torch.optim.Adadelta, {"lr": 0.1}),
    "Rprop": (torch.optim.Rprop, {"lr": 0.1}),
    "ASGD": (torch.optim.ASGD, {"lr": 0.1}),
}
# The others run with the long tests.
QUICK = ("SGD, momentum", "AdamW", "NAdam")
# More launches than others take: numbers of the step that are tensors make loops of one point of their own.
MOST = {"NAdam": 8, "RAdam": 8, "ASGD": 8}


def trained(
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer], compiled: bool, dtype: torch.dtype = torch.float32
) -> tuple[list[Tensor], list[object]]:
    """Parameters and the optimizer's state after some steps."""
    generator = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in SHAPES]
    optimizer = make(parameters)
    step = armature.compile(optimizer.step) if compiled else optimizer.step
    for _ in range(ROUNDS):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=dtype)
        step()
    state = [value for held in optimizer.state.values() for value in held.values()]
    return [p.detach() for p in parameters], state


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in OPTIMIZERS])
def test_a_step_is_eagers(name: str, foreach: bool) -> None:
    kind, options = OPTIMIZERS[name]

    def make(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return kind(parameters, foreach=foreach, **options)  # type: ignore[call-arg]

    expected = trained(make, compiled=False)
    armature.reset()
    found = trained(make, compiled=True)
    assert difference(expected, found) <= 2e-6
    totals = session().totals()
    assert totals.graphs and totals.fallbacks == 0
    last = session().compilations[-1]
    launches = sum(graph.program.kernel_count for graph in last.graphs)
    assert launches <= MOST.get(name, 4), [k.name for graph in last.graphs for k in graph.plan.launches]


@pytest.mark.parametrize("backend", ["auto", "eager"])
@pytest.mark.parametrize("name", ["SGD", "SGD, momentum", "Adam", "Adam, amsgrad", "AdamW", "Adagrad"])
def test_fused_steps_are_eagers(name: str, backend: str) -> None:
    """torch can't make a functional graph of a fused step, nor take a lr that varies for one: it stays a call."""
    kind, options = OPTIMIZERS[name]
    totals = {}

    def run(compiled: bool) -> object:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
        optimizer = kind(model.parameters(), fused=True, **options)  # type: ignore[call-arg]
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        step = armature.compile(optimizer.step, backend=backend) if compiled else optimizer.step
        for number in range(12):
            optimizer.zero_grad()
            model(torch.randn(4, 6)).pow(2).mean().backward()
            step()
            schedule.step()
            totals[number] = session().totals()
        return [p.detach() for p in model.parameters()], [dict(held) for held in optimizer.state.values()]

    armature.reset()
    assert difference(run(False), run(True)) <= 1e-6
    assert totals[11].graphs and totals[11].fallbacks == totals[11].breaks == 0
    assert totals[11].graphs == totals[5].graphs  # none is made for each learning rate


def test_training_in_one_function_with_a_fused_step() -> None:
    def run(compiled: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)

        def train(x: Tensor) -> Tensor:
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        step = armature.compile(train) if compiled else train
        return [step(torch.randn(4, 6)) for _ in range(ROUNDS)]

    armature.reset()
    assert difference(run(False), run(True)) <= 1e-6
    assert session().totals().fallbacks == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes(dtype: torch.dtype) -> None:
    def make(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=0.01, foreach=True)

    expected, found = trained(make, False, dtype), trained(make, True, dtype)
    assert difference(expected, found) <= (0.02 if dtype is torch.bfloat16 else 1e-12)


def test_groups_and_parameters_without_gradients() -> None:
    def run(compiled: bool) -> list[Tensor]:
        torch.manual_seed(0)
        parameters = [nn.Parameter(torch.randn(n + 2, 3)) for n in range(6)]
        groups = [{"params": parameters[:3], "lr": 0.5}, {"params": parameters[3:], "weight_decay": 0.1}]
        optimizer = torch.optim.Adam(groups, lr=0.1, foreach=True)
        step = armature.compile(optimizer.step) if compiled else optimizer.step
        for _ in range(ROUNDS):
            for parameter in parameters[1:]:
                parameter.grad = torch.randn_like(parameter)
            step()
        return [p.detach() for p in parameters]

    assert difference(run(False), run(True)) <= 2e-6


def test_gradients_that_lie_otherwise() -> None:
    """A gradient may be laid out unlike its parameter: such a tensor has a launch of its own, and the right values."""

    def run(compiled: bool) -> list[Tensor]:
        torch.manual_seed(0)
        parameters = [nn.Parameter(torch.randn(4, 6)) for _ in range(4)]
        optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=True)
        step = armature.compile(optimizer.step) if compiled else optimizer.step
        for k, parameter in enumerate(parameters):
            parameter.grad = torch.randn(6, 4).t() if k == 2 else torch.randn(4, 6)
        step()
        return [p.detach() for p in parameters]

    assert difference(run(False), run(True)) <= 1e-6


def test_threads_divide_all_tensors_of_a_list() -> None:
    """Large tensors: the work of all is shared out, also where a thread's share ends within a tensor."""

    def run(compiled: bool) -> list[Tensor]:
        torch.manual_seed(0)
        parameters = [nn.Parameter(torch.randn(n)) for n in (100_003, 17, 1, 250_001, 64, 33_333)]
        optimizer = torch.optim.Adam(parameters, lr=0.1, foreach=True)
        step = armature.compile(optimizer.step, options={"cpu_threads": 3}) if compiled else optimizer.step
        for _ in range(ROUNDS):
            for parameter in parameters:
                parameter.grad = torch.randn_like(parameter)
            step()
        return [p.detach() for p in parameters]

    armature.reset()
    assert difference(run(False), run(True)) <= 2e-6
    sources = session().kernel_sources()
    assert any("over_members" in source.text for source in sources)
