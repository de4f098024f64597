"""Methods of builtin types, as targets of handlers."""

from __future__ import annotations

from collections.abc import Callable


def own_methods(name: str, *kinds: type) -> tuple[Callable[..., object], ...]:
    """The methods of this name that classes define themselves; inherited ones belong to their own class."""
    return tuple(vars(kind)[name] for kind in kinds if name in vars(kind))
