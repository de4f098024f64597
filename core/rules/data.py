"""Rows of rules, and what comes of them: what a plugin says of a callable, and what was decided."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from enum import Enum

import attrs
from attrs.validators import min_len

from armature.introspection import is_object_of

PROJECT_FIRST = 1_000  # the priority of rules in pyproject.toml: before any plugin, after what calls say


class Decision(Enum):
    """What to do with a callable."""

    IN_GRAPH = "in_graph"  # a graph node, or folded when all arguments are constant
    INLINE = "inline"  # trace into it
    SKIP = "skip"  # do not trace: a graph break when called, run eagerly when it is a frame


class Answer(Enum):
    """What a call with constants only, that gives no tensor, depends on; then it is folded. For functions of torch.

    The others count as functions of their arguments: that is what putting them in the graph means.
    """

    UNKNOWN = "unknown"  # not folded, nor called while tracing: the graph breaks
    OF_ARGUMENTS = "arguments"  # on nothing else: the same as long as the process lives
    OF_SETTINGS = "settings"  # on what may change between calls: the compiled code asks again, as a guard
    TRUE = "true"  # it is True while compiling, whatever it is otherwise
    FALSE = "false"
    NONE = "none"


@attrs.frozen
class RuleOrigin:
    """Who gave a rule: distribution, and the file and line of the rule where known."""

    plugin: str
    file: str = ""
    line: int = 0


SKIPPED = "skipped-function"  # the break type of a rule that names none


@attrs.frozen
class Rule:
    """One row of knowledge. `target`: a callable, "pkg.mod.fn", "pkg.mod.Class#method", or a module or package name.

    A module's name covers what is below it too; "pkg.__init__" covers the package's own file only. `priority` decides
    between plugins, larger wins. `requires` limits the rule to versions of a distribution ("torch>=2.12"). A name that
    does not exist is reported by `armature plugins doctor`, it is not an error. `origin`: where the row stands, for
    rows read from data files; the plugin in it is filled in. `answer`: how a function of torch is folded that is not on
    tensors. `breaks`: the type of the graph break at a call of what is skipped.
    """

    target: Callable[..., object] | types.ModuleType | str
    decision: Decision
    reason: str = attrs.field(validator=min_len(1))
    priority: int = 0
    requires: str = ""
    origin: RuleOrigin | None = None
    answer: Answer = Answer.UNKNOWN
    breaks: str = SKIPPED

    @property
    def name(self) -> str:
        """The target when it is a name, "" when it is an object, whatever that claims to be."""
        return str.__str__(self.target) if is_object_of(self.target, str) else ""


@attrs.frozen
class RuleTable:
    """Many rules that differ in their names only, as a data file has them: read and filed as one.

    `names` are full names, one to a line of `file`, the first in `line`. The other fields are those of `Rule`.
    """

    names: tuple[str, ...]
    decision: Decision
    reason: str = attrs.field(validator=min_len(1))
    priority: int = 0
    requires: str = ""
    file: str = ""
    line: int = 0
    answer: Answer = Answer.UNKNOWN
    breaks: str = SKIPPED

    def rule(self, at: int, plugin: str) -> Rule:
        """One of the rules by itself; `plugin` gave the table."""
        origin = RuleOrigin(plugin, self.file, self.line + at) if self.file and self.line else None
        fields = (self.decision, self.reason, self.priority, self.requires, origin, self.answer, self.breaks)
        return Rule(self.names[at], *fields)

    def rules(self, plugin: str) -> Iterator[Rule]:
        """Each of the rules by itself."""
        return (self.rule(at, plugin) for at in range(len(self.names)))


@attrs.frozen
class Verdict:
    """A decision with its reason; without one it cannot be built."""

    decision: Decision
    reason: str = attrs.field(validator=min_len(1))
    origin: RuleOrigin
    overruled: tuple[Verdict, ...] = ()
    priority: int = 0  # of the rule; one larger than a handler's goes before the handler
    answer: Answer = Answer.UNKNOWN
    breaks: str = SKIPPED


@attrs.frozen
class Missing:
    """A rule that matches nothing here, and why."""

    rule: Rule
    origin: RuleOrigin
    why: str
