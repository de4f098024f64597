"""Floats of the program that vary: functional graphs have them as numbers that are not known, kernels read them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import armature
from armature.pipeline.session import session

VALUES = (0.1, 0.2, 0.3, 0.37, 0.55)
MOST = 4  # compilations of a step: the first, two more values of the rate, and any value
FLOATS = (torch.float32, torch.bfloat16)
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
MORE_USES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "exponent": lambda x, y, f: x.abs() ** f,
    "base": lambda x, y, f: f**x,
    "compared": lambda x, y, f: (x < f) | (y == f) | (y >= f),
    "chosen": lambda x, y, f: torch.where(x > 0, x, f),
    "masked": lambda x, y, f: x.masked_fill(x > 0, f),
    "filled": lambda x, y, f: x.new_full((70,), f) + torch.full_like(y, f),
    "bounds": lambda x, y, f: torch._C._nn.hardtanh(x, -1.0, f),
    "threshold": lambda x, y, f: nn.functional.threshold(x, f, f),
    "softplus": lambda x, y, f: nn.functional.softplus(x, f),
    "elu": lambda x, y, f: nn.functional.elu(x, f),
    "celu": lambda x, y, f: nn.functional.celu(x, f),
    "of integers": lambda x, y, f: (torch.arange(70) * f).to(x.dtype) + x,
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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_uses_together(dtype: torch.dtype) -> None:
    def fn(x: Tensor, y: Tensor, f: float) -> list[Tensor]:
        return [use(x, y, f) for name, use in USES.items() if name != "in place"]

    run, bound = armature.compile(fn), 4 * torch.finfo(dtype).eps
    for value in VALUES:
        x, y = torch.randn(2, 3, 70).to(dtype)
        torch.testing.assert_close(run(x, y, value), fn(x, y, value), rtol=bound, atol=bound)
    assert len(session().compilations) == 3
    assert compiled_kernels() == [1]


@pytest.mark.parametrize("use", [use for use in USES if use != "in place"])
def test_backward_has_the_number_as_well(use: str) -> None:
    fn = USES[use]
    run = armature.compile(fn)
    for value in VALUES:
        x, y = torch.randn(2, 3, 70)
        grads = []
        for each in (fn, run):
            given = [one.clone().requires_grad_() for one in (x, y)]
            each(given[0].sin(), given[1].sin(), value).square().sum().backward()
            grads.append([one.grad for one in given])
        torch.testing.assert_close(grads[1], grads[0])
    assert len(session().compilations) == 3
    graphs = session().compilations[-1].graphs
    assert [len(graph.plan.launches) > 0 for graph in graphs] == [True, True]
    given = [node.meta["val"] for node in graphs[-1].aten.module.graph.find_nodes(op="placeholder")]
    # backward is given the tensor, but the number itself where forward has computed it (1 - weight)
    assert use == "weight" or not [one for one in given if isinstance(one, torch.SymFloat)]


@pytest.mark.parametrize("use", ["exponent", "base", "celu"])
def test_derivatives_that_would_ask_for_the_number(use: str, recwarn: pytest.WarningsRecorder) -> None:
    fn = MORE_USES[use]
    run = armature.compile(fn)
    for value in (*VALUES, *((0.0, 2.0, -1.5) if use != "celu" else ())):
        x = torch.randn(3, 70).index_fill(1, torch.tensor([0]), 0.0)
        grads = []
        for each in (fn, run):
            given = x.clone().requires_grad_()
            each(given * 1.5, x, value).square().sum().backward()
            grads.append(given.grad)
        torch.testing.assert_close(grads[1], grads[0], equal_nan=True)
    assert len(session().compilations) == 3 and not recwarn.list
    kernels = [len(graph.plan.launches) for graph in session().compilations[-1].graphs]
    assert kernels == [1, 1]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("use", MORE_USES)
def test_other_operators(use: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    # tracing makes the number a constant for some of them
    monkeypatch.setattr("armature.trace.recording.graph_nodes.takes_floats", lambda *_: True)
    fn, bound = MORE_USES[use], 8 * torch.finfo(dtype).eps
    run = armature.compile(fn)
    for value in VALUES:
        x, y = torch.randn(2, 3, 70).to(dtype)
        torch.testing.assert_close(run(x, y, value), fn(x, y, value), rtol=bound, atol=bound)
    assert len(session().compilations) == 3
    assert compiled_kernels() == [1]


def test_arithmetic_on_numbers_is_done_in_python_or_by_the_wrapper() -> None:
    def fn(x: Tensor, f: float) -> tuple[Tensor, Tensor]:
        return x * (f * 2) + 1 / f - f**2.5, torch.linspace(-f, f, 5)

    run = armature.compile(fn)
    for value in (*VALUES, float("inf")):
        x = torch.randn(3, 70)
        torch.testing.assert_close(run(x, value), fn(x, value), equal_nan=True)
    assert len(session().compilations) == 3
    (graph,) = session().compilations[-1].graphs
    places = {buffer.name: buffer for buffer in graph.plan.buffers.values() if not buffer.shape}
    computed = [step for step in graph.plan.steps if hasattr(step, "target")]
    assert computed and all(set(step.outputs) <= places.keys() for step in computed)


def test_sizes_change_together_with_the_number() -> None:
    def fn(x: Tensor, f: float) -> Tensor:
        return torch.softmax(x.clamp(max=f) / x.shape[0], -1)

    run = armature.compile(fn, dynamic=True)
    for rows, value in zip((3, 5, 8, 13, 21), VALUES, strict=True):
        x = torch.randn(rows, 70)
        torch.testing.assert_close(run(x, value), fn(x, value))
    assert len(session().compilations) == 3
    assert compiled_kernels() == [1]


def test_functional_graphs_have_numbers_where_schemas_want_them() -> None:
    run = armature.compile(USES["slope"], options={"keep_passes": True})
    for value in VALUES:
        x = torch.randn(3, 5)
        run(x, x, value)
    (graph,) = session().compilations[-1].graphs
    (call,) = graph.aten.module.graph.find_nodes(op="call_function", target=torch.ops.aten.leaky_relu.default)
    number = call.args[1]
    assert number.target is torch.ops.aten._local_scalar_dense.default
    assert isinstance(number.meta["val"], torch.SymFloat)


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


def test_a_result_that_the_program_gives_is_written() -> None:
    compiled = armature.compile(lambda x, p, out: torch.nn.functional.normalize(x, p=p, out=out) + 1)
    x = torch.rand(3, 4) + 0.5
    for p in (2.0, 2.5, 3.0, 3.5):
        out = torch.zeros(3, 4)
        result = compiled(x, p, out)
        wanted = torch.nn.functional.normalize(x, p=p)
        torch.testing.assert_close((result, out), (wanted + 1, wanted))
