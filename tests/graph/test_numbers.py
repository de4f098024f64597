"""Floats of the program that vary: functional graphs read them from tensors, kernels take them as arguments."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import armature
from armature.graph.numbers import as_tensors, holds_number, reading_numbers
from armature.pipeline.session import session

VALUES = (0.1, 0.2, 0.3, 0.37, 0.55)
MOST = 4  # compilations of a step: the first, two more values of the rate, and any value
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
USES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "factor": lambda x, y, f: (x * f).exp(),
    "subtracted from": lambda x, y, f: f - x,
    "alpha": lambda x, y, f: torch.add(x, y, alpha=f),
    "value": lambda x, y, f: torch.addcdiv(x, y, y.abs() + 1, value=f),
    "bound": lambda x, y, f: torch.clamp(x, min=f),
    "weight": lambda x, y, f: torch.lerp(x, y, f),
    "slope": lambda x, y, f: nn.functional.leaky_relu(x, f),
    "list": lambda x, y, f: torch._foreach_add([x, y], [y, x], alpha=f)[0],
    "in place": lambda x, y, f: x.add_(y, alpha=-f).mul_(1 - f),
}


@pytest.fixture(autouse=True)
def fresh() -> None:
    armature.reset()
    torch.manual_seed(0)


def compiled_kernels() -> list[int]:
    """The numbers of kernels in the last compilation's graphs; it has ATen calls nowhere."""
    graphs = session().compilations[-1].graphs
    assert not [step for graph in graphs for step in graph.plan.steps if hasattr(step, "target")]
    return [len(graph.plan.launches) for graph in graphs]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("use", USES)
def test_kernels_are_built_once_for_all_values(use: str, dtype: torch.dtype) -> None:
    fn, bound = USES[use], 4 * torch.finfo(dtype).eps
    run = armature.compile(fn)
    for value in VALUES:
        x, y = torch.randn(3, 70).to(dtype), torch.randn(3, 70).to(dtype)
        expected = fn(x.clone(), y.clone(), value)
        torch.testing.assert_close(run(x, y, value), expected, rtol=bound, atol=bound)
    assert len(session().compilations) == 3  # two values get code of their own
    assert compiled_kernels() == [1]


@pytest.mark.parametrize("use", ["factor", "value", "bound", "slope"])
def test_backward_has_the_number_as_well(use: str) -> None:
    fn = USES[use]
    run = armature.compile(fn)
    for value in VALUES:
        grads = []
        torch.manual_seed(1)
        x, y = torch.randn(2, 3, 70)
        for each in (fn, run):
            given = x.clone().requires_grad_()
            each(given.sin(), y, value).square().sum().backward()
            grads.append(given.grad)
        torch.testing.assert_close(grads[1], grads[0])
    assert len(session().compilations) == 3
    assert len(compiled_kernels()) == 2


@pytest.mark.parametrize("use", ["alpha", "weight"])
def test_a_derivative_that_asks_about_the_number_runs_operator_by_operator(
    use: str, recwarn: pytest.WarningsRecorder
) -> None:
    fn = USES[use]
    run = armature.compile(fn)
    for value in VALUES:
        x, y = torch.randn(2, 3, 70)
        given = x.clone().requires_grad_()
        run(given.sin(), y, value).sum().backward()
        same = x.clone().requires_grad_()
        fn(same.sin(), y, value).sum().backward()
        torch.testing.assert_close(given.grad, same.grad)
    assert len(session().compilations) == 3 and not recwarn.list


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "NAdam", "Adagrad", "Adadelta"])
def test_a_step_with_a_learning_rate_that_changes_has_kernels(kind: str, foreach: bool) -> None:
    first = [torch.randn(4, 5) for _ in range(3)]
    results = []
    for compile in (False, True):
        torch.manual_seed(2)
        parameters = [p.clone().requires_grad_() for p in first]
        optimizer = getattr(torch.optim, kind)(parameters, lr=0.1, foreach=foreach)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        step = armature.compile(lambda one=optimizer: one.step()) if compile else optimizer.step
        for _ in range(6):
            for p in parameters:
                p.grad = torch.randn_like(p)
            step()
            schedule.step()
        results.append(parameters)
    torch.testing.assert_close(results[1], results[0])
    assert all(count > 0 for count in compiled_kernels()) and len(session().compilations) <= MOST


def test_operators_without_a_lowering_are_given_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("armature.lower.lower.takes", lambda *_: False)
    run = armature.compile(USES["slope"])
    for value in VALUES:
        x = torch.randn(3, 5)
        torch.testing.assert_close(run(x, x, value), nn.functional.leaky_relu(x, value))
    (graph,) = session().compilations[-1].graphs
    assert len(session().compilations) == 3 and not graph.plan.launches


def test_a_graph_that_has_tensors_for_numbers_runs_operator_by_operator_too() -> None:
    aten = torch.ops.aten
    graph = torch.fx.Graph()
    x, number = graph.placeholder("x"), graph.placeholder("number")
    read = graph.call_function(aten._local_scalar_dense.default, (number,))
    read.meta["val"] = torch.SymFloat(torch.SymInt(2).node)
    graph.output(graph.call_function(aten.leaky_relu.default, (x, read)))
    as_tensors(graph)
    assert holds_number(number) and not holds_number(x)
    assert not graph.find_nodes(op="call_function", target=aten._local_scalar_dense.default)
    given = torch.randn(5)
    run = reading_numbers(torch.fx.GraphModule({}, graph))
    torch.testing.assert_close(run(given, torch.tensor(0.25).double()), nn.functional.leaky_relu(given, 0.25))
