"""The plugin at work: as installed, or registered for the session when the tests run from its sources."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from armature_tinyframe import plugin

from armature.plugins import PluginManager
from armature.plugins import manager as manager_of_process


@pytest.fixture(scope="session", autouse=True)
def manager() -> Iterator[PluginManager]:
    """The manager of the process, which knows the plugin."""
    found = manager_of_process()
    if any(known.distribution == "armature-tinyframe" for known in found.plugins):
        yield found
        return
    with found.registered(plugin, "tinyframe"):
        yield found
