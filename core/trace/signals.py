"""The base of what ends the middle of tracing; the signals themselves stand with what raises them."""

from __future__ import annotations


class TraceSignal(BaseException):
    """What leaves the middle of tracing. Not an Exception: code that gives the program what a function has raised says
    `except Exception`, and a signal raised in there is none of the program's errors.
    """
