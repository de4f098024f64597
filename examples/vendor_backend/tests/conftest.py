"""The plugin at work, as installed or registered for the session; what the conformance kit asks for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from armature_numpy import plugin

from armature.plugins import PluginManager
from armature.plugins import manager as manager_of_process
from armature.testing.backend_kit import compile_context as compile_context


@pytest.fixture(scope="session", autouse=True)
def manager() -> Iterator[PluginManager]:
    """The manager of the process, which knows the plugin."""
    found = manager_of_process()
    if any(known.distribution == "armature-numpy" for known in found.plugins):
        yield found
        return
    with found.registered(plugin, "numpy"):
        yield found
