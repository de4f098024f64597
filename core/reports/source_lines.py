"""Lines of the program's files, as they are read for reports."""

from __future__ import annotations

import linecache

from armature.frame import skip
from armature.pipeline.callers import Caller
from armature.reports.record import Place


def indentation(file: str, line: int) -> int:
    """Characters before the first one of a line that is no space."""
    text = linecache.getline(file, line)
    return len(text) - len(text.lstrip())


def is_own(file: str) -> bool:
    """Whether a file is the program's, or of a library that has models: not of Python or torch, which serve all."""
    if file.startswith("<frozen "):
        return False
    if file.startswith(f"{skip.TORCH_FOLDER}/"):
        return False
    return any(folder in file for folder in skip.INSTALLED) or not file.startswith(f"{skip.PYTHON_FOLDER}/")


def called(caller: Caller) -> Place:
    """The line of a caller."""
    text = linecache.getline(caller.file, caller.line).strip()
    return Place(caller.file, caller.line, caller.function, text, own=is_own(caller.file))
