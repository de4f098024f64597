"""Comments that point from generated code back to the user's lines."""

from __future__ import annotations

import os
from collections.abc import Iterable

from armature.lower.data import Origin


def place(origin: Origin | None) -> str:
    """`model.py:41  x + y`, the operator's name if the line is not known, "" for no origin. Safe inside a comment.

    In C++, a comment that ends in a backslash, as a line of Python may, swallows the statement below it. Unprintable
    characters (a file name may hold anything) could end the comment, or not be writable to a file at all.
    """
    if origin is None:
        return ""
    if not origin.file:
        return origin.op
    text = f"{os.path.basename(origin.file)}:{origin.line}  {origin.text}"
    return "".join(char if char.isprintable() else " " for char in text).rstrip("\\ ")


def heading(origins: Iterable[Origin]) -> list[str]:
    """Lines above a kernel: the ATen operators per user line, in order, each line once."""
    lines: dict[str, list[str]] = {}
    for origin in origins:
        where = place(origin) if origin.file else ""
        ops = lines.setdefault(where, [])
        if origin.op not in ops:
            ops.append(origin.op)
    return [f"{', '.join(ops)}{'    ' + where if where else ''}" for where, ops in lines.items()]
