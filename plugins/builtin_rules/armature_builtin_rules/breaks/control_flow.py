"""Breaks where the flow of the program leaves what the interpreter follows."""

from __future__ import annotations

from armature.plugin_api import BreakType

ROWS = (
    BreakType(
        "exception-leaves-frame",
        "An exception leaves the function",
        "The function raises {exception} and does not catch it, so there is no result to compile.",
        ("If the exception is expected, catch it inside the function; otherwise see to its cause.",),
    ),
    BreakType(
        "untraced-opcode",
        "Python instruction that is not traced",
        "{opcode} is not traced: {reason}.",
        ("Move this part of the code to where the compiled function is called.",),
    ),
)
