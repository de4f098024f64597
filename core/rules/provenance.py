"""Explains why a callable is traced as it is: the verdict, what it overruled, other rows about it, and how to change
it."""

from __future__ import annotations

from collections.abc import Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

import attrs
from torch import nn

from armature import plugins
from armature.frame import skip
from armature.introspection import (
    class_member,
    describe,
    find_loaded,
    has_code,
    is_callable,
    is_class,
    is_module,
    is_object_of,
    is_written_in_c,
    layers,
    same_function,
)
from armature.plugins.registry import Row
from armature.plugins.tables import Tables
from armature.rules.book import own_origin
from armature.rules.data import Decision, RuleOrigin, Verdict
from armature.rules.names import resolve
from armature.rules.targets import USER, is_dotted, original, refusal
from armature.trace.handlers import Handler, Polyfill

__all__ = ["Speaker", "Why", "place", "resolve", "why", "why_call", "why_frame"]

MEANING = {
    Decision.IN_GRAPH: "a node of the graph, or folded when all arguments are constant",
    Decision.INLINE: "traced into",
    Decision.SKIP: "not traced: a call of it breaks the graph, and its own frame runs eagerly",
}
FRAME_MEANING = {
    Decision.IN_GRAPH: "its frame is compiled",
    Decision.INLINE: "its frame is compiled",
    Decision.SKIP: "its frame runs eagerly; frames below it are still looked at",
}
WHOLE_MEANING = "traced into; where it can't be traced to its end, the call runs eagerly"
WHOLE_FRAME_MEANING = "its frame runs eagerly; it is compiled with the functions that call it"
MODULE_MEANING = {
    Decision.IN_GRAPH: "functions in it become nodes of the graph, unless a rule of their own says otherwise",
    Decision.INLINE: "functions in it are traced into, unless a rule of their own says otherwise",
    Decision.SKIP: "functions in it are not traced, unless a rule of their own says otherwise",
}
NOTHING_TO_CALL = "it can't be called, and rules are about calls"
TABLES = ("handlers", "polyfills", "value_types", "decompositions", "lowerings")


@attrs.frozen
class Speaker:
    """A row, other than a rule, that says how something is traced or compiled. `kind`: "handler", "lowering"..."""

    kind: str
    origin: RuleOrigin
    priority: int = 0


@attrs.frozen
class Why(Verdict):
    """A verdict with everything known about it. It prints well; two are equal if their verdicts are.

    name: the subject. kind: its kind. file: where it is defined. speakers: rows of other tables about it, the first of
    a kind applies. changes: what a user can write to change the verdict.
    """

    name: str = attrs.field(default="", eq=False)
    kind: str = attrs.field(default="", eq=False)
    meaning: str = attrs.field(default="", eq=False)
    file: str = attrs.field(default="", eq=False)
    speakers: tuple[Speaker, ...] = attrs.field(default=(), eq=False)
    notes: tuple[str, ...] = attrs.field(default=(), eq=False)
    changes: tuple[str, ...] = attrs.field(default=(), eq=False)

    def rows(self) -> Iterator[tuple[str, str]]:
        """The answer as captions and texts."""
        yield "decision", f"{self.decision.value}: {self.meaning}"
        yield "because", self.reason
        yield "says", place(self.origin)
        if self.file:
            yield "defined", self.file
        yield from (("note", note) for note in self.notes)
        yield from ((speaker.kind, place(speaker.origin)) for speaker in self.speakers)
        for lost in self.overruled:
            yield "overrules", f"{lost.decision.value}: {lost.reason} ({place(lost.origin)})"
        yield from (("to change", change) for change in self.changes)

    def lines(self) -> Iterator[str]:
        """The answer as lines of plain text."""
        yield f"{self.name}: {self.kind}"
        for caption, text in self.rows():
            yield f"  {caption:10} {text}"

    def as_data(self) -> dict[str, object]:
        """The answer for `--json`."""
        return {
            "name": self.name,
            "kind": self.kind,
            "decision": self.decision.value,
            "meaning": self.meaning,
            "reason": self.reason,
            "origin": attrs.asdict(self.origin),
            "priority": self.priority,
            "defined": self.file,
            "notes": list(self.notes),
            "rows": [{"kind": s.kind, "origin": attrs.asdict(s.origin), "priority": s.priority} for s in self.speakers],
            "overruled": [
                {"decision": v.decision.value, "reason": v.reason, "origin": attrs.asdict(v.origin)}
                for v in self.overruled
            ],
            "change": list(self.changes),
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())


def place(origin: RuleOrigin) -> str:
    """Plugin, file and line, as far as they are known."""
    if not origin.file:
        return origin.plugin
    line = f":{origin.line}" if origin.line else ""
    return f"{origin.plugin}, {origin.file}{line}"


def why(target: object) -> Why:
    """The verdict on an object, or on the object of a dotted name ("pkg.mod.fn", "pkg.mod.Class#method").

    A `Verdict`: `.decision`, `.reason`, `.origin` (plugin, file, line) and `.overruled`; printing it shows more. Raises
    UnknownName, a LookupError.
    """
    name = target if type(target) is str else ""
    obj = original(resolve(name) if type(target) is str else target)
    if is_module(obj):
        return _of_module(name or describe(obj).module)
    if is_object_of(obj, nn.Module):
        return _of_module_object(name, obj)
    return _of_object(name, obj)


def _of_object(name: str, obj: Any, spelled: str = "") -> Why:
    tables = plugins.manager().tables()
    subject = describe(list(layers(obj))[-1])
    verdict = tables.rule_book.verdict(obj)
    found = tuple(speakers(tables, obj))
    called = name or subject.name
    callable_ = is_callable(obj) or type(obj) is classmethod
    if any(obj is one for one in vars(object).values()):  # inherited by every class, whatever the name says
        called = subject.name
    said = called if not spelled and (name or _is_named(obj)) else ""
    notes = tuple(_notes(obj, verdict, found)) if callable_ else (NOTHING_TO_CALL,)
    return _answer(
        verdict,
        name=called,
        kind=kind_of(obj),
        meaning=_meaning(obj, verdict, found) if callable_ else "nothing to trace",
        file=_place_of_code(subject.code) if subject.code else subject.filename,
        speakers=found,
        notes=notes,
        changes=tuple(_changes(said, verdict, obj, spelled=spelled or "fn")) if callable_ else (),
    )


def _is_named(obj: Any) -> bool:
    """Whether the object's name leads back to it. That of an inner function may not, and an instance has the name of
    its class."""
    functions = list(same_function(obj))
    found = find_loaded(describe(functions[-1]).name)
    return any(function is found for function in functions)


def _of_module(name: str) -> Why:
    verdict = _verdict_below(name)
    mine = sum(rule.name.startswith(f"{name}.") for rule, _ in _rows())
    notes = (f"{mine} rules name something in it: `armature rules export` lists them",) if mine else ()
    changes = tuple(change for change in _changes(name, verdict, None) if "in_graph" not in change)
    return _answer(
        verdict, name=name, kind="module", meaning=MODULE_MEANING[verdict.decision], notes=notes, changes=changes
    )


def _of_module_object(name: str, obj: nn.Module) -> Why:
    cls = type(obj)
    named = describe(cls)
    own = dict.get(object.__getattribute__(obj, "__dict__"), "forward", class_member(cls, "forward"))
    found = _of_object(f"{named.name}#forward", own)
    note = "a call of the module is a call of its forward, and runs its hooks"
    return attrs.evolve(found, name=name or f"{named.qualname} object", kind=kind_of(obj), notes=(note, *found.notes))


def why_call(name: str, code: CodeType, module: str, spelled: str) -> Why:
    """The verdict on calls of a function of a module that is not imported. spelled: its name in the module."""
    cells = tuple(CellType() for _ in code.co_freevars)
    return _of_object(name, FunctionType(code, {"__name__": module}, code.co_name, None, cells), spelled)


def why_frame(name: str, code: CodeType, module: str, *, spelled: str = "") -> Why:
    """The verdict on frames of a code object whose globals are the module's. spelled: as in `why_call`."""
    reason = skip.reason_of_code(code)
    book = plugins.manager().tables().rule_book
    own = Verdict(Decision.SKIP, reason, own_origin(skip.reason_of_code)) if reason else None
    verdict = own or book.frame_verdict(code, {"__name__": module})
    return _answer(
        verdict,
        name=name,
        kind="function, as a frame of its own",
        meaning=WHOLE_FRAME_MEANING if verdict.whole else FRAME_MEANING[verdict.decision],
        file=_place_of_code(code),
        changes=() if reason else tuple(_changes("" if spelled else name, verdict, None, spelled=spelled)),
    )


def _answer(verdict: Verdict, **more: Any) -> Why:
    fields = {field.name: getattr(verdict, field.name) for field in attrs.fields(Verdict)}
    return Why(**fields, **more)


def _verdict_below(module: str) -> Verdict:
    """The verdict on functions of a module that no rule names, found by asking about new code in it."""
    code = compile("0", "", "eval")
    return plugins.manager().tables().rule_book.frame_verdict(code, {"__name__": module})


def _rows() -> Iterator[tuple[Any, RuleOrigin]]:
    return plugins.manager().tables().rule_book.rows()


def _place_of_code(code: CodeType) -> str:
    return f"{code.co_filename}:{code.co_firstlineno}"


def speakers(tables: Tables, obj: object) -> Iterator[Speaker]:
    """The rows about an object in all tables except rules; the first one of a kind applies."""
    registries = tables.registries.by_name()
    for layer in layers(obj):
        for table in TABLES:
            registry = registries[table]
            rows: list[Row[object]] = registry.rows.get(registry.key(layer), [])
            yield from (Speaker(registry.name, row.origin, getattr(row.value, "priority", 0)) for row in rows)


def kind_of(obj: object) -> str:
    """What an object is, in a few words."""
    if is_class(obj):
        return "class written in C" if is_written_in_c(obj) else "class"
    if type(obj) is FunctionType:
        return "function"
    if is_written_in_c(obj):
        return "function written in C"
    return f"object of {describe(type(obj)).name}"


def _meaning(obj: object, verdict: Verdict, found: tuple[Speaker, ...]) -> str:
    """The real effect of the decision, if the interpreter, a handler or a polyfill is consulted before it."""
    asked = [s for s in found if s.kind in ASKED_FIRST]
    if verdict.decision is not Decision.SKIP or verdict.priority > max([0, *(s.priority for s in asked)]):
        return WHOLE_MEANING if verdict.whole else MEANING[verdict.decision]
    return f"left alone where the {asked[0].kind} declines" if asked else MEANING[verdict.decision]


ASKED_FIRST = {"handler": Handler, "polyfill": Polyfill}


def _notes(obj: object, verdict: Verdict, found: tuple[Speaker, ...]) -> Iterator[str]:
    first = next((s for s in found if s.kind in ASKED_FIRST), None)
    if first is not None and verdict.priority > max(first.priority, 0):
        yield f"the rule has a larger priority than the {first.kind}, and goes before it"
    elif first is not None:
        yield f"a call is given to the {first.kind} first; the decision counts where it declines"
    inner = list(layers(obj))[-1]
    if inner is not obj and type(inner) is FunctionType and type(obj) is not FunctionType:
        yield f"a call of it runs {describe(inner).name}"


def _changes(name: str, verdict: Verdict, obj: object, *, spelled: str = "fn") -> Iterator[str]:
    """What a user can write to change the verdict. spelled: the name in its own program of something without a full
    name."""
    if verdict.origin.plugin == USER and verdict.origin.line:
        yield f"your own rule decides: change {verdict.origin.file}:{verdict.origin.line}"
    said = f'"{name}"' if name and is_dotted(name) and "lambda" not in name else spelled
    python = obj is None or has_code(list(layers(obj))[-1])
    ways = [way for way in WAYS[verdict.decision] if way.fits(python, obj)]
    yield from (way.text.format(target=said) for way in ways)
    entry = next((way.decision.value for way in ways if way.decision is not None), None)
    if entry is not None and said != spelled:
        yield f"for the whole project: {entry} = [{said}] under [tool.armature.rules] in pyproject.toml"


@attrs.frozen
class Change:
    """A possible change. decision: of the rule that it makes. python: for Python code only, for C only, for both."""

    text: str
    decision: Decision | None = None
    python: bool | None = None

    def fits(self, python: bool, obj: object) -> bool:
        """Whether it applies to Python code, or C code, and would not be refused."""
        if self.python not in (None, python):
            return False
        return obj is None or self.decision is None or refusal(obj, self.decision) is None


TRACE_IT = Change("armature.rules.inline({target}): trace into it", Decision.INLINE, python=True)
SKIP_IT = Change("armature.rules.skip({target}): leave it alone", Decision.SKIP)
PUT_IN_GRAPH = Change(
    "armature.rules.in_graph({target}): one node, if it computes on its arguments only", Decision.IN_GRAPH
)
STAND_IN = Change("@armature.substitute: give Python code that does the same, to be traced", python=False)
WAYS: dict[Decision, tuple[Change, ...]] = {
    Decision.SKIP: (TRACE_IT, PUT_IN_GRAPH, STAND_IN),
    Decision.INLINE: (SKIP_IT, PUT_IN_GRAPH),
    Decision.IN_GRAPH: (TRACE_IT, SKIP_IT, STAND_IN),
}
