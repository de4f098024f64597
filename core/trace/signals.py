"""The base class of the signals that end tracing early; the signals themselves are defined where they are raised."""

from __future__ import annotations


class TraceSignal(BaseException):
    """A signal that leaves the middle of tracing.

    Not an Exception: code that passes the errors of a called function on to the program catches `Exception`, and a
    signal raised inside is not one of the program's errors.
    """
