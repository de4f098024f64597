"""The record for a terminal: totals, breaks by cause with the fix, recompilations, failures, frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from armature.breaks.report import Indented
from armature.frame.guards.explain import merged
from armature.reports import carets, memory_chart
from armature.reports.calls import by_reason
from armature.reports.collect import counted
from armature.reports.memory_chart import size
from armature.reports.record import Break, End, Frame, GuardFailure, Outcome, Place, Recording, Tried

STYLES = {
    Outcome.COMPILED: "green",
    Outcome.RECOMPILED: "yellow",
    Outcome.BROKEN: "yellow",
    Outcome.EMPTY: "dim",
    Outcome.SKIPPED: "dim",
    Outcome.FELL_BACK: "red",
    Outcome.FAILED: "red",
    Outcome.LIMIT: "red",
}
WRONG = (Outcome.FELL_BACK, Outcome.FAILED, Outcome.LIMIT)
LEFT_ALONE = (Outcome.SKIPPED, Outcome.EMPTY)
TAB = 4  # columns per tab within a line
NAMED = 5  # most functions listed for one reason to leave them alone


def report(recording: Recording, guards: bool = False, memory: bool = False) -> Iterator[RenderableType]:
    """The parts of the report. guards: whether to list those of each frame. memory: whether to draw it over time."""
    yield headline(recording)
    if recording.frames:
        yield tree(recording)
    yield from section("Graph breaks", [break_lines(one) for one in recording.breaks])
    again = [recompile_lines(frame) for frame in recording.recompiled]
    yield from section("Compiled again", again)
    wrong = [frame for frame in recording.frames if frame.outcome in WRONG and not frame.breaks]
    yield from section("Not compiled", [wrong_lines(frame) for frame in wrong])
    yield from left_alone([frame for frame in recording.frames if frame.outcome in LEFT_ALONE])
    if recording.kernels:
        yield kernels(recording)
    yield from calls(recording)
    yield from choices(recording)
    if memory:
        yield from section("Memory over time", memory_chart.entries(recording))
    if guards:
        yield from section("Guards", [guard_lines(frame) for frame in recording.frames if frame.guards])
    yield from section("Problems", [[Text(problem)] for problem in recording.problems])
    if recording.end is not End.ENDED:
        yield ended(recording)


def headline(recording: Recording) -> Text:
    """One line with the totals."""
    graphs = sum(graph.kind != "backward" for graph in recording.graphs)
    parts = [
        counted(graphs, "graph"),
        counted(sum(one.count for one in recording.breaks), "break"),
        f"{len(recording.recompiled)} compiled again",
        f"{recording.count(*WRONG)} left to eager",
        counted(len(recording.kernels), "kernel"),
        f"{counted(len(recording.calls), 'call')} of torch's operators",
        f"{sum(frame.seconds for frame in recording.frames):.1f} s compiling",
    ]
    return Text(", ".join(parts), style="bold")


def tree(recording: Recording) -> Tree:
    """The tree of calls. Frames that were left alone are not in it; they have a table of their own."""
    root = Tree(Text(recording.program or "program", style="bold"), guide_style="dim")
    branches: dict[int | None, Tree] = {None: root}
    for frame in recording.frames:
        if frame.outcome in LEFT_ALONE:
            branches[frame.id] = branches.get(frame.parent, root)
            continue
        line = Text.assemble(
            frame.function, (f"  {frame.where}  ", "dim"), (frame.outcome.value, STYLES[frame.outcome])
        )
        line.append(f"  {frame.reason}", style="dim")
        branches[frame.id] = branches.get(frame.parent, root).add(line)
    return root


def section(title: str, entries: Sequence[Sequence[RenderableType]]) -> Iterator[RenderableType]:
    """A heading with its entries; nothing if there are none."""
    if not entries:
        return
    yield Text(f"\n{title} ({len(entries)})", style="bold underline")
    for entry in entries:
        head, *body = entry
        yield head
        yield from map(Indented, body)


def break_lines(one: Break) -> list[RenderableType]:
    """Describe a graph break: place, cause, advice, and the lines that led to it."""
    where = one.place.where if one.place is not None else ""
    head = Text.assemble((where, "bold"), f"  {one.title} ", (f"[{one.name}]", "cyan"))
    head.append(f"  {one.count} times, {one.seconds:.2f} s" if one.count > 1 else f"  {one.seconds:.2f} s", style="dim")
    lines: list[RenderableType] = [head, Text(one.explanation)]
    lines += [Text(one.cause)] if one.cause else []
    lines += [Text(f"{seen.expression} is {seen.description}", style="dim") for seen in one.values]
    lines += [line for place in one.stack for line in place_lines(place)]
    kinds = ((hint, f" ({kind})" if kind else "") for hint, kind in one.advice)
    lines += [Text.assemble(f"What to do: {hint}", (kind, "dim")) for hint, kind in kinds]
    lines += [Text(f"More: {one.docs_url}")] if one.docs_url else []
    return [*lines, Text(f"Described by {one.plugin}", style="dim")] if one.plugin else lines


def place_lines(place: Place) -> Iterator[RenderableType]:
    """A line of a stack, as Python prints tracebacks."""
    yield Text(f'File "{place.file}", line {place.line}, in {place.function}', style="dim")
    if place.text:
        yield SourceLine(place)


@attrs.frozen
class SourceLine:
    """A line of code with carets under the expression. A line that is too long is shortened to the part around the
    expression: if the terminal wrapped it, the carets would be below the wrong text."""

    place: Place

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text, column = self.place.text.expandtabs(TAB), self.place.column
        before, marked = self.place.text[: max(column, 0)], self.place.text[: max(self.place.end_column, 0)]
        start, end = (-1, -1) if column < 0 else (len(before.expandtabs(TAB)), len(marked.expandtabs(TAB)))
        text, start, end = carets.windowed(text, start, end, options.max_width - 2)
        yield Text(f"  {text}")
        if start >= 0 and (start, end) != (0, len(text)):
            yield Text(f"  {carets.caret_line(text, start, end)}", style="yellow")


def recompile_lines(frame: Frame) -> list[RenderableType]:
    """A frame that was compiled again, and what changed."""
    head = Text.assemble((frame.where, "bold"), f"  {frame.function}  ", (frame.outcome.value, STYLES[frame.outcome]))
    return [head, *map(failure_line, merged(frame.failures))]


def failure_line(failure: GuardFailure) -> Text:
    """A guard that failed."""
    user = f"    relied on at {failure.user}" if failure.user else ""
    rest = failure.words.removeprefix(failure.expression)
    return Text.assemble((failure.expression, "cyan"), rest, (user, "dim"))


def wrong_lines(frame: Frame) -> list[RenderableType]:
    """A frame that could not be compiled."""
    head = Text.assemble((frame.where, "bold"), f"  {frame.function}  ", (frame.outcome.value, STYLES[frame.outcome]))
    return [head, Text(frame.reason)]


def left_alone(frames: Sequence[Frame]) -> Iterator[RenderableType]:
    """The functions that were left alone, by reason."""
    by_reason: dict[str, dict[str, None]] = {}
    for frame in frames:
        by_reason.setdefault(frame.reason, {})[f"{frame.function} {frame.where}"] = None
    table = Table(title="left alone")
    for name in ("reason", "functions"):
        table.add_column(name)
    for reason, functions in by_reason.items():
        named = list(functions)
        more = [f"and {len(named) - NAMED} more"] if len(named) > NAMED else []
        table.add_row(Text(reason), Text("\n".join([*named[:NAMED], *more])))
    if table.row_count:
        yield table


def kernels(recording: Recording) -> Table:
    """The generated kernels, sorted by the bytes they move, most first."""
    table = Table(title="kernels")
    for name in ("kernel", "graph", "fused", "from"):
        table.add_column(name)
    table.add_column("bytes", justify="right")
    found = [(kernel, graph) for graph in recording.graphs for kernel in graph.kernels if kernel.generated]
    found.sort(key=lambda pair: -(pair[0].bytes_read or 0) - (pair[0].bytes_written or 0))
    for kernel, graph in found[:MOST_KERNELS]:
        fused = ", ".join(operator.removeprefix("aten.").partition(".")[0] for operator in kernel.operators)
        known = kernel.bytes_read is not None and kernel.bytes_written is not None
        moved = size((kernel.bytes_read or 0) + (kernel.bytes_written or 0)) if known else "sizes vary"
        lines = ", ".join(dict.fromkeys(place.where for place in kernel.places))
        table.add_row(Text(kernel.name), Text(graph.name), Text(fused), Text(lines), moved)
    if len(found) > MOST_KERNELS:
        table.caption = f"and {len(found) - MOST_KERNELS} more"
    return table


MOST_KERNELS = 20


def calls(recording: Recording) -> Iterator[Table]:
    """The operators of torch that compiled graphs call, by the reason why they are no kernels."""
    table = Table(title="calls of torch's operators")
    for name in ("why", "operators", "from"):
        table.add_column(name)
    table.add_column("calls", justify="right")
    for group in by_reason(recording):
        why = f"{group.reason}: {group.detail}" if group.detail else group.reason
        named = ", ".join(name if count == 1 else f"{name} ({count})" for name, count in group.operators)
        more = [f"and {len(group.lines) - NAMED} more"] if len(group.lines) > NAMED else []
        lines = ", ".join([*group.lines[:NAMED], *more])
        table.add_row(Text(why), Text(named), Text(lines), str(len(group.calls)))
    if table.row_count:
        yield table


def choices(recording: Recording) -> Iterator[Table]:
    """How kernels were chosen among several ways to compute them, with the time of each."""
    table = Table(title="choices")
    for name in ("kernel", "chosen", "how", "considered"):
        table.add_column(name)
    for graph in recording.graphs:
        for kernel in graph.kernels:
            if kernel.choice is not None:
                lines = "\n".join(map(considered, kernel.choice.tried))
                table.add_row(Text(kernel.name), Text(kernel.choice.chosen), Text(kernel.choice.how), Text(lines))
    if table.row_count:
        yield table


def considered(tried: Tried) -> str:
    """`128x128x64, 8 warps, 3 stages: 41.2 us`."""
    time = f"{tried.seconds * 1e6:.1f} us" if tried.seconds is not None else tried.problem or "not measured"
    return f"{tried.label}: {time}"


def guard_lines(frame: Frame) -> list[RenderableType]:
    """List the guards of a frame's code."""
    return [Text.assemble((frame.where, "bold"), f"  {frame.function}"), *map(Text, frame.guards)]


def ended(recording: Recording) -> Text:
    """Describe how a program ended, if it did not end normally with status 0."""
    if recording.end is End.EXITED:
        return Text(f"The program left with status {recording.status}.", style="yellow")
    return Text(f"The program raised; all above is what happened before.\n{recording.error}", style="red")
