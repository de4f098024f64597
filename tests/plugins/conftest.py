"""Managers that know only what a test registers, and settings that last for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from armature import config
from armature.plugins import PluginManager


@pytest.fixture
def manager() -> PluginManager:
    """A manager with no plugin."""
    return PluginManager(find=lambda: ())


@pytest.fixture
def lenient() -> Iterator[None]:
    """Faults of plugins are recorded, not raised: what users have, where tests are strict by default."""
    with config.patch(strict=False):
        yield
