"""Rows of earlier runs, so that a sweep can be run in parts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.zoo.causes import model_of

Row = dict[str, Any]
UNMEASURED = ("not started", "stopped")  # outcomes of models that got no time, and are measured again


def file_of(path: Path) -> Path:
    """The file of rows: the path itself, or `rows.jsonl` in a folder."""
    return path / "rows.jsonl" if path.is_dir() else path


def read_rows(paths: Iterable[Path]) -> list[Row]:
    """The rows of earlier runs, the last one of each model, without those that got no time.

    A run that was killed while writing leaves half a line, which is ignored. Raises FileNotFoundError.
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
    """The machines of the runs, as far as recorded."""
    files = [file_of(path).with_name("zoo.json") for path in paths]
    found = [json.loads(file.read_text()).get("machine", "") for file in files if file.exists()]
    return [machine for machine in dict.fromkeys(found) if machine]
