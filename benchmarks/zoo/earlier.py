"""Rows of earlier runs: a sweep that is run in parts is one sweep."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.zoo.causes import model_of

Row = dict[str, Any]
UNMEASURED = ("not started", "stopped")  # how a row ended whose model had no time: it is measured anew


def file_of(path: Path) -> Path:
    """The file of rows: the path itself, or `rows.jsonl` of a folder."""
    return path / "rows.jsonl" if path.is_dir() else path


def read_rows(paths: Iterable[Path]) -> list[Row]:
    """The rows of runs, the last one of each model, without those for which there was no time.

    A run that was killed while it wrote leaves half a line, which is left out. Raises FileNotFoundError.
    """
    found: dict[str, Row] = {}
    for path in paths:
        for line in file_of(path).read_text().splitlines():
            try:
                row: Row = json.loads(line)
            except ValueError:
                continue
            if not str(row.get("ended", "")).startswith(UNMEASURED):
                found[model_of(row)] = row
    return [*found.values()]


def machines(paths: Iterable[Path]) -> list[str]:
    """What the runs were on, as far as they came to write it."""
    files = [file_of(path).with_name("zoo.json") for path in paths]
    found = [json.loads(file.read_text()).get("machine", "") for file in files if file.exists()]
    return [machine for machine in dict.fromkeys(found) if machine]
