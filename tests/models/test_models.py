"""The example models: one graph, no break, eager's answers, no recompile on a second call."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest
import torch

import armature
from armature.testing.differential import compare_runs, run_model

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))
from models.catalogue import EXAMPLES  # noqa: E402
from models.linear_regression import LinearRegression, train_step  # noqa: E402

SMALL = [name for name in EXAMPLES if name != "GPT"]
CASES = [*SMALL, pytest.param("GPT", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def fresh() -> None:
    armature.reset()


def example(name: str):
    torch.manual_seed(0)
    return EXAMPLES[name]()


@pytest.mark.parametrize("name", CASES)
def test_inference_matches_eager_in_one_graph(name: str) -> None:
    case = example(name)
    case.model.eval()
    reference = copy.deepcopy(case.model)
    compiled = armature.compile(case.model, fullgraph=True)
    with torch.no_grad():
        eager = run_model(reference, reference, case.inputs)
        assert eager.error is None
        for _ in range(2):
            assert compare_runs(eager, run_model(case.model, compiled, case.inputs)) <= case.tolerance


@pytest.mark.parametrize("name", CASES)
def test_training_matches_eager_in_one_graph(name: str) -> None:
    case = example(name)
    reference = copy.deepcopy(case.model)
    compiled = armature.compile(case.model, fullgraph=True)
    for step in range(2):
        eager = run_model(reference, reference, case.inputs, case.loss, seed=step)
        assert eager.error is None
        assert eager.grads
        assert compare_runs(eager, run_model(case.model, compiled, case.inputs, case.loss, seed=step)) <= case.tolerance


def test_a_training_loop_learns_as_in_eager() -> None:
    losses: list[list[float]] = []
    for wrap in (lambda m: m, lambda m: armature.compile(m, fullgraph=True)):
        torch.manual_seed(0)
        inputs = example("LinearRegression").inputs
        torch.manual_seed(1)
        model = LinearRegression()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        call = wrap(model)
        losses.append([float(train_step(call, optimizer, *inputs)) for _ in range(20)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0][-1] < losses[0][0] / 5
