"""One model in a process of its own: eager mode, float64, both front ends, and armature's kernels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import fx
from torch._dynamo.utils import counters

import armature
from armature import config
from armature.plugin_api import BreakEvent, CompileEvent, EventKind, hookimpl
from armature.plugins import manager
from benchmarks.zoo.building import first_that_runs, made, place_of, seed, short
from benchmarks.zoo.case import Build, Case, NotBuildable
from benchmarks.zoo.explaining import explained, raises_as_told, shake
from benchmarks.zoo.tensors import Difference, Results, differences, fresh, tensors_of, to_double, weighted_sum

PHASES = ("infer", "train")
KEPT = 12  # differences, breaks and warnings of a kind that a row records
Row = dict[str, Any]
Report = Callable[[Row], None]


class NoGradients(Exception):
    """No result depends on a parameter."""


@attrs.frozen
class Settings:
    """What to measure."""

    device: str = "cpu"
    auto: bool = True  # with armature's kernels too
    strict: bool = False
    incumbent: bool = True  # torch.compile for comparison
    dynamic: bool = False
    phases: tuple[str, ...] = PHASES  # empty: models are only built


@attrs.define(eq=False)
class Observer:
    """A plugin that records graph breaks and fallbacks."""

    breaks: list[BreakEvent] = attrs.field(factory=list)
    fallbacks: list[CompileEvent] = attrs.field(factory=list)

    @hookimpl
    def armature_graph_break(self, event: BreakEvent) -> None:
        """Keep it."""
        self.breaks.append(event)

    @hookimpl
    def armature_compile_event(self, event: CompileEvent) -> None:
        """Record it if armature gave up on a frame for a reason other than a graph break."""
        if event.kind is EventKind.FALLBACK and not event.detail.startswith("graph break"):
            self.fallbacks.append(event)


def call_once(case: Case, phase: str, run: Callable[..., Any], double: bool = False) -> Results:
    """One call of a model; for "train" in training mode, with a backward pass. Returns results and side effects."""
    args, kwargs = fresh(case.arguments(phase))
    if double:
        args, kwargs = to_double((args, kwargs))
    results = Results()
    case.model.train(phase == "train")
    case.model.zero_grad(set_to_none=True)
    seed(2)
    with torch.set_grad_enabled(phase == "train"):
        found = run(*args, **kwargs)
        loss = weighted_sum(found) if phase == "train" else None
    if phase == "train":
        if loss is None:
            raise NoGradients("nothing of the result depends on a parameter")
        loss.backward()
        grads = ((name, p.grad) for name, p in case.model.named_parameters())
        results.keep("gradient", ((name, grad) for name, grad in grads if grad is not None))
    results.keep("output", tensors_of(found))
    results.keep("state", iter(case.model.named_buffers()))
    results.keep("argument", tensors_of((args, kwargs)))
    return results


def shaken(build: Build, device: str, phase: str, number: int) -> Results:
    """The results of a model with slightly perturbed weights."""
    case = made(build, device)
    shake(case.model, number)
    return call_once(case, phase, case.model)


def in_double(build: Build, device: str, phase: str) -> tuple[Results | None, str]:
    """The float64 reference; None and the reason if the model can't run in float64."""
    case = made(build, device)
    before = torch.get_default_dtype()
    try:
        case.model.double()
        torch.set_default_dtype(torch.float64)
        return call_once(case, phase, case.model, double=True), ""
    except Exception as error:  # for example a model with hard-coded float32
        return None, short(error, 160)
    finally:
        torch.set_default_dtype(before)


def forget() -> None:
    """Forget everything compiled."""
    armature.reset()
    torch._dynamo.reset()
    counters.clear()


def counting(graphs: list[int]) -> Callable[..., Any]:
    """A back end that runs graphs uncompiled and counts the calls in each."""

    def backend(module: fx.GraphModule, inputs: Any) -> Any:
        graphs.append(sum(node.op.startswith("call_") for node in module.graph.nodes))
        return module.forward

    return backend


def broken(event: BreakEvent) -> dict[str, str]:
    """A graph break as data for a row."""
    place = event.stack[-1] if event.stack else None
    facts = {key: " ".join(str(value).split())[:120] for key, value in event.facts.items()}
    return {
        "id": event.type.id,
        "facts": str(facts),
        "line": place.text if place else "",
        "place": f"{place.file}:{place.line} in {place.function}" if place else "",
        "outcome": event.outcome,
    }


def as_rows(found: list[Difference]) -> list[Row]:
    """Differences as data for a row, the important kinds first."""
    order = sorted(found, key=lambda d: (d.kind == "strides", d.group != "output", -d.error))
    return [attrs.asdict(d) for d in order[:KEPT]]


@attrs.define(eq=False)
class Measurement:
    """The measurement of one model; the row is reported after each step, so that a crash loses nothing found before."""

    build: Build
    settings: Settings
    report: Report
    row: Row

    def step(self, name: str) -> None:
        """Record the step that is about to begin."""
        self.row["stage"] = name
        self.report(self.row)

    def phase(self, phase: str) -> Row:
        """Measure inference, or a training step."""
        into: Row = self.row.setdefault(phase, {})
        self.step(f"{phase}: eager")
        case = made(self.build, self.settings.device)
        start = time.perf_counter()
        try:
            eager = call_once(case, phase, case.model)
        except Exception as error:  # the library's own error: skip the phase
            into["not run"] = short(error)
            return into
        into["eager seconds"] = time.perf_counter() - start
        self.step(f"{phase}: float64")
        exact, why = in_double(self.build, self.settings.device, phase)
        if why:
            into["no float64"] = why
        ways: list[tuple[str, Callable[[Row], Results]]] = [
            ("capture", lambda row: self.armature(row, phase, counting(row.setdefault("graphs", [])), calls=2)),
        ]
        if self.settings.incumbent:
            ways.append(("torch.compile", lambda row: self.incumbent(row, phase)))
        if self.settings.auto:
            ways.append(("auto", lambda row: self.armature(row, phase, "auto", calls=2)))
        for name, run in ways:
            self.step(f"{phase}: {name}")
            into[name] = self.compared(run, phase, eager, exact)
        return into

    def told(self, phase: str) -> tuple[Results, Results | None]:
        """Run the model in eager mode and in float64 again, for when it is told that it is compiled."""
        case = made(self.build, self.settings.device)
        return call_once(case, phase, case.model), in_double(self.build, self.settings.device, phase)[0]

    def compared(self, run: Callable[[Row], Results], phase: str, eager: Results, exact: Results | None) -> Row:
        """A compiled call, compared with eager mode."""
        row: Row = {}
        forget()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found = run(row)
            except Exception as error:
                row["raised"] = short(error, 600)
                row["raised at"] = place_of(error, "armature") or place_of(error, "")
                row["raised as told"] = raises_as_told(row["raised"], lambda: self.told(phase))
                found = eager
        ours = [" ".join(str(w.message).split()) for w in caught if issubclass(w.category, armature_warnings())]
        row["warnings"] = list(dict.fromkeys(text[:600] for text in ours))[:KEPT]
        forget()
        why = explained(
            found,
            differences(found, eager, exact),
            eager,
            exact,
            lambda: self.told(phase),
            lambda number: shaken(self.build, self.settings.device, phase, number),
        )
        row.update({"wrong": as_rows(why.wrong), "asks": as_rows(why.asks), "unstable": as_rows(why.unstable)})
        return row

    def armature(self, row: Row, phase: str, backend: Any, calls: int) -> Results:
        """Run armature with a back end. The first call is timed; the results are those of the last one."""
        case = made(self.build, self.settings.device)
        observer = Observer()
        dynamic = True if self.settings.dynamic else None
        try:
            with manager().registered(observer, "benchmarks.zoo"), config.patch(strict=self.settings.strict):
                compiled = armature.compile(case.model, backend=backend, dynamic=dynamic)
                start = time.perf_counter()
                buffers = {name: buffer.clone() for name, buffer in case.model.named_buffers()}
                results = call_once(case, phase, compiled)
                row["seconds"] = time.perf_counter() - start
                row["break count"] = len(observer.breaks)
                first = len(row.get("graphs", ()))  # for comparison with torch.compile, which is called once
                for _ in range(calls - 1):
                    for name, buffer in case.model.named_buffers():  # undo the first call's writes
                        if name in buffers and buffer.shape == buffers[name].shape:
                            buffer.copy_(buffers[name])
                    results = call_once(case, phase, compiled)
                row["graphs of later calls"] = row.get("graphs", [])[first:]
                del row.get("graphs", [])[first:]
        finally:
            row["breaks"] = [broken(event) for event in observer.breaks[:KEPT]]
            row.setdefault("break count", len(observer.breaks))
            row["breaks of later calls"] = len(observer.breaks) - row["break count"]
            row["fallbacks"] = [f"{e.function}: {' '.join(e.detail.split())[:400]}" for e in observer.fallbacks][:KEPT]
        return results

    def incumbent(self, row: Row, phase: str) -> Results:
        """torch.compile's front end."""
        case = made(self.build, self.settings.device)
        graphs = row.setdefault("graphs", [])
        compiled = torch.compile(case.model, backend=counting(graphs), dynamic=self.settings.dynamic or None)
        try:
            start = time.perf_counter()
            results = call_once(case, phase, compiled)
            row["seconds"] = time.perf_counter() - start
        finally:
            reasons = counters["graph_break"]
            row["breaks"] = [" ".join(str(text).split())[:300] for text in list(reasons)[:KEPT]]
            row["break count"] = sum(reasons.values())
            row["given up"] = counters["frames"]["total"] - counters["frames"]["ok"]
        return results


def armature_warnings() -> type[Warning]:
    """Armature's warning class."""
    return armature.ArmatureWarning


def measure(library: str, name: str, settings: Settings, report: Report) -> None:
    """Measure one model; reports its row after each step."""
    from benchmarks.zoo.libraries import LIBRARIES  # noqa: PLC0415  what a library needs is imported in this process

    row: Row = {"library": library, "name": name}
    start = time.perf_counter()
    row["stage"] = "build"
    report(row)
    try:
        build, case, _ = first_that_runs(LIBRARIES[library].ways(name), settings.device)
    except NotBuildable as error:
        row.update({"not built": str(error)[:1500], "stage": "done"})
        report(row)
        return
    row["parameters"] = sum(p.numel() for p in case.model.parameters())
    row["build seconds"] = time.perf_counter() - start
    del case
    measurement = Measurement(build, settings, report, row)
    for phase in settings.phases:
        measurement.phase(phase)
    row["total seconds"] = time.perf_counter() - start
    measurement.step("done")
