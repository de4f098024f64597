"""Rules and verdicts: whether a callable goes in the graph, is traced into, or is left alone.

Only the classes and the precedence live here; the knowledge comes from plugins (`armature_rules`, `armature_decide`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import attrs
from attrs.validators import min_len


class Decision(Enum):
    """What to do with a callable."""

    IN_GRAPH = "in_graph"  # a graph node, or folded when all arguments are constant
    INLINE = "inline"  # trace into it
    SKIP = "skip"  # do not trace: a graph break when called, run eagerly when it is a frame


@attrs.frozen
class RuleOrigin:
    """Who gave a rule: distribution, and the file and line of the rule where known."""

    plugin: str
    file: str = ""
    line: int = 0


@attrs.frozen
class Rule:
    """One row of knowledge. `target`: a callable, "pkg.mod.fn", "pkg.mod.Class#method", or a module or package name.

    `priority` decides between plugins, larger wins. `requires` limits the rule to versions of a distribution
    ("torch>=2.12"). A name that does not exist is reported by `armature plugins doctor`, it is not an error.
    """

    target: Callable[..., object] | str
    decision: Decision
    reason: str = attrs.field(validator=min_len(1))
    priority: int = 0
    requires: str = ""


@attrs.frozen
class Subject:
    """What is asked about: the object itself, unwrapped, and the names it goes by. No user code runs to build it."""

    obj: object
    module: str
    qualname: str
    filename: str = ""
    is_frame: bool = False  # asked for a frame about to run, not for a call


@attrs.frozen
class Verdict:
    """A decision with its reason; without one it cannot be built."""

    decision: Decision
    reason: str = attrs.field(validator=min_len(1))
    origin: RuleOrigin
    overruled: tuple[Verdict, ...] = ()
