"""Methods of builtin types, as targets of handlers."""

from __future__ import annotations

from typing import Any


def own_methods(name: str, *kinds: type) -> tuple[Any, ...]:
    """The methods of a name that classes define themselves; one that is inherited stands with its own class."""
    return tuple(vars(kind)[name] for kind in kinds if name in vars(kind))
