"""Rows of rules and the verdicts made from them."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from enum import Enum

import attrs
from attrs.validators import min_len

from armature.introspection import is_object_of

PROJECT_FIRST = 1_000  # the priority of rules in pyproject.toml: above all plugins, below the user's calls


class Decision(Enum):
    """What to do with a callable."""

    IN_GRAPH = "in_graph"  # a graph node, or folded when all arguments are constant
    INLINE = "inline"  # trace into it
    SKIP = "skip"  # do not trace: a graph break when called, run eagerly when it is a frame


class Answer(Enum):
    """What the non-tensor result of a call with constant arguments depends on, which decides how the call is folded.
    For functions of torch.

    The result of any other function is taken to depend on its arguments only, because putting it in the graph promises
    that. A cached function (`functools.lru_cache`) that is traced into may compute its results anew if a rule says
    OF_ARGUMENTS.
    """

    UNKNOWN = "unknown"  # neither folded nor called while tracing: the graph breaks
    OF_ARGUMENTS = "arguments"  # only on the arguments: the same for the life of the process
    OF_SETTINGS = "settings"  # on something that may change between calls: a guard calls it again
    TRUE = "true"  # True while compiling, whatever the real call returns
    FALSE = "false"
    NONE = "none"


@attrs.frozen
class RuleOrigin:
    """The origin of a rule: distribution, and the file and line if known."""

    plugin: str
    file: str = ""
    line: int = 0


SKIPPED = "skipped-function"  # the break type of a rule that names none


@attrs.frozen
class Rule:
    """One row of knowledge. `target`: a callable, "pkg.mod.fn", "pkg.mod.Class#method", or a module or package name.

    A module's name also covers everything below it; "pkg.__init__" covers the package's own file only. `priority`
    decides between plugins, larger wins. `requires` limits the rule to versions of a distribution ("torch>=2.12"). A
    name that does not exist is not an error; `armature plugins doctor` reports it. `origin`: the location of a row read
    from a data file; its plugin is filled in later. `answer`: how a torch function whose result is not a tensor is
    folded. `breaks`: the type of the graph break at a call of a skipped target. `whole`: an inlined target is only
    compiled with its callers, and where it can't be traced to its end, the call from other code runs eagerly.
    """

    target: Callable[..., object] | types.ModuleType | str
    decision: Decision
    reason: str = attrs.field(validator=min_len(1))
    priority: int = 0
    requires: str = ""
    origin: RuleOrigin | None = None
    answer: Answer = Answer.UNKNOWN
    breaks: str = SKIPPED
    whole: bool = False

    @property
    def name(self) -> str:
        """The target if it is a name, "" if it is an object, whatever that claims to be."""
        return str.__str__(self.target) if is_object_of(self.target, str) else ""


@attrs.frozen
class RuleTable:
    """Many rules that differ only in their names, as in a data file; read and filed as one.

    `names` are full names, one per line of `file`, the first in `line`. The other fields are those of `Rule`.
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
    whole: bool = False

    def rule(self, at: int, plugin: str) -> Rule:
        """One of the rules, separately; `plugin` provided the table."""
        origin = RuleOrigin(plugin, self.file, self.line + at) if self.file and self.line else None
        fields = (self.decision, self.reason, self.priority, self.requires, origin, self.answer, self.breaks)
        return Rule(self.names[at], *fields, self.whole)

    def rules(self, plugin: str) -> Iterator[Rule]:
        """All the rules, separately."""
        return (self.rule(at, plugin) for at in range(len(self.names)))


@attrs.frozen
class Verdict:
    """A decision with its reason; it cannot be built without one."""

    decision: Decision
    reason: str = attrs.field(validator=min_len(1))
    origin: RuleOrigin
    overruled: tuple[Verdict, ...] = ()
    priority: int = 0  # of the rule; it precedes a handler if it is larger than the handler's
    answer: Answer = Answer.UNKNOWN
    breaks: str = SKIPPED
    whole: bool = False


@attrs.frozen
class Missing:
    """A rule that matches nothing here, and why."""

    rule: Rule
    origin: RuleOrigin
    why: str
