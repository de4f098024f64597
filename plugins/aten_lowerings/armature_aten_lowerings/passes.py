"""Clean-up of the ATen graph after partitioning."""

from __future__ import annotations

from armature.plugin_api import Pass

PASSES: tuple[Pass, ...] = ()
