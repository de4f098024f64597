"""Conformance kits for plugin authors. Each is imported on first use, because some need pytest."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armature.testing.backend_kit import BackendConformance
    from armature.testing.handler_kit import HandlerConformance
    from armature.testing.lowering_kit import LoweringConformance
    from armature.testing.plugin_kit import PluginConformance
    from armature.testing.rules_kit import RulesConformance

__all__ = ["BackendConformance", "HandlerConformance", "LoweringConformance", "PluginConformance", "RulesConformance"]

KITS = {
    "BackendConformance": "armature.testing.backend_kit",
    "HandlerConformance": "armature.testing.handler_kit",
    "LoweringConformance": "armature.testing.lowering_kit",
    "PluginConformance": "armature.testing.plugin_kit",
    "RulesConformance": "armature.testing.rules_kit",
}


def __getattr__(name: str) -> Any:
    if name not in KITS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(KITS[name]), name)
