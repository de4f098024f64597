"""The conformance kit of armature, run on this plugin."""

from __future__ import annotations

from armature_tinyframe import plugin

from armature.testing import PluginConformance


class TestConformance(PluginConformance):
    plugin = plugin
