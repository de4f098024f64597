"""Differences between the bytecode of Python's versions, as data."""

from __future__ import annotations

import sys

VERSION = sys.version_info[:2]
NULL_FIRST = VERSION < (3, 13)
"""Whether the NULL of a call stands below the function, not on top of it."""
LOOP_END: tuple[str, ...] = {(3, 11): (), (3, 12): ("END_FOR",)}.get(VERSION, ("END_FOR", "POP_TOP"))
"""The instructions behind a loop that FOR_ITER jumps over at its end: they are for iterators that CPython inlines."""
SEND_KEEPS_DELEGATE = VERSION >= (3, 12)
"""Whether SEND leaves a delegate that is at its end on the stack, for END_SEND to drop."""
LOADS_METHODS = "LOAD_METHOD" if VERSION < (3, 12) else "LOAD_ATTR"
"""The instruction that looks for a method to be called; LOAD_ATTR does so with the lowest bit of its argument."""
