"""`armature tinyframe`: which functions of the library armature was told about."""

from __future__ import annotations

import tinyframe

from armature_tinyframe import polyfills, rules


def show() -> None:
    """Show what armature was told about tinyframe."""
    print(f"tinyframe has {len(tinyframe.__all__)} public names")
    for rule in rules.RULES:
        print(f"  {rule.target}: {rule.decision.value}, {rule.reason}")
    for row in polyfills.POLYFILLS:
        print(f"  a C function is traced as {row.replacement.__module__}.{row.replacement.__name__}")
