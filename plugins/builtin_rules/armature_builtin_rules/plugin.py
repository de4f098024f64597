"""The plugin's hook implementations, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from armature.plugin_api import Rule, Subject, Verdict, hookimpl
from armature_builtin_rules import derived, load


@hookimpl
def armature_rules() -> Iterable[Rule]:
    """The tables under data/."""
    return load.rules()


@hookimpl
def armature_decide(subject: Subject) -> Verdict | None:
    """The computed sets: operators, tensor methods, builtins."""
    return derived.decide(subject)
