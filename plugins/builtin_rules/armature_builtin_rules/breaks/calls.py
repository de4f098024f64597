"""Breaks at calls that are neither traced into nor put in the graph."""

from __future__ import annotations

from armature.plugin_api import BreakType

ROWS = (
    BreakType(
        "unsupported-call",
        "Call of something that tracing cannot follow",
        "{callable} is called; it has no Python code to trace, and no rule or handler speaks of it.",
        (
            "If it computes on tensors without side effects, put it in the graph: armature.allow_in_graph(fn).",
            "A plugin can say how it is traced: hooks armature_handlers and armature_polyfills.",
        ),
    ),
)
