"""The plugin's hook implementations, and nothing else."""

from __future__ import annotations
