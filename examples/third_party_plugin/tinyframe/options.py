"""Options of a computation, which threads may read while they are being made."""

from __future__ import annotations

import threading
from typing import Any


class Options:
    """Named, immutable options. They are read through `option`, which waits until they are complete."""

    def __init__(self, **values: Any) -> None:
        self._lock = threading.Lock()
        with self._lock:
            self._values = values


def option(options: Options, name: str, default: Any = None) -> Any:
    """One option, or the default if it is not set."""
    with options._lock:
        return options._values.get(name, default)
