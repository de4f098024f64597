"""A sample of torch's own table of operators, forward and backward, as `benchmarks.opinfo` runs all of it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import torch

import armature
from benchmarks.opinfo import compare, report
from benchmarks.opinfo.incumbent import left_by_torch_compile
from benchmarks.opinfo.samples import Settings, measure, one, op_db, operators, parts

DTYPES = (torch.float32, torch.int64)
SAMPLED = 16  # operators of each dtype; another set in each version of the table, the same in each run


def sample(dtype: torch.dtype) -> list[str]:
    return sorted(random.Random(str(dtype)).sample(operators(dtype, "cpu"), SAMPLED))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype, name", [(d, name) for d in DTYPES for name in sample(d)])
def test_operator(dtype: torch.dtype, name: str) -> None:
    rows: list[report.Row] = []
    measure(str(dtype).removeprefix("torch."), name, Settings(samples=2), rows.append)
    (row,) = parts(rows[-1])
    assert not report.is_bad(row), row["problems"]


def test_loops_and_calls_are_counted_beside_those_of_torch_compile() -> None:
    rows: list[report.Row] = []
    for name in ("sin", "sort", "bernoulli"):
        measure("float32", name, Settings(samples=2, beside=True, modes=("forward",)), rows.append)
        rows = [row for row in rows if row["name"] != name] + parts(rows[-1])
    counts = report.lowered(rows)
    assert counts["sin"] == {"samples": 1, "armature": 1, "torch.compile": 1, "both": 1}
    assert counts["sort"] == {"samples": 2, "armature": 0, "torch.compile": 0, "both": 0}
    assert report.operators_lowered(rows) == {"operators": 3, "armature": 1, "torch.compile": 2, "both": 1}
    assert "of 3: 1 here, 2 with torch.compile, 1 with both" in report.beside_line(rows)
    sort, bernoulli = (row["beside"]["forward"] for row in rows[1:])
    assert sort["calls"] == {"aten.sort.stable": 2} and not sort["only_here"]
    (call,) = bernoulli["only_here"]
    assert call.startswith("aten.bernoulli.default; draws random numbers")


def test_what_torch_compile_makes_of_a_training_step() -> None:
    weight, x = torch.randn(4, 4, requires_grad=True), torch.randn(3, 4)

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x @ weight).sin().sort(0).values

    left = left_by_torch_compile(lambda compiler: torch.autograd.grad(compiler(program)(x).sum(), weight))
    assert left.whole and left.loops == 2 and not left.lowered
    assert left.calls["aten.sort.stable"] == 1 and left.calls["extern_kernels.mm"] == 2
    broken = left_by_torch_compile(lambda compiler: compiler(lambda x: x.sin() if x.sum() > 0 else x.cos())(x))
    assert not broken.whole and broken.loops


def test_a_wrong_answer_is_found() -> None:
    op = next(op for op in op_db if op.name == "sin")
    (sample_input, *_) = op.sample_inputs("cpu", torch.float32, requires_grad=True)

    def elsewhere(module: Any, inputs: Any) -> Any:
        return lambda *args: tuple(result * 1.001 for result in module(*args))

    armature.reset()
    kinds, detail = one(op, sample_input, "forward", Settings(backend=elsewhere), Counter())
    assert kinds[-1] == "wrong" and "off float64" in detail


def test_what_counts_as_wrong() -> None:
    x = torch.linspace(0.1, 1, 6).reshape(2, 3)
    assert compare.wrong(x, x.clone(), lambda: x.double()) == ""
    assert "strides" in compare.wrong(x.T.contiguous().T, x, lambda: x)
    assert "dtype" in compare.wrong(x.double(), x, lambda: x)
    assert compare.wrong(torch.tensor([1, 2]), torch.tensor([1, 3]), lambda: None)
    noisy = x + 1e-3  # eager mode is as far from float64 on the other side
    assert compare.wrong(noisy, x - 1e-3, lambda: x.double()) == ""
    assert compare.wrong(x + 0.1, x, lambda: x.double())
    left = torch.tensor([1.5e-15, 0.0], dtype=torch.float64)  # of sums of numbers such as those beside it
    beside = torch.tensor([1.0, 7.5], dtype=torch.float64)
    assert compare.wrong((left * 0, beside), (left, beside), lambda: None) == ""
    assert compare.wrong((left + 1e-9, beside), (left, beside), lambda: None)
    undefined = torch.tensor([1.0, float("nan")])
    assert compare.wrong(torch.ones(2), undefined, lambda: torch.ones(2).double()) == ""  # eager mode is wrong
    assert compare.wrong(torch.full((2,), 2.0), undefined, lambda: torch.ones(2).double())
    assert "NaN" in compare.wrong(torch.ones(2), undefined, lambda: undefined.double())
    assert "NaN" in compare.wrong(undefined, torch.ones(2), lambda: torch.ones(2).double())
    infinite = torch.tensor([1.0, float("inf")])
    assert compare.wrong(torch.tensor([1.0, 2.0]), infinite, lambda: infinite.double())


def test_the_share_leaves_out_what_cannot_be_compiled() -> None:
    counts = {"compiled": 3, "broke": 1, "no graph": 2, "needs numbers": 4, "right": 10, "eager raises": 5}
    (line, total) = report.lines([{"library": "int64", "name": "add", "modes": {"forward": counts}}])
    assert line.samples == 10 and line.share == 0.75 and total.share == 0.75
    crashed: report.Row = {
        "library": "int64",
        "name": "mul",
        "modes": {},
        "ended": "crashed: SIGSEGV",
        "running": "forward, sample 2",
    }
    assert report.is_bad(crashed) and report.lines([crashed])[0].counts["crashed"] == 1
    late = crashed | {"ended": "not started in time"}
    assert not report.is_bad(late) and report.lines([late])[0].counts == {"not run": 1}


def test_a_crash_loses_one_dtype() -> None:
    right = {"library": "float32", "name": "add", "modes": {"forward": {"compiled": 1, "right": 1}}}
    broken = {"library": "int64", "name": "add", "modes": {"forward": {}}, "running": "forward, sample 0"}
    row = {"library": "float32,int64,bool", "name": "add", "parts": [right, broken], "ended": "crashed: SIGSEGV"}
    first, second = parts(row)
    assert first == right and second["ended"] == "crashed: SIGSEGV" and report.is_bad(second)
    (alone,) = parts({"library": "float32,bool", "name": "add", "stage": "start", "ended": "over 10 s"})
    assert alone["library"] == "float32" and report.is_bad(alone)
