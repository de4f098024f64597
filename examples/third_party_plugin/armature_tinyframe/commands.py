"""`armature tinyframe`: lists the rules and polyfills for the library."""

from __future__ import annotations

import tinyframe

from armature_tinyframe import polyfills, rules


def show() -> None:
    """List the rules and polyfills for tinyframe."""
    print(f"tinyframe has {len(tinyframe.__all__)} public names")
    for rule in rules.RULES:
        print(f"  {rule.target}: {rule.decision.value}, {rule.reason}")
    for row in polyfills.POLYFILLS:
        print(f"  a C function is traced as {row.replacement.__module__}.{row.replacement.__name__}")
