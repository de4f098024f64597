"""Decides whether a run in continuous integration fails: because of graph breaks and recompilations that a baseline
lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from armature.reports.record import Break, Frame, Outcome, Place, Recording


@attrs.frozen
class Finding:
    """A break, a recompilation or a fallback, for a tool to show at a line.

    rule: the id of the break type, "recompilation", "recompile-limit" or "fallback". key: identifies the finding in
    other runs, even if lines have moved.
    """

    rule: str
    title: str
    message: str
    place: Place | None
    key: tuple[str, ...]
    hints: tuple[str, ...] = ()
    docs_url: str = ""
    stack: tuple[Place, ...] = ()


def break_finding(one: Break) -> Finding:
    """A graph break."""
    place = one.place
    key = ("break", one.type, *(() if place is None else (name_of(place.file), place.function, place.text)))
    return Finding(one.type, one.title, one.explanation, place, key, one.hints, one.docs_url, one.stack)


def recompile_findings(frame: Frame) -> Iterator[Finding]:
    """The guards that failed, each as a finding."""
    place = Place(frame.file, frame.line, frame.function)
    for failure in frame.failures:
        about = failure.expression or failure.before or failure.words
        message = f"{frame.function} is compiled again: {failure.words}"
        yield Finding("recompilation", "Compiled again", message, place, ("recompile", *function_key(frame), about))


def breaks(recording: Recording) -> tuple[Finding, ...]:
    """The graph breaks."""
    return tuple(map(break_finding, recording.breaks))


def recompilations(recording: Recording) -> tuple[Finding, ...]:
    """The recompilations; each pair of function and changed expression counts once."""
    found = {one.key: one for frame in recording.recompiled for one in recompile_findings(frame)}
    return tuple(found.values())


def function_key(frame: Frame) -> tuple[str, str]:
    """Identify a function by file and name only, so that the key stays the same when lines move."""
    return name_of(frame.file), frame.function.partition(" (resumed")[0]


def name_of(file: str) -> str:
    """The file name without its folders, because a checkout has another path on each machine."""
    return file.rpartition("/")[2]


def relative(file: str, folder: str) -> str | None:
    """The path below a folder, None for a file elsewhere."""
    try:
        return Path(file).resolve().relative_to(Path(folder).resolve()).as_posix() if folder else None
    except (ValueError, OSError):
        return None


def new(findings: tuple[Finding, ...], known: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings that a baseline lacks."""
    keys = {one.key for one in known}
    return tuple(one for one in findings if one.key not in keys)


def failing(recording: Recording, known: Recording, on_break: bool, on_recompile: bool) -> tuple[Finding, ...]:
    """The findings that make a run fail, according to its options: those that the baseline `known` lacks."""
    broken = new(breaks(recording), breaks(known)) if on_break else ()
    again = new(recompilations(recording), recompilations(known)) if on_recompile else ()
    return (*broken, *again)


def line(finding: Finding) -> str:
    """A finding in one line."""
    where = f"{finding.place.where}: " if finding.place is not None else ""
    return f"{where}{finding.title} [{finding.rule}]: {finding.message}"


def fallbacks(recording: Recording) -> Iterator[Finding]:
    """Frames that could not be compiled, for other reasons than a graph break."""
    for frame in recording.frames:
        rule = LEFT_TO_EAGER.get(frame.outcome)
        if rule is not None:
            place = Place(frame.file, frame.line, frame.function)
            message = f"{frame.function} runs eagerly: {frame.reason}"
            yield Finding(rule, rule.replace("-", " ").capitalize(), message, place, (rule, *function_key(frame)))


LEFT_TO_EAGER = {Outcome.FELL_BACK: "fallback", Outcome.FAILED: "failed-backend", Outcome.LIMIT: "recompile-limit"}


def everything(recording: Recording) -> tuple[Finding, ...]:
    """All findings, each once."""
    found = {one.key: one for one in (*breaks(recording), *recompilations(recording), *fallbacks(recording))}
    return tuple(found.values())
