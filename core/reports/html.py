"""The record as one web page: it stands alone, needs no network, and does well in light, dark and on a phone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from armature.reports.layout import layout
from armature.reports.record import Break, Frame, Graph, Outcome, Recording
from armature.reports.terminal import size

TEMPLATES = Path(__file__).parent / "templates"
LEFT = (Outcome.SKIPPED, Outcome.EMPTY)
WRONG = (Outcome.FELL_BACK, Outcome.FAILED, Outcome.LIMIT)
SHOWN_SPANS = 20_000  # in the flame chart, the longest ones


@attrs.frozen
class Branch:
    """A frame with those that it called."""

    frame: Frame
    calls: tuple[Branch, ...]


@attrs.frozen
class Cause:
    """Breaks of one type, with all its places."""

    breaks: tuple[Break, ...]

    @property
    def first(self) -> Break:
        """One of them, for what they share."""
        return self.breaks[0]

    @property
    def count(self) -> int:
        """How often they were met."""
        return sum(one.count for one in self.breaks)

    @property
    def seconds(self) -> float:
        """What they cost."""
        return sum(one.seconds for one in self.breaks)


def page(recording: Recording) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["size"] = size
    looked_at = [frame for frame in recording.frames if frame.outcome not in LEFT]
    return environment.get_template("report.html.j2").render(
        recording=recording,
        tree=tree(looked_at, recording.frames),
        causes=causes(recording.breaks),
        left=left_alone(recording.frames),
        wrong=[frame for frame in looked_at if frame.outcome in WRONG],
        data=script_data(recording),
        style=(TEMPLATES / "report.css").read_text(encoding="utf-8"),
        script=(TEMPLATES / "report.js").read_text(encoding="utf-8"),
    )


def tree(frames: Sequence[Frame], every: Sequence[Frame]) -> tuple[Branch, ...]:
    """The frames by who called whom; one that was called from a frame not shown hangs on the next above it."""
    shown = {frame.id for frame in frames}
    parents = {frame.id: frame.parent for frame in every}
    below: dict[int | None, list[Frame]] = {}
    for frame in frames:
        parent = frame.parent
        while parent is not None and parent not in shown:
            parent = parents[parent]
        below.setdefault(parent, []).append(frame)

    def branches(parent: int | None) -> tuple[Branch, ...]:
        return tuple(Branch(frame, branches(frame.id)) for frame in below.get(parent, ()))

    return branches(None)


def causes(breaks: Iterable[Break]) -> list[Cause]:
    """The breaks by type, those that cost most first."""
    found: dict[str, list[Break]] = {}
    for one in breaks:
        found.setdefault(one.type, []).append(one)
    return sorted((Cause(tuple(group)) for group in found.values()), key=lambda cause: -cause.seconds)


def left_alone(frames: Iterable[Frame]) -> Mapping[str, list[Frame]]:
    """Functions that were left alone, by reason, each once."""
    found: dict[str, dict[tuple[str, str], Frame]] = {}
    for frame in frames:
        if frame.outcome in LEFT:
            found.setdefault(frame.reason, {}).setdefault((frame.function, frame.where), frame)
    return {reason: list(group.values()) for reason, group in found.items()}


def script_data(recording: Recording) -> str:
    """What the script draws, as JSON that can stand in a script element."""
    spans = sorted(recording.spans, key=lambda span: -span.seconds)[:SHOWN_SPANS]
    spans.sort(key=lambda span: span.start)
    data = {
        "seconds": recording.seconds,
        "graphs": [drawn(graph, recording.frames[graph.frame]) for graph in recording.graphs],
        "spans": [
            [s.name, s.kind, s.start, s.seconds, s.frame, s.thread] for s in sorted(spans, key=lambda s: s.start)
        ],
        "memory": [[sample.at, sample.resident, sample.device] for sample in recording.memory],
    }
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def drawn(graph: Graph, frame: Frame) -> dict[str, Any]:
    """A graph as the script reads it. Nodes: name, kind, target, inputs, type, line, kernels, column, layer."""
    positions = layout(graph)
    lines: dict[tuple[str, int], int] = {}
    texts: list[list[Any]] = []
    nodes = []
    for node in graph.nodes:
        line = -1
        if node.place is not None:
            key = (node.place.file, node.place.line)
            line = lines.setdefault(key, len(lines))
            if line == len(texts):
                texts.append([node.place.where, node.place.text, node.place.function])
        nodes.append(
            [node.name, node.kind, node.target, node.inputs, node.type, line, node.kernels, *positions[node.name]]
        )
    return {
        "id": graph.id,
        "name": graph.name,
        "kind": graph.kind,
        "frame": f"{frame.function}  {frame.where}",
        "nodes": nodes,
        "lines": texts,
        "kernels": {kernel.name: [kernel.code, kernel.generated, kernel.nodes] for kernel in graph.kernels},
        "wrapper": graph.wrapper,
        "memory": [[step.step, step.bytes] for step in graph.memory],
    }
