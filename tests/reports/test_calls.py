"""What compiled graphs call of torch's operators, and why: as recorded, on a terminal, on a page, in the doctor's table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import armature
from armature.cli import doctor
from armature.lower.reasons import KINDS
from armature.reports import html, schema, terminal
from armature.reports.calls import by_reason
from armature.reports.record import Recording
from armature.reports.recorder import Recorder


def program(x: Any, w: Any, z: Any, k: Any) -> Any:
    mean = k.scatter_reduce(0, k - 3, k, "mean")
    return torch.sort(x @ w).values + 1, torch.gcd(k, k), torch.randn(3), z * z, mean


def recorded() -> Recording:
    armature.reset()
    given = torch.rand(4, 4), torch.rand(4, 4), torch.rand(3, dtype=torch.complex64), torch.tensor([3, 4])
    with Recorder("calls") as recorder, armature.config.patch(own_products=False):
        armature.compile(program)(*given)
    return recorder.recording()


def test_each_call_tells_its_reason() -> None:
    recording = recorded()
    found = {call.name.partition(" ")[0]: (call.reason, call.detail) for call in recording.calls}
    assert found["aten.mm.default"] == (KINDS["library"], "a product of matrices")
    assert found["aten.sort.default"] == (KINDS["library"], "a sort")
    assert found["aten.gcd.default"] == (KINDS["no-lowering"], "")
    assert found["aten.randn.default"][0] == KINDS["random"]
    assert found["aten.mul.Tensor"] == (KINDS["dtype"], "complex64")
    assert found["aten.scatter_reduce.two"][0] == KINDS["arguments"]
    assert all(not kernel.reason for kernel in recording.kernels)
    assert schema.from_json(schema.as_json(recording)) == recording


def test_reports_count_calls_by_reason() -> None:
    recording = recorded()
    groups = by_reason(recording)
    assert sum(len(group.calls) for group in groups) == len(recording.calls) == 6
    first = program.__code__.co_firstlineno
    lines = {line for group in groups for line in group.lines}
    assert lines == {f"test_calls.py:{first + 1}", f"test_calls.py:{first + 2}"}
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(*terminal.report(recording), sep="\n")
    text, page = captured.get(), html.page(recording)
    assert "6 calls of torch's operators" in text
    for told in ("left to a library by choice: a sort", "the device's kernels have no such dtype: complex64"):
        assert told in text
    assert "no plugin lowers it" in page and "aten.gcd.default" in page and 'id="calls"' in page


def test_the_guide_has_each_kind_of_reason() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")
    assert all(f"| {text} |" in guide for text in KINDS.values())


def test_the_doctor_counts_operators() -> None:
    (check,) = (check for check in doctor.examine() if check.name == "operators")
    numbers = [int(word) for word in check.found.split() if word.isdigit()]
    assert check.state is doctor.State.OK and len(numbers) == 3 and min(numbers) > 50
