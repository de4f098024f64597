"""Rules about which calls are traced into, enter the graph, or are skipped, and who made them.

`armature.rules.skip`, `inline` and `in_graph` are for users; the classes are those of rows and verdicts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armature.introspection import Subject
    from armature.rules.book import RuleBook
    from armature.rules.data import Answer, Decision, Rule, RuleOrigin, RuleTable, Verdict
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

_MODULES = {
    **dict.fromkeys(("in_graph", "inline", "skip"), "armature.rules.declare"),
    "RuleBook": "armature.rules.book",
    "Subject": "armature.introspection",
}


def __getattr__(name: str) -> Any:
    # Imported lazily: the user's declarations need the plugin manager, which needs rules.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES.get(name, "armature.rules.data")), name)
