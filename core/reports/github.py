"""Breaks, recompilations and fallbacks as workflow commands for GitHub Actions, which shows them next to the lines."""

from __future__ import annotations

from collections.abc import Iterator

from armature.reports import gate
from armature.reports.gate import Finding
from armature.reports.record import Recording


def lines(recording: Recording) -> Iterator[str]:
    """A line for each finding."""
    for finding in gate.everything(recording):
        yield annotation(finding, recording.folder)


def annotation(finding: Finding, folder: str) -> str:
    """`::warning file=model.py,line=41,title=...::message`. folder: the checkout, where the program was run."""
    properties = {"title": escaped_property(f"armature: {finding.title} [{finding.rule}]")}
    if finding.place is not None:
        file = gate.relative(finding.place.file, folder) or finding.place.file
        properties = {"file": escaped_property(file), "line": str(finding.place.line)} | properties
    given = ",".join(f"{name}={value}" for name, value in properties.items())
    text = "\n".join([finding.message, *(f"What to do: {hint}" for hint in finding.hints)])
    return f"::warning {given}::{escaped(text)}"


def escaped(text: str) -> str:
    """The text of a workflow command: line ends and per cent signs are escaped."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escaped_property(text: str) -> str:
    """Like `escaped`, for a property: there, colons and commas are separators and are escaped too."""
    return escaped(text).replace(":", "%3A").replace(",", "%2C")
