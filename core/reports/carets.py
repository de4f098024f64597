"""Where an expression stands in a line of code, and the carets under it, as far as columns of a terminal go."""

from __future__ import annotations

import io
import tokenize
import unicodedata

GAP = "..."  # for what is left out of a line that is too long


def code_end(text: str, column: int) -> int:
    """Where the code that begins at a column of a line ends: before a comment, and the spaces before that."""
    code = text[column:].rstrip()
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.COMMENT:
                return column + len(code[: token.start[1]].rstrip())
    except (tokenize.TokenError, SyntaxError):
        pass  # the statement goes on below: a comment of this line would have come before
    return column + len(code)


def width(character: str) -> int:
    """The columns of a terminal that a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def under(text: str, column: int, end: int) -> str:
    """A line to stand under `text` with carets from a column to another one. Tabs stay, so that both lines line up."""
    if not 0 <= column < end:
        return ""
    marks = (" " * column).ljust(end, "^")
    shown = text[:end].ljust(end)
    return "".join("\t" if shown[k] == "\t" else marks[k] * width(shown[k]) for k in range(end))


def windowed(text: str, column: int, end: int, most: int) -> tuple[str, int, int]:
    """The part of a line around an expression that takes at most so many characters, and where that stands in it."""
    if len(text) <= most or most <= 2 * len(GAP):
        return text, column, end
    room = most - 2 * len(GAP)
    first = 0 if column < 0 else max(0, min(column - max(room - (end - column), 0) // 2, len(text) - room))
    left, right = (GAP if first else ""), (GAP if first + room < len(text) else "")
    moved = len(left) - first
    part = f"{left}{text[first : first + room]}{right}"
    return (part, column, end) if column < 0 else (part, column + moved, min(end + moved, len(left) + room))
