"""Breaks, recompilations and fallbacks as SARIF 2.1.0, the form that code scanners and editors read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from armature.reports import gate, source_lines
from armature.reports.gate import Finding
from armature.reports.record import End, Place, Recording

VERSION = "2.1.0"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
HOME = "https://pypi.org/project/torch-armature/"
ROOT = "ROOT"


def as_sarif(recording: Recording) -> str:
    """The log as JSON text."""
    return json.dumps(log(recording), indent=1)


def log(recording: Recording) -> dict[str, Any]:
    """The log: one run, a rule for each kind of finding."""
    findings = gate.everything(recording)
    rules = {one.rule: one for one in findings}
    numbers = {rule: k for k, rule in enumerate(rules)}
    notes = [{"level": "error", "message": {"text": problem}} for problem in recording.problems]
    if recording.end is End.RAISED:
        notes.append({"level": "error", "message": {"text": f"The program raised: {recording.error}"}})
    run = {
        "tool": {
            "driver": {
                "name": "armature",
                "version": recording.versions.armature,
                "informationUri": HOME,
                "rules": [rule_of(one) for one in rules.values()],
            }
        },
        "invocations": [
            {
                "executionSuccessful": recording.end is not End.RAISED,
                "exitCode": recording.status,
                "toolExecutionNotifications": notes,
            }
        ],
        "originalUriBaseIds": {ROOT: {"uri": f"{Path(recording.folder or '/').as_uri()}/"}},
        "columnKind": "unicodeCodePoints",
        "results": [result_of(one, numbers[one.rule], recording.folder) for one in findings],
    }
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def rule_of(finding: Finding) -> dict[str, Any]:
    """The kind of a finding."""
    made: dict[str, Any] = {
        "id": finding.rule,
        "name": finding.rule,
        "shortDescription": {"text": finding.title},
        "defaultConfiguration": {"level": "warning"},
    }
    if finding.hints:
        made["help"] = {"text": "\n".join(finding.hints)}
    if finding.docs_url:
        made["helpUri"] = finding.docs_url
    return made


def result_of(finding: Finding, number: int, folder: str) -> dict[str, Any]:
    """One finding at its line, with the lines that led to it."""
    text = "\n".join([finding.message, *(f"What to do: {hint}" for hint in finding.hints)])
    made: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": number,
        "level": "warning",
        "message": {"text": text},
        "partialFingerprints": {"armature/v1": fingerprint(finding.key)},
    }
    if finding.place is not None:
        made["locations"] = [location(finding.place, folder)]
    if finding.stack:
        made["stacks"] = [{"frames": [{"location": location(place, folder)} for place in reversed(finding.stack)]}]
    return made


def fingerprint(key: Iterable[str]) -> str:
    """A digest that identifies the finding in other runs."""
    return hashlib.sha256("\0".join(key).encode(errors="backslashreplace")).hexdigest()[:32]


def location(place: Place, folder: str) -> dict[str, Any]:
    """A line, with the columns of the expression where they are known."""
    region: dict[str, Any] = {"startLine": max(place.line, 1)}
    if place.caret:
        indent = source_lines.indentation(place.file, place.line)
        region |= {"startColumn": indent + place.column + 1, "endColumn": indent + place.end_column + 1}
    if place.text:
        region["snippet"] = {"text": place.text}
    made = {"physicalLocation": {"artifactLocation": artifact(place.file, folder), "region": region}}
    return made | {"logicalLocations": [{"name": place.function, "kind": "function"}]} if place.function else made


def artifact(file: str, folder: str) -> dict[str, str]:
    """A file, relative to where the command ran if it is below it."""
    below = gate.relative(file, folder)
    if below is not None:
        return {"uri": quote(os.fsencode(below)), "uriBaseId": ROOT}
    return {"uri": Path(file).as_uri() if Path(file).is_absolute() else quote(os.fsencode(file))}
