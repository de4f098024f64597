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
            "Python that does the same can be traced in its place: armature.substitute(fn).",
            "A plugin can say how it is traced: hooks armature_handlers and armature_polyfills.",
        ),
    ),
    BreakType(
        "skipped-function",
        "Call of a function that is not to be traced",
        "{function} is called, and a rule says to leave it alone: {reason}.",
        (
            "`armature why` shows the rule, where it stands, and what it overruled.",
            "Call it outside the compiled function, or give a rule of your own, as with armature.rules.inline(fn).",
        ),
    ),
    BreakType(
        "explicit-break",
        "The program asked for a graph break",
        "armature.graph_break() is called: {message}.",
        ("Remove the call to keep the graph whole.",),
    ),
    BreakType(
        "operator-failed",
        "An operator refuses its arguments",
        "{operation} raises when it is run on tensors without numbers: {message}.",
        (
            "Run the function without armature: if it raises there too, the arguments are wrong.",
            "If it works there, the operator cannot be run without numbers; call it outside the compiled function.",
        ),
    ),
)
