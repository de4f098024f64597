"""Choices between kernels: measured once, kept, shared, switched off, and told in the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from rich.console import Console

import armature
from armature.backend_api import Alternative, ArgumentSpec, DeviceBackend, GroupSpec, KernelChoice, measured
from armature.pipeline.session import session
from armature.plugin_api import hookimpl
from armature.plugins import manager
from armature.reports import terminal
from armature.reports.recorder import Recorder
from armature.reports.schema import as_json, from_json
from armature_gpu_triton.autotune import Config, variations
from armature_gpu_triton.backend import TritonBackend
from armature_gpu_triton.blocks import Device


@attrs.define
class Bench:
    """A back end for CPU tensors with times that are given. times: by a word in the label, 1 for others."""

    times: dict[str, float] = attrs.field(factory=dict)
    device: Device = attrs.field(factory=lambda: Device("first"))
    timed: list[str] = attrs.field(factory=list)
    measures: bool = True
    ARMATURE_PRIORITY = 100

    def time(self, label: str, call: Callable[[], None]) -> float:
        call()
        self.timed.append(label)
        return next((seconds for word, seconds in self.times.items() if word in label), 1.0)

    @hookimpl
    def armature_device_backend(self, device_type: str) -> DeviceBackend | None:
        if device_type != "cpu":
            return None
        timer = self.time if self.measures else None
        return TritonBackend(True, frozenset(("cpu",)), timer=timer, device=lambda _: self.device)


@pytest.fixture
def bench(all_plugins: None, tmp_path: Path) -> Iterator[Bench]:
    armature.reset()
    made = Bench()
    with manager().registered(made, "bench"), armature.config.patch(cache_dir=tmp_path / "cache"):
        yield made
    armature.reset()


def work(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax((x @ w).relu(), -1)


def run(**options: Any) -> dict[str, KernelChoice]:
    """Compile and call it anew; the choices by kernel."""
    armature.reset()
    x, w = torch.randn(32, 64), torch.randn(64, 48)
    compiled = armature.compile(work, fullgraph=True, mode="max-autotune-no-cudagraphs", options=options)
    torch.testing.assert_close(compiled(x, w), work(x, w), rtol=1e-4, atol=1e-5)
    return {choice.kernel: choice for source in session().kernel_sources() for choice in source.choices}


def of_product(choices: dict[str, KernelChoice]) -> KernelChoice:
    (found,) = [c for c in choices.values() if any(t.label == "library" for t in c.tried)]
    return found


def test_the_fastest_is_taken_and_kept(bench: Bench) -> None:
    bench.times = {"32x32x": 0.25}
    first = run()
    assert len(first) == 2 and all(c.how == "measured" for c in first.values())
    assert "32x32x" in of_product(first).chosen and len(bench.timed) == sum(len(c.tried) for c in first.values())
    bench.timed.clear()
    again = run()
    assert not bench.timed and all(c.how == "kept" for c in again.values())
    assert {k: (c.chosen, c.tried) for k, c in again.items()} == {k: (c.chosen, c.tried) for k, c in first.items()}


def test_another_device_is_measured_anew(bench: Bench) -> None:
    run()
    bench.timed.clear()
    bench.device = Device("second")
    bench.times = {"library": 0.5}
    second = of_product(run())
    assert bench.timed and second.device == "second" and second.chosen == "library"


def test_choices_can_be_shared_and_measuring_switched_off(bench: Bench, tmp_path: Path) -> None:
    bench.times = {"32x32x": 0.25}
    run(choices_dir=str(tmp_path / "shared"))
    bench.timed.clear()
    off = of_product(run(measure=False))
    assert off.chosen == "library" and off.how == "by rule: measuring is switched off"
    kept = of_product(run(measure=False, choices_dir=str(tmp_path / "shared")))
    assert "32x32x" in kept.chosen and kept.how == "kept" and not bench.timed


def test_a_kept_choice_that_was_changed_is_measured_again(bench: Bench, tmp_path: Path) -> None:
    run(choices_dir=str(tmp_path / "shared"))
    for path in (tmp_path / "shared").rglob("*.json"):
        path.write_text(path.read_text().replace("library", "something else"))
    bench.timed.clear()
    assert of_product(run(choices_dir=str(tmp_path / "shared"))).how == "measured" and bench.timed


def test_without_a_device_the_rules_decide(bench: Bench) -> None:
    bench.measures = False
    found = run()
    assert {c.how for c in found.values()} == {"by rule: no device to measure on"}
    assert of_product(found).chosen == "library"


def test_the_option_alone_switches_it_on_and_off(bench: Bench) -> None:
    assert not run(autotune=False) and not bench.timed


@pytest.fixture
def group() -> GroupSpec:
    ways = tuple(Alternative(label, ()) for label in ("rule", "small", "large", "broken"))
    return GroupSpec(
        "k",
        (),
        alternatives=ways,
        arguments=(ArgumentSpec(torch.float16, 8), ArgumentSpec(torch.int64, 3), ArgumentSpec(None, 5)),
    )


def test_what_has_a_problem_is_not_measured(group: GroupSpec) -> None:
    given: list[tuple[object, ...]] = []

    def bound(each: Alternative) -> Callable[..., None]:
        if each.label == "broken":
            raise RuntimeError("too many resources\nand more")
        return lambda *args: given.append(args)

    def time(label: str, call: Callable[[], None]) -> float:
        call()
        return {"rule": 3.0, "small": 2.0}[label]

    found = measured.measure(group, bound, {"large": "spills 8 bytes"}, torch.device("cpu"), time)
    choice = measured.choice_of(group, found, "a device")
    assert choice.chosen == "small" and choice.how == "measured"
    assert {t.label: (t.seconds, t.problem) for t in choice.tried} == {
        "rule": (3.0, ""), "small": (2.0, ""), "large": (None, "spills 8 bytes"), "broken": (None, "too many resources"),
    }  # fmt: skip
    halves, integers, number = given[0]
    assert isinstance(halves, torch.Tensor) and halves.dtype == torch.float16 and halves.numel() == 8
    assert isinstance(integers, torch.Tensor) and not integers.any() and number == 5
    assert measured.with_choice(group, choice) == group.taking(group.alternatives[1])


def test_where_nothing_can_be_measured_the_rules_decide(group: GroupSpec) -> None:
    problems = {each.label: "spills" for each in group.alternatives}
    found = measured.measure(group, lambda each: lambda: None, problems, torch.device("cpu"), lambda label, call: 1.0)
    with pytest.raises(measured.NothingMeasured) as caught:
        measured.choice_of(group, found, "")
    assert caught.value.choice.chosen == "rule" and "none could be measured" in caught.value.choice.how


def test_without_memory_for_it_nothing_is_measured(group: GroupSpec) -> None:
    large = attrs.evolve(group, arguments=(ArgumentSpec(torch.float16, 1 << 60),))
    found = measured.measure(large, lambda each: lambda: None, {}, torch.device("cpu"), lambda label, call: 1.0)
    assert found.fastest is None and set(found.problems) == {each.label for each in group.alternatives}


def test_measuring_draws_none_of_the_programs_random_numbers(group: GroupSpec) -> None:
    before = torch.get_rng_state()
    measured.arguments(group, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("text", ["{}", "[]", "", '{"chosen": "other", "device": "", "tried": []}'])
def test_a_file_that_is_no_choice_is_refused(text: str, group: GroupSpec) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        measured.from_text(text, group)


@pytest.mark.parametrize(
    "config", [Config(1024, 0, 4), Config(1, 4096, 8, persistent=True), Config(64, 32, 4), Config(1, 1, 1)]
)
def test_variations_are_few_and_keep_whole_rows(config: Config) -> None:
    found = variations(config)
    assert 1 <= len(found) <= 4 and config not in found and len({c.label for c in found}) == len(found)
    assert all(c.xblock >= 1 and 1 <= c.num_warps <= 16 for c in found)
    assert all(c.rblock == config.rblock for c in found if config.persistent)


def test_the_report_lists_each_choice(bench: Bench, tmp_path: Path) -> None:
    bench.times = {"library": 0.5}
    recorder = Recorder("test")
    with recorder:
        run()
    recording = from_json(as_json(recorder.recording()))
    (product,) = [k.choice for g in recording.graphs for k in g.kernels if k.choice and k.choice.chosen == "library"]
    assert product.device == "first" and {t.label: t.seconds for t in product.tried}["library"] == 0.5
    console = Console(width=200, record=True, file=(tmp_path / "out").open("w"))
    for part in terminal.report(recording):
        console.print(part)
    text = console.export_text()
    assert "choices" in text and "library: 500000.0 us" in text and "measured" in text
    assert json.loads(as_json(recording))["graphs"]
