"""Finds the lines of the program that led to a frame, for reports."""

from __future__ import annotations

import sys

import attrs

from armature.frame.skip import is_own

MOST_CALLERS = 24
MOST_FRAMES = 200  # frames inspected


@attrs.frozen
class Caller:
    """A line of the program. first_line: of the function that it is in."""

    file: str
    line: int
    function: str
    first_line: int


def callers() -> tuple[Caller, ...]:
    """The lines that led here, the nearest first, without those of this package."""
    found: list[Caller] = []
    frame = sys._getframe(1)
    for _ in range(MOST_FRAMES):
        code = frame.f_code
        if not is_own(code):
            found.append(Caller(code.co_filename, frame.f_lineno or 0, code.co_qualname, code.co_firstlineno))
        above = frame.f_back
        if above is None or len(found) == MOST_CALLERS:
            break
        frame = above
    return tuple(found)
