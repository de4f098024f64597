"""armature: a pluggable compiler for PyTorch.

    model = armature.compile(model)

See docs/architecture.md for how it works, and `armature --help` for the tools.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armature import config, errors, rules
    from armature.api.explain import explain
    from armature.api.public import (
        allow_in_graph,
        compile,
        disable,
        graph_break,
        is_compiling,
        mark_dynamic,
        mark_static,
        reset,
        substitute,
        trace_through,
        why,
    )
    from armature.errors import ArmatureWarning

__version__ = "0.1.0"

__all__ = [
    "ArmatureWarning",
    "allow_in_graph",
    "compile",
    "config",
    "disable",
    "errors",
    "explain",
    "graph_break",
    "is_compiling",
    "mark_dynamic",
    "mark_static",
    "reset",
    "rules",
    "substitute",
    "trace_through",
    "why",
]

_MODULES = {
    "ArmatureWarning": "armature.errors",
    "config": "armature.config",
    "errors": "armature.errors",
    "explain": "armature.api.explain",
    "rules": "armature.rules",
}


def __getattr__(name: str) -> Any:
    # Imported lazily: the stages take a second to import, and plugins need single modules only.
    if name not in __all__:
        raise AttributeError(f"module 'armature' has no attribute {name!r}")
    place = importlib.import_module(_MODULES.get(name, "armature.api.public"))
    found = place if place.__name__ == f"armature.{name}" else getattr(place, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
