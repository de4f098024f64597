"""Places carets under an expression in a line of code, counted in columns of a terminal."""

from __future__ import annotations

import io
import tokenize
import unicodedata

GAP = "..."  # replaces the parts cut from a line that is too long


def code_end(text: str, column: int) -> int:
    """The column where the code that begins at `column` ends: without a trailing comment and the spaces before it."""
    code = text[column:].rstrip()
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.COMMENT:
                return column + len(code[: token.start[1]].rstrip())
    except (tokenize.TokenError, SyntaxError):
        pass  # the statement continues on the next line; a comment on this one would have been found before the error
    return column + len(code)


def width(character: str) -> int:
    """The columns of a terminal that a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def caret_line(text: str, column: int, end: int) -> str:
    """A line to print below `text`, with carets from `column` to `end`. It repeats the tabs of `text`, so that both
    align."""
    if not 0 <= column < end:
        return ""
    marks = (" " * column).ljust(end, "^")
    shown = text[:end].ljust(end)
    return "".join("\t" if shown[k] == "\t" else marks[k] * width(shown[k]) for k in range(end))


def windowed(text: str, column: int, end: int, most: int) -> tuple[str, int, int]:
    """Shorten a line to at most `most` characters around an expression. Returns the text and the expression's columns
    in it."""
    if len(text) <= most or most <= 2 * len(GAP):
        return text, column, end
    room = most - 2 * len(GAP)
    first = 0 if column < 0 else max(0, min(column - max(room - (end - column), 0) // 2, len(text) - room))
    left, right = (GAP if first else ""), (GAP if first + room < len(text) else "")
    moved = len(left) - first
    part = f"{left}{text[first : first + room]}{right}"
    return (part, column, end) if column < 0 else (part, column + moved, min(end + moved, len(left) + room))
