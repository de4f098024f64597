"""LSTM and GRU as loops over time, against eager: values, gradients, and what the graphs call."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature
from armature.pipeline.session import session
from armature_cpu_cpp import isa

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}
FORMS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "two layers": {"num_layers": 2},
    "both directions": {"num_layers": 2, "bidirectional": True},
    "batch first": {"batch_first": True, "bidirectional": True},
    "no biases": {"bias": False},
    "dropout": {"num_layers": 3, "dropout": 0.5},
}
SIZES = {"narrow": (5, 3, 7), "vectors": (3, 9, 64), "blocks and rest": (2, 37, 50)}
"""Steps, rows of the batch, width of the state."""
EXACT = {torch.float32: 2e-5, torch.float64: 1e-12}


@pytest.fixture(autouse=True)
def loops_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the processors on which the loops were measured."""
    monkeypatch.setattr(isa, "has_slow_library", lambda: True)


def called() -> list[str]:
    """The loops that the graphs call that were compiled last."""
    nodes = (node for graph in session().compilations[-1].graphs for node in graph.aten.module.graph.nodes)
    return [node.target._opname for node in nodes if "_loop" in str(node.target)]


def states_of(cell: nn.RNNBase, rows: int) -> list[Tensor]:
    count = 2 if isinstance(cell, nn.LSTM) else 1
    shape = (cell.num_layers * (2 if cell.bidirectional else 1), rows, cell.hidden_size)
    return [torch.randn(shape, dtype=cell.weight_hh_l0.dtype) for _ in range(count)]


def results(call: Any, cell: nn.RNNBase, x: Tensor, states: list[Tensor], backward: bool) -> list[Tensor]:
    """Output, last states, and the gradients of the input, the first states and the weights."""
    given = [t.clone().requires_grad_(backward) for t in (x, *states)]
    torch.manual_seed(0)
    out, last = call(given[0], tuple(given[1:]) if len(states) == 2 else given[1])
    found = [out, *(last if isinstance(last, tuple) else (last,))]
    if backward:
        sum((part.sin() * (k + 1)).sum() for k, part in enumerate(found)).backward()
        found += [t.grad for t in (*given, *cell.parameters())]
    return found


def compare(cell: nn.RNNBase, x: Tensor, backward: bool) -> None:
    states, twin = states_of(cell, x.shape[0 if cell.batch_first else 1]), copy.deepcopy(cell)
    twin.flatten_parameters()
    with torch.set_grad_enabled(backward):
        expected = results(cell, cell, x, states, backward)
        found = results(armature.compile(twin, fullgraph=True), twin, x, states, backward)
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=EXACT[x.dtype], atol=EXACT[x.dtype])
        assert got.stride() == want.stride()


@pytest.mark.parametrize("backward", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CELLS)
def test_layers_match_eager(name: str, form: str, backward: bool) -> None:
    cell = CELLS[name](6, 7, dtype=torch.float64, **FORMS[form]).train(backward)
    compare(cell, torch.randn(4, 5, 6, dtype=torch.float64), backward)
    layers = cell.num_layers * (2 if cell.bidirectional else 1)
    each = [f"{name}_loop"] * layers
    assert called() == (each + [f"{name}_loop_backward"] * layers if backward else each)


@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CELLS)
def test_sizes_that_fill_blocks_and_such_that_do_not(name: str, size: str, dtype: torch.dtype) -> None:
    steps, rows, width = SIZES[size]
    compare(CELLS[name](11, width, dtype=dtype), torch.randn(steps, rows, 11, dtype=dtype), backward=True)
    assert called() == [f"{name}_loop", f"{name}_loop_backward"]


@pytest.mark.parametrize("name", CELLS)
def test_any_length(name: str) -> None:
    cell = CELLS[name](6, 7, batch_first=True)
    compiled = armature.compile(cell, dynamic=True)
    for steps in (4, 9, 1):
        x = torch.randn(3, steps, 6)
        torch.testing.assert_close(compiled(x), cell(x), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CELLS)
def test_second_derivatives(name: str) -> None:
    cell, x = CELLS[name](6, 7, dtype=torch.float64), torch.randn(4, 5, 6, dtype=torch.float64)

    def found(call: Any) -> list[Tensor]:
        given = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(call(given)[0].sin().sum(), given, create_graph=True)
        cell.zero_grad()
        slope.square().sum().backward()
        return [slope, given.grad, *(p.grad.clone() for p in cell.parameters())]

    torch.testing.assert_close(found(armature.compile(cell)), found(cell))


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_projections_and_narrow_floats_stay_calls() -> None:
    projected = nn.LSTM(6, 7, proj_size=3)
    x = torch.randn(4, 5, 6)
    torch.testing.assert_close(armature.compile(projected)(x), projected(x), rtol=2e-5, atol=2e-5)
    assert called() == []
    narrow = nn.GRU(6, 7).bfloat16()
    with torch.no_grad():
        armature.compile(narrow)(x.bfloat16())
    assert called() == []


def test_no_loops_where_the_library_is_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "has_slow_library", lambda: False)
    armature.compile(nn.LSTM(6, 7))(torch.randn(4, 5, 6))
    assert called() == []


@pytest.mark.parametrize(("threads", "rows", "loops"), [(1, 1, 1), (2, 1, 0), (2, 2, 1)])
def test_one_row_of_an_lstm_is_divided_by_the_library(threads: int, rows: int, loops: int) -> None:
    cell, before = nn.LSTM(6, 7), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            armature.compile(cell)(torch.randn(4, rows, 6))
    finally:
        torch.set_num_threads(before)
    assert len(called()) == loops
