"""Which functions of tinyframe go in the graph, and which are left alone. All others are traced into."""

from __future__ import annotations

from armature.plugin_api import Decision, Rule

RULES = [
    Rule("tinyframe.operations.finite", Decision.IN_GRAPH, "one node, so that the pass can merge neighbours"),
    Rule("tinyframe.frame", Decision.SKIP, "methods of the container: its value type knows what they do"),
    Rule("tinyframe.files", Decision.SKIP, "reads and writes files"),
]
