"""Finds, orders and isolates plugins, and builds tables of their rows.

`armature.plugins.manager()` is the manager of this process, `PluginManager` its class.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armature.plugins.plugin_manager import PluginManager, manager

__all__ = ["PluginManager", "manager"]


def __getattr__(name: str) -> Any:
    # Imported lazily: the manager imports most of these modules, which import some of one another.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("armature.plugins.plugin_manager"), name)
