"""What is traced into, goes in the graph as a call, or is left alone: rules, and who made them.

`armature.rules.skip`, `inline` and `in_graph` are for users; the classes are those of rows and verdicts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armature.rules.book import Answer, Decision, Rule, RuleBook, RuleOrigin, RuleTable, Subject, Verdict
    from armature.rules.declare import in_graph, inline, skip

__all__ = [
    "Answer",
    "Decision",
    "Rule",
    "RuleBook",
    "RuleOrigin",
    "RuleTable",
    "Subject",
    "Verdict",
    "in_graph",
    "inline",
    "skip",
]

_DECLARED = frozenset({"in_graph", "inline", "skip"})


def __getattr__(name: str) -> Any:
    # Loaded at first use: what users declare asks the plugin manager, which knows rules.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = "armature.rules.declare" if name in _DECLARED else "armature.rules.book"
    return getattr(importlib.import_module(place), name)
