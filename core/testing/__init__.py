"""Conformance kits for authors of plugins. Each is imported when it is first asked for, since some need pytest."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armature.testing.backend_kit import BackendConformance
    from armature.testing.plugin_kit import PluginConformance

__all__ = ["BackendConformance", "PluginConformance"]

KITS = {
    "BackendConformance": "armature.testing.backend_kit",
    "PluginConformance": "armature.testing.plugin_kit",
}


def __getattr__(name: str) -> Any:
    if name not in KITS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(KITS[name]), name)
