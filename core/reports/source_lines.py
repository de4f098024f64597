"""Reads lines of the program's files for reports."""

from __future__ import annotations

import linecache

from armature.frame import skip
from armature.pipeline.callers import Caller
from armature.reports.record import Place


def indentation(file: str, line: int) -> int:
    """The number of spaces and tabs at the start of a line."""
    text = linecache.getline(file, line)
    return len(text) - len(text.lstrip())


def is_own(file: str) -> bool:
    """Whether a file belongs to the program or to a library with models, and not to Python or torch."""
    if file.startswith("<frozen "):
        return False
    if file.startswith(f"{skip.TORCH_FOLDER}/"):
        return False
    return any(folder in file for folder in skip.INSTALLED) or not file.startswith(f"{skip.PYTHON_FOLDER}/")


def called(caller: Caller) -> Place:
    """The line of a caller."""
    text = linecache.getline(caller.file, caller.line).strip()
    return Place(caller.file, caller.line, caller.function, text, own=is_own(caller.file))
