"""The instructions that Python's versions write differently, for all who write code."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

VERSION = sys.version_info[:2]


class Emitter(ABC):
    """Writes instructions, one after the other."""

    @abstractmethod
    def emit(self, name: str, *arg: Any) -> None:
        """Add an instruction."""

    def function(self, load: Callable[[], None]) -> None:
        """Push a function and the NULL that its call needs."""
        if VERSION < (3, 13):
            self.emit("PUSH_NULL")
        load()
        if VERSION >= (3, 13):
            self.emit("PUSH_NULL")

    def call(self, count: int) -> None:
        """Call with so many positional arguments."""
        if VERSION < (3, 12):
            self.emit("PRECALL", count)
        self.emit("CALL", count)

    def attribute(self, name: str) -> None:
        """Replace the object on the stack by its attribute."""
        self.emit("LOAD_ATTR", name if VERSION < (3, 12) else (False, name))
