"""The functions of tinyframe that go in the graph, and those that are skipped. All others are traced into."""

from __future__ import annotations

from armature.plugin_api import Decision, Rule

RULES = [
    Rule("tinyframe.operations.finite", Decision.IN_GRAPH, "one node, so that the pass can merge neighbours"),
    Rule("tinyframe.frame", Decision.SKIP, "methods of the container: its value type implements them"),
    Rule("tinyframe.files", Decision.SKIP, "reads and writes files"),
]
