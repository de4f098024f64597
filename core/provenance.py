"""Why a callable is traced as it is: the verdict on it, what that overruled, and which rows of plugins speak of it."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import torch

from armature import plugins
from armature.callables import describe, layers
from armature.errors import UnknownName
from armature.registry import Row
from armature.rules import Decision, RuleOrigin, Verdict, load_name
from armature.tables import Tables

MEANING = {
    Decision.IN_GRAPH: "a node of the graph, or folded when all arguments are constant",
    Decision.INLINE: "traced into",
    Decision.SKIP: "not traced: a call of it breaks the graph, and its own frame runs eagerly",
}
OPERATORS = "torch.ops."


@attrs.frozen
class Speaker:
    """A row that says how a thing is traced or compiled, other than a rule. `kind`: "handler", "lowering"..."""

    kind: str
    origin: RuleOrigin


@attrs.frozen
class Why:
    """The answer to "why is it traced like this", for one object. Prints well; has the verdict's fields as its own."""

    name: str
    file: str
    verdict: Verdict
    speakers: tuple[Speaker, ...] = ()

    @property
    def decision(self) -> Decision:
        """In the graph, inlined or skipped."""
        return self.verdict.decision

    @property
    def reason(self) -> str:
        """The reason that the rule gives."""
        return self.verdict.reason

    @property
    def origin(self) -> RuleOrigin:
        """The plugin, file and line of the rule."""
        return self.verdict.origin

    @property
    def overruled(self) -> tuple[Verdict, ...]:
        """What would have been decided without this rule, next best first."""
        return self.verdict.overruled

    def lines(self) -> Iterator[str]:
        """The answer as lines of plain text."""
        yield f"{self.name}: {self.decision.value}"
        yield f"  meaning    {MEANING[self.decision]}"
        yield f"  because    {self.reason}"
        yield f"  says       {place(self.origin)}"
        if self.file:
            yield f"  defined    {self.file}"
        for speaker in self.speakers:
            yield f"  {speaker.kind:10} {place(speaker.origin)}"
        for lost in self.overruled:
            yield f"  overrules  {lost.decision.value}: {lost.reason} ({place(lost.origin)})"

    def as_data(self) -> dict[str, object]:
        """The answer for `--json`."""
        return {
            "name": self.name,
            "decision": self.decision.value,
            "reason": self.reason,
            "origin": attrs.asdict(self.origin),
            "defined": self.file,
            "rows": [{"kind": s.kind, "origin": attrs.asdict(s.origin)} for s in self.speakers],
            "overruled": [
                {"decision": v.decision.value, "reason": v.reason, "origin": attrs.asdict(v.origin)}
                for v in self.overruled
            ],
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())


def place(origin: RuleOrigin) -> str:
    """Plugin, file and line, as far as they are known."""
    if not origin.file:
        return origin.plugin
    line = f":{origin.line}" if origin.line else ""
    return f"{origin.plugin}, {origin.file}{line}"


def resolve(name: str) -> object:
    """The object of a dotted name; modules it needs are imported. Raises UnknownName."""
    if not all(part.isidentifier() for part in name.replace("#", ".").split(".")):
        raise UnknownName(name=name)
    try:
        if not name.startswith(OPERATORS):
            return load_name(name)
        found: object = torch.ops
        for part in name.removeprefix(OPERATORS).split("."):  # packets are made when first asked for
            found = getattr(found, part)
        return found
    except (LookupError, AttributeError) as error:
        raise UnknownName(name=name) from error


def speakers(tables: Tables, obj: object) -> Iterator[Speaker]:
    """The rows about an object in all tables but that of the rules; the first one of a kind is the one that answers."""
    registries = tables.registries.by_name()
    for layer in layers(obj):
        for table in ("handlers", "polyfills", "value_types", "decompositions", "lowerings"):
            registry = registries[table]
            rows: list[Row[object]] = registry.rows.get(registry.key(layer), [])
            yield from (Speaker(registry.name, row.origin) for row in rows)


def why(subject: object) -> Why:
    """Why an object, or what a dotted name names, is traced as it is. Raises UnknownName."""
    obj = resolve(subject) if isinstance(subject, str) else subject
    tables = plugins.manager().tables()
    described = describe(list(layers(obj))[-1])
    name = subject if isinstance(subject, str) else described.name
    file = f"{described.filename}:{described.code.co_firstlineno}" if described.code else described.filename
    return Why(name, file, tables.rule_book.verdict(obj), tuple(speakers(tables, obj)))
