"""The record as one self-contained web page: it needs no network, and works in light and dark mode and on a phone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from armature.frame.guards.explain import merged
from armature.reports.calls import by_reason
from armature.reports.layout import layout
from armature.reports.memory_chart import size
from armature.reports.record import Break, Frame, Graph, Outcome, Recording

TEMPLATES = Path(__file__).parent / "templates"
LEFT_ALONE = (Outcome.SKIPPED, Outcome.EMPTY)
WRONG = (Outcome.FELL_BACK, Outcome.FAILED, Outcome.LIMIT)
SHOWN_SPANS = 20_000  # in the flame chart, the longest ones
MOST_PROBLEMS = 5  # problems that the head of the page names
CODE = re.compile(r"`([^`]*)`")


@attrs.frozen
class Branch:
    """A frame with the frames that it called."""

    frame: Frame
    calls: tuple[Branch, ...]


@attrs.frozen
class Cause:
    """Breaks of one type, with all its places."""

    breaks: tuple[Break, ...]

    @property
    def first(self) -> Break:
        """The first break, for the data that all of them share."""
        return self.breaks[0]

    @property
    def count(self) -> int:
        """How often these breaks occurred."""
        return sum(one.count for one in self.breaks)

    @property
    def seconds(self) -> float:
        """The compile time that they cost."""
        return sum(one.seconds for one in self.breaks)


@attrs.frozen
class Problem:
    """Something that made the program slower than a single graph: the cause, its cost, and the place on the page that
    explains it."""

    kind: str  # the outcome that it led to
    title: str
    where: str
    link: str
    seconds: float = 0.0
    advice: str = ""


def page(recording: Recording) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"merged": merged, "size": size, "markup": markup, "brief": brief}
    looked_at = [frame for frame in recording.frames if frame.outcome not in LEFT_ALONE]
    return environment.get_template("report.html.j2").render(
        recording=recording,
        tree=tree(looked_at, recording.frames),
        causes=causes(recording.breaks),
        problems=problems(recording),
        most=MOST_PROBLEMS,
        compiling=sum(frame.seconds for frame in recording.frames),
        slowest=max((frame.seconds for frame in recording.frames), default=0.0),
        calls=by_reason(recording),
        left=left_alone(recording.frames),
        wrong=[frame for frame in looked_at if frame.outcome in WRONG],
        data=script_data(recording),
        style=(TEMPLATES / "report.css").read_text(encoding="utf-8"),
        script=(TEMPLATES / "report.js").read_text(encoding="utf-8"),
    )


def tree(frames: Sequence[Frame], every: Sequence[Frame]) -> tuple[Branch, ...]:
    """The tree of calls. A frame whose caller is not shown is attached to the nearest shown caller above."""
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
    """The breaks grouped by type, the most expensive first."""
    found: dict[str, list[Break]] = {}
    for one in breaks:
        found.setdefault(one.type, []).append(one)
    return sorted((Cause(tuple(group)) for group in found.values()), key=lambda cause: -cause.seconds)


def problems(recording: Recording) -> list[Problem]:
    """The problems, the most expensive first. Frames that now run eagerly come before all, because their cost is
    unknown."""
    lost = [
        Problem(frame.outcome.value, frame.reason, f"{frame.function} {frame.where}", f"frame-{frame.id}")
        for frame in recording.frames
        if frame.outcome in WRONG
    ]
    costly = [*map(_of_cause, causes(recording.breaks)), *_compiled_again(recording)]
    return [*lost, *sorted(costly, key=lambda one: -one.seconds)]


def _of_cause(cause: Cause) -> Problem:
    first = cause.first
    more = f" and {len(cause.breaks) - 1} more" if len(cause.breaks) > 1 else ""
    where = f"{first.place.where}{more}" if first.place is not None else ""
    advice = first.hints[0] if first.hints else ""
    return Problem(Outcome.BROKEN.value, first.title, where, f"cause-{first.type}", cause.seconds, advice)


def _compiled_again(recording: Recording) -> Iterator[Problem]:
    """Expressions that changed, each with the compilations that it led to."""
    found: dict[tuple[str, str], Problem] = {}
    for frame in recording.recompiled:
        if frame.outcome is Outcome.LIMIT:
            continue
        for one in frame.failures[:1]:
            key = (frame.where, one.expression or one.text)
            known = found.get(key)
            seconds = frame.seconds + (known.seconds if known is not None else 0.0)
            title = f"`{one.expression}` changed" if one.expression else one.text
            where = f"{frame.function} {frame.where}"
            change = f"It was {one.before}, is now {one.now}." if one.now else ""
            found[key] = Problem(Outcome.RECOMPILED.value, title, where, "recompiles", seconds, change)
    yield from found.values()


def markup(text: str) -> Markup:
    """Convert a text with code between backticks to HTML."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if odd % 2 else part for odd, part in enumerate(CODE.split(text))
    )


def brief(operator: str) -> str:
    """The short name of an operator: `mul` for `aten.mul.Tensor`."""
    return operator.removeprefix("aten.").partition(".")[0]


def left_alone(frames: Iterable[Frame]) -> Mapping[str, list[Frame]]:
    """Functions that were left alone, by reason, each once."""
    found: dict[str, dict[tuple[str, str], Frame]] = {}
    for frame in frames:
        if frame.outcome in LEFT_ALONE:
            found.setdefault(frame.reason, {}).setdefault((frame.function, frame.where), frame)
    return {reason: list(group.values()) for reason, group in found.items()}


def script_data(recording: Recording) -> str:
    """The data that the page's script draws, as JSON that is safe inside a script element."""
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
