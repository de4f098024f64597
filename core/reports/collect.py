"""Builds the record of what a session did: each look at a frame with its outcome and reason, each graph break once,
graphs and times."""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata

import attrs

from armature.breaks import events
from armature.breaks.types import BreakEvent, FrameSummary
from armature.errors import ArmatureError
from armature.events import EventKind
from armature.frame import skip
from armature.frame.guards.explain import FailedGuard, merged
from armature.pipeline.callers import Caller
from armature.pipeline.session import Compilation, Limit, Records, Skip
from armature.pipeline.session import Outcome as Ended
from armature.plugins.plugin_manager import CORE, PluginManager, manager
from armature.reports import carets, source_lines
from armature.reports.graphs import captured_graph, compiled_graph, with_inputs
from armature.reports.record import (
    Break,
    Frame,
    Graph,
    GuardFailure,
    Outcome,
    Place,
    Recording,
    SeenValue,
    Span,
    Versions,
)
from armature.run.timeline import Timeline
from armature.torch_abi import versions

OUTCOMES = {
    Ended.COMPILED: Outcome.COMPILED,
    Ended.EMPTY: Outcome.EMPTY,
    Ended.BREAK: Outcome.BROKEN,
    Ended.FALLBACK: Outcome.FELL_BACK,
    Ended.FAILED: Outcome.FAILED,
}
RESUMED = " (resumed at line "  # in the names of resume functions
UNFINISHED = "it was being compiled when the recording ended"


def collected(records: Records, began: float, timeline: Timeline | None = None) -> Recording:
    """Build the record. began: the time when recording began, in seconds of `time.perf_counter`."""
    maker = Collector(began)
    skips = (left for left in records.skips if left.reason != skip.OWN)
    looks: list[Compilation | Skip | Limit] = [*records.compilations, *skips, *records.limits]
    looks.sort(key=time_of)
    for look in looks:
        maker.add(look)
    spans = [*maker.spans, *(() if timeline is None else runs(timeline, began))]
    if timeline is not None and timeline.left_out:
        maker.problems.append(f"{timeline.left_out} runs of kernels and graphs were too many for the trace")
    return Recording(
        versions=found_versions(manager()),
        frames=tuple(maker.frames),
        breaks=tuple(maker.breaks.values()),
        graphs=tuple(maker.graphs),
        spans=tuple(sorted(spans, key=lambda span: (span.start, -span.seconds))),
        problems=(*maker.problems, *(str(problem.error) for problem in manager().problems)),
    )


def time_of(look: Compilation | Skip | Limit) -> float:
    """When a frame was looked at."""
    return look.started if isinstance(look, Compilation) else look.at


@attrs.define(eq=False)
class Collector:
    """Collects the parts of the record."""

    began: float
    frames: list[Frame] = attrs.field(factory=list)
    breaks: dict[object, Break] = attrs.field(factory=dict)
    graphs: list[Graph] = attrs.field(factory=list)
    spans: list[Span] = attrs.field(factory=list)
    problems: list[str] = attrs.field(factory=list)
    # by function, the number of the frame of its most recent look
    _latest: dict[tuple[str, str, int], int] = attrs.field(factory=dict)
    _met: list[object] = attrs.field(factory=list)  # keys of breaks, in the order in which they occurred

    def add(self, look: Compilation | Skip | Limit) -> None:
        """Add one look at a frame. If its data can't be read, the record says so, and the other looks are kept."""
        made = self._frame(look)
        try:
            if isinstance(look, Compilation):
                made = self._compiled(made, look)
            elif isinstance(look, Limit):
                made = attrs.evolve(made, failures=failures(look.failed_guards))
        # texts from plugins and values of the program may raise any error when they are read
        except Exception as error:
            problem = f"its record can't be read in full: {type(error).__name__}: {error}"
            made = attrs.evolve(made, reason=f"{made.reason}; {problem}" if made.reason else problem)
            self.problems.append(f"{made.where} {made.function}: {problem}")
        self.frames.append(made)
        self._latest[look.file, look.function, look.line] = made.id

    def _frame(self, look: Compilation | Skip | Limit) -> Frame:
        left = Outcome.LIMIT if isinstance(look, Limit) else Outcome.SKIPPED
        return Frame(
            id=len(self.frames),
            function=look.function,
            file=look.file,
            line=look.line,
            outcome=OUTCOMES[look.outcome] if isinstance(look, Compilation) else left,
            reason=look.reason,
            parent=self._parent(look.callers),
            at=time_of(look) - self.began,
            callers=tuple(map(source_lines.called, look.callers)),
        )

    def _parent(self, callers: Sequence[Caller]) -> int | None:
        keys = ((caller.file, caller.function, caller.first_line) for caller in callers)
        return next((self._latest[key] for key in keys if key in self._latest), None)

    def _compiled(self, frame: Frame, record: Compilation) -> Frame:
        graphs = self._graphs(frame.id, record)
        self._charge(record)
        breaks = tuple(self._break(event, frame.id, record.callers) for event in record.breaks)
        self.spans += stages(record, frame, self.began)
        made = attrs.evolve(
            frame,
            seconds=record.seconds,
            operators=record.operators,
            backend=record.backend,
            failures=failures(record.failed_guards),
            breaks=breaks,
            graphs=tuple(graph.id for graph in graphs),
            guards=record.guards,
        )
        outcome, reason = self._outcome(record, graphs, made)
        return attrs.evolve(made, outcome=outcome, reason=reason)

    def _graphs(self, frame: int, record: Compilation) -> list[Graph]:
        first = len(self.graphs)
        found = [
            with_inputs(compiled_graph(first + k, frame, graph), record.inputs) for k, graph in enumerate(record.graphs)
        ]
        if not found and record.module is not None and record.outcome is Ended.COMPILED:
            found = [captured_graph(first, frame, record.function, record.module)]
        self.graphs += found
        return found

    def _outcome(self, record: Compilation, graphs: Sequence[Graph], frame: Frame) -> tuple[Outcome, str]:
        if record.breaks:
            first = self.breaks[self._met[-len(record.breaks)]]
            where = f"{first.place.where}: " if first.place is not None else ""
            reason = f"{where}{first.title} [{first.type}]: {first.explanation}"
            cut = record.outcome is Ended.COMPILED
            return Outcome.BROKEN, reason if cut else f"{reason} The frame runs eagerly: {record.reason}"
        if record.outcome is not Ended.COMPILED:
            return OUTCOMES[record.outcome], record.reason or UNFINISHED
        if frame.failures:
            return Outcome.RECOMPILED, "; ".join(dict.fromkeys(map(failure_text, merged(frame.failures))))
        return Outcome.COMPILED, compiled_as(record, graphs)

    def _break(self, event: BreakEvent, frame: int, callers: Sequence[Caller]) -> int:
        made = self._new_break(event, callers)
        places = [place for place in (*made.stack[-1:], made.place) if place is not None]
        key = (event.type.id, *((place.file, place.line, place.column) for place in places))
        known = self.breaks.get(key)
        if known is not None:
            made = attrs.evolve(known, count=known.count + 1, seconds=known.seconds + event.seconds)
        self.breaks[key] = attrs.evolve(made, frames=tuple(dict.fromkeys((*made.frames, frame))))
        self._met.append(key)
        return made.id

    def _new_break(self, event: BreakEvent, callers: Sequence[Caller]) -> Break:
        return Break(
            id=len(self.breaks),
            type=event.type.id,
            title=event.type.title,
            explanation=events.explanation(event),
            hints=tuple(map(str, events.hints(event))),
            hint_kinds=tuple(hint.kind.value for hint in event.type.hints),
            code=event.type.code,
            cause=events.fill(event.type.cause, event.facts),
            docs_url=event.type.docs_url,
            plugin=plugin_of(event.type.id),
            stack=stack_of(event, callers),
            values=tuple(SeenValue(seen.expression, seen.description) for seen in event.values),
            seconds=event.seconds,
            outcome=event.outcome,
        )

    def _charge(self, record: Compilation) -> None:
        """Add the compile time of a resume function to the graph break that made it necessary."""
        if not record.resumes:
            return
        name = record.function.partition(RESUMED)[0].rpartition(".")[2]
        for key in reversed(self._met):
            known = self.breaks[key]
            if any((place.file, place.function) == (record.file, name) for place in known.stack):
                self.breaks[key] = attrs.evolve(known, seconds=known.seconds + record.seconds)
                return


def failures(found: Iterable[FailedGuard]) -> tuple[GuardFailure, ...]:
    """The failed guards as entries of the record."""
    return tuple(GuardFailure(one.text, one.expression, one.before, one.now, one.user) for one in found)


def failure_text(failure: GuardFailure) -> str:
    """Describe a failed guard in one line."""
    return f"{failure.words} ({failure.user})" if failure.user else failure.words


def compiled_as(record: Compilation, graphs: Sequence[Graph]) -> str:
    """Describe what a frame was compiled to: its operators, graph and kernels."""
    if record.module is None:
        return "it computes nothing with tensors; its code runs under guards"
    kernels = sum(kernel.generated for graph in graphs for kernel in graph.kernels)
    what = f"{counted(record.operators, 'operator')} in one graph"
    return f"{what}, {counted(kernels, 'kernel')}" if record.graphs else f"{what}, run operator by operator"


def counted(number: int, noun: str) -> str:
    """`1 kernel`, `2 kernels`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def stack_of(event: BreakEvent, callers: Sequence[Caller]) -> tuple[Place, ...]:
    """The stack of a break. If all of its lines are in libraries, the program's lines that called them come first."""
    inner = tuple(map(place_of, event.stack))
    if any(place.own for place in inner):
        return inner
    outer = [source_lines.called(caller) for caller in callers]
    own = next((k for k, place in enumerate(outer) if place.own), -1)
    return (*reversed(outer[: own + 1]), *inner)


def place_of(summary: FrameSummary) -> Place:
    """An entry of a stack; columns are counted from the first character of its text."""
    text = events.source_line(summary)
    if summary.column < 0:
        return Place(summary.file, summary.line, summary.function, text, own=source_lines.is_own(summary.file))
    indent = source_lines.indentation(summary.file, summary.line)
    column, end = summary.column - indent, summary.end_column - indent
    if summary.end_line != summary.line:
        end = carets.code_end(text, column)
    own = source_lines.is_own(summary.file)
    return Place(summary.file, summary.line, summary.function, text, column, end, own)


def plugin_of(type_id: str) -> str:
    """The plugin that defines a break type; "" if none does."""
    try:
        rows = manager().tables().registries.break_types.winners()
    except ArmatureError:
        return ""
    return next((row.plugin.title for row in rows if row.value.id == type_id), "")


def stages(record: Compilation, frame: Frame, began: float) -> Iterator[Span]:
    """The time of a compilation, and of each of its stages."""
    if record.seconds:
        yield Span(record.function, "frame", frame.at, record.seconds, frame.id)
    for event in record.events:
        if event.kind is EventKind.STAGE:
            yield Span(event.detail, "stage", event.at - event.seconds - began, event.seconds, frame.id)


def runs(timeline: Timeline, began: float) -> Iterator[Span]:
    """The runs of graphs and kernels."""
    numbers = {threading.main_thread().ident: 0}
    for ran in timeline.runs:
        thread = numbers.setdefault(ran.thread, len(numbers))
        yield Span(ran.name, ran.kind, ran.start - began, ran.seconds, thread=thread)


def found_versions(plugins: PluginManager) -> Versions:
    """The versions of the software in this process."""
    found = versions.of_process()
    named = {(plugin.title, plugin.version) for plugin in plugins.tables().plugins if plugin.version}
    return Versions(
        armature=metadata.version(CORE),
        torch=str(found.torch),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        plugins=tuple(f"{title} {version}" for title, version in sorted(named)),
    )
