"""The parts of the pytest plugin that import torch: counts to assert on, the check of `fullgraph`, and a test's
report."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import attrs
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.console import Console

from armature.errors import ArmatureError
from armature.pipeline.session import session
from armature.reports import html, schema, terminal
from armature.reports.collect import counted
from armature.reports.files import read, write_text
from armature.reports.record import Outcome, Recording
from armature.reports.recorder import Recorder

WIDTH = 120
COMPILED = (Outcome.COMPILED, Outcome.RECOMPILED, Outcome.BROKEN)


@attrs.frozen(eq=False)
class Watch:
    """What was compiled since the watch began. Counts are current whenever they are read."""

    recorder: Recorder

    @classmethod
    def begin(cls, name: str, forget: bool) -> Self:
        """Start a watch for a test. forget: discard cached code first, so that everything is compiled anew."""
        if forget:
            session().forget_code()
        return cls(Recorder(name))

    @property
    def recording(self) -> Recording:
        """The record up to now."""
        return self.recorder.recording()

    @property
    def graphs(self) -> int:
        """The number of graphs that were captured and compiled, without backward graphs."""
        return sum(graph.kind != "backward" for graph in self.recording.graphs)

    @property
    def breaks(self) -> int:
        """The number of graph breaks that occurred."""
        return sum(one.count for one in self.recording.breaks)

    @property
    def recompiles(self) -> int:
        """The number of frames that were compiled again because a guard failed."""
        return len(self.recording.recompiled)

    @property
    def kernels(self) -> int:
        """The number of generated kernels, including those of backward graphs."""
        return len(self.recording.kernels)

    def expect(
        self,
        *,
        graphs: int | None = None,
        breaks: int | None = None,
        recompiles: int | None = None,
        kernels: int | None = None,
    ) -> None:
        """Assert counts; None is not asserted. Raises AssertionError, which has the whole report."""
        wanted = {"graphs": graphs, "breaks": breaks, "recompiles": recompiles, "kernels": kernels}
        found = {name: (getattr(self, name), count) for name, count in wanted.items() if count is not None}
        wrong = [f"{is_now} {name}, expected {count}" for name, (is_now, count) in found.items() if is_now != count]
        if wrong:
            raise AssertionError(f"{'; '.join(wrong)}\n\n{plain_text(self.recording)}")

    def no_full_graph(self) -> str:
        """Why the test is not fully compiled without graph breaks; "" if it is."""
        recording = self.recording
        eager = recording.count(*terminal.WRONG)
        if not recording.breaks and not eager and recording.count(*COMPILED):
            return ""
        lead = "the test is marked fullgraph"
        if not recording.count(*COMPILED) and not recording.breaks and not eager:
            return f"{lead}, but armature compiled nothing in it"
        broke, ran = counted(self.breaks, "graph"), counted(eager, "frame")
        return f"{lead}, but {broke} broke and {ran} ran eagerly\n\n{plain_text(recording)}"

    def write(self, folder: Path, name: str) -> None:
        """Write the page and the data of a test, if the hook handled any frame in it."""
        recording = self.recording
        if recording.frames:
            write_text(folder / f"{name}.html", html.page(recording))
            write_text(folder / f"{name}.json", schema.as_json(recording))


def written(watch: Watch, folder: Path, name: str) -> str:
    """Write the report of a test. Returns why it can't be written, or "": a failed report must not change the test's
    result."""
    try:
        watch.write(folder, name)
    except Exception as error:
        return f"its report can't be written: {type(error).__name__}: {error}"
    return ""


def indexed(folder: Path) -> list[str]:
    """Write the index. Returns what was left out, or why it can't be written."""
    try:
        return write_index(folder)
    except Exception as error:
        return [f"{folder / 'index.html'} can't be written: {type(error).__name__}: {error}"]


def plain_text(recording: Recording) -> str:
    """The terminal report as plain text."""
    console = Console(width=WIDTH, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(*terminal.report(recording), sep="\n")
    return captured.get()


def write_index(folder: Path) -> list[str]:
    """A page that links to those of all tests in a folder, with their counts. Returns why files were left out."""
    found, problems = [], []
    for file in sorted(folder.glob("*.json")):
        try:
            found.append((file, read(file)))
        except ArmatureError as error:
            problems.append(f"{file.name} is left out: {error.facts['problem']}")
    loader = FileSystemLoader(html.TEMPLATES)
    page = Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template("index.html.j2")
    style = (html.TEMPLATES / "report.css").read_text(encoding="utf-8")
    rows = [(file.with_suffix(".html").name, recording) for file, recording in found]
    write_text(folder / "index.html", page.render(rows=rows, problems=problems, style=style, wrong=terminal.WRONG))
    return problems
