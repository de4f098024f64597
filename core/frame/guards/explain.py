"""Describes a failed guard: the expected value, the current one, and the user's expression for it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import TypeVar

import attrs
import torch

from armature.frame.data import STACK, FrameRequest
from armature.frame.guards.guard import Condition, Guard
from armature.frame.guards.loops import iterated
from armature.frame.guards.tree import STATES, GuardTree, Mark
from armature.frame.source import Resolver
from armature.frame.sources import Source
from armature.torch_abi.overrides import without_overrides

# Sources read attributes through `__dict__`, so that no user code runs; people know them as dotted names.
_MEMBER = re.compile(r"\.__dict__\['(?:_modules|_parameters|_buffers)'\]\['([^']+)'\]|\.__dict__\['([^']+)'\]")
_GLOBAL = re.compile(r"^globals\(\)\['([^']+)'\]")
_ON_STACK = re.compile(rf"{STACK}\d+")  # values without a name in the program, such as a loop's iterator
NAMED = 4  # most expected values that are listed by name
SAME = ("the same object as", "another one")
DIFFERENT = ("another object than", "the same one")
STATE_CHANGED = "GLOBAL_STATE changed: "
IN_PROGRESS = "<value in progress>"
_AUTOCAST = re.compile(r"autocast\((\w+)\)_enabled")
_METHOD_ON_STACK = re.compile(rf"{STACK}\d+\.__self__")


@attrs.frozen
class FailedGuard:
    """A guard that does not hold. `text` describes it completely.

    expression: the user's, "self.layers[0].scale", "" if the guard is about several values. before: the expected value;
    now: the current one, "" if it is not known. user: the line that relies on it, "model.py:41".
    """

    text: str
    expression: str = ""
    before: str = ""
    now: str = ""
    user: str = ""

    @property
    def words(self) -> str:
        """What has changed, without the line that relies on it."""
        if not self.now:
            return self.text.removesuffix(f"    ({self.user})")
        if not self.expression:
            return f"{self.before} no longer holds: {self.now}"
        return f"{self.expression} was {self.before}, is now {self.now}"


Failure = TypeVar("Failure", bound=FailedGuard)


def merged(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Merge, for display, failures of different compiled codes that concern the same value: one entry lists all
    expected values."""
    groups: dict[tuple[str, ...], list[Failure]] = {}
    for one in failures:
        about = (one.expression, one.now, one.user) if one.expression and one.now else (one.text,)
        groups.setdefault(about, []).append(one)
    return tuple(attrs.evolve(ones[0], before=_listed([one.before for one in ones])) for ones in groups.values())


def _listed(values: list[str]) -> str:
    """`1`, or `1, 2 or 3`; of a long list only the first values."""
    found = list(dict.fromkeys(values))
    if len(found) > NAMED:
        found = [*found[: NAMED - 1], f"one of {len(found) - NAMED + 1} others"]
    return " or ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)


@attrs.frozen(eq=False)
class Mismatch:
    """The failed guards of one compiled code for a frame. Prints as their texts."""

    tree: GuardTree
    texts: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.texts)

    def guards(self, request: FrameRequest) -> tuple[FailedGuard, ...]:
        """The failed guards with the frame's current values."""
        return tuple(explained(self.tree, text, request) for text in self.texts)


def failed(tree: GuardTree, f_locals: dict[str, object]) -> tuple[str, ...]:
    """The guards that do not hold for these locals: the first other guard that fails, but all failed shape conditions;
    () if all hold.

    Texts name the source expression and, where known, the user's line that relies on it.
    """
    info = tree.holder.root.check_verbose(f_locals)
    if info.result:
        return ()
    texts = tuple(str(part) for part in info.verbose_code_parts)
    if tree.conditions and set(texts) == {text for text, _ in tree.conditions}:
        broken = tuple(text for text, holds in tree.conditions if not _holds(holds, f_locals))
        return broken or texts
    return texts


def _holds(condition: Condition, f_locals: dict[str, object]) -> bool:
    try:
        return condition(f_locals)
    except ArithmeticError:  # a remainder by a size of 0, where another condition fails
        return False


def explained(tree: GuardTree, text: str, request: FrameRequest) -> FailedGuard:
    """Parse the text of a failed guard. torch words the failures of tensor guards itself, and names the source."""
    for known, mark in zip(tree.texts, tree.marks):
        if mark.source is None:
            if known == text or mark.kind.is_told_by(text, ""):
                return _of_several(text, mark, request)
            continue
        expr = mark.source.expr
        if known == text or mark.kind.is_told_by(text, expr):
            name = as_written(expr, request)
            about, before = _relied_on(known, expr, name, mark)
            return FailedGuard(text, about, before, _now(mark.source, mark.kind, request), mark.user)
    return _of_state(tree, text)


def _of_state(tree: GuardTree, text: str) -> FailedGuard:
    """Describe a change of torch's global state; torch's message has only the names of the settings."""
    names = text.removeprefix(STATE_CHANGED).split() if text.startswith(STATE_CHANGED) else []
    for name in names:
        if autocast := _AUTOCAST.fullmatch(name):
            enabled = torch.is_autocast_enabled(autocast[1])
            return FailedGuard(text, f"torch.is_autocast_enabled({autocast[1]!r})", str(not enabled), str(enabled))
        if name in STATES:
            read = STATES[name]
            return FailedGuard(text, f"torch.{read.__name__}()", str(tree.state[name]), str(read()))
    return FailedGuard(text)


@without_overrides
def _of_several(text: str, mark: Mark, request: FrameRequest) -> FailedGuard:
    """Describe a failed condition over several numbers, or a failed guard on which objects are identical."""
    found = Resolver(request)
    try:
        if mark.numbers:
            words = as_written(text.removesuffix(f"    ({mark.user})"), request)
            values = {as_written(number.expr, request): number.value(found) for number in mark.numbers}
            if len(values) == 1:
                ((name, value),) = values.items()
                return FailedGuard(text, name, _condition(words, name), str(value), mark.user)
            now = " and ".join(f"{name} is now {values[name]}" for name in sorted(values, key=words.find))
            return FailedGuard(text, "", words, now, mark.user)
        for first, second in itertools.combinations(mark.objects, 2):
            one, other = as_written(first.expr, request), as_written(second.expr, request)
            if (found.value(first) is found.value(second)) != mark.kind.identical:
                before, now = SAME if mark.kind.identical else DIFFERENT
                return FailedGuard(text, one, f"{before} {other}", now, mark.user)
    except Exception:  # as in `_now`
        pass
    return FailedGuard(text, user=mark.user)


def _condition(words: str, name: str) -> str:
    """The value that a condition expects of `name`: `1` for `n == 1`, `>= 2` for `n >= 2`, else `such that` and the
    condition."""
    relation = words.removeprefix(name).strip()
    if relation == words or name in relation:
        return f"such that {words}"
    return relation.removeprefix("== ")


def _relied_on(known: str, expr: str, name: str, mark: Mark) -> tuple[str, str]:
    """The expression that a guard's text checks, as the program would write it (`len(self.blocks)`), and the expected
    value."""
    words = known.removesuffix(f"    ({mark.user})")
    for function, operator in (("type", "is"), ("len", "=="), ("list", "==")):
        about = f"{function}({expr}) {operator} "
        if words.startswith(about):
            return f"{function}({name})", words.removeprefix(about).strip()
    for about in (f"{expr} is ", f"{expr} == ", expr):
        if words.startswith(about):
            return name, words.removeprefix(about).strip()
    return name, words


@without_overrides
def _now(source: Source, kind: type[Guard], request: FrameRequest) -> str:
    try:
        return kind.now(Resolver(request).value(source))
    except Exception:  # it no longer exists, or the program's own code raises
        return ""


def as_written(expression: str, request: FrameRequest | None = None) -> str:
    """The expression of a source as the program would write it: `self.layers[0].scale`. request: the frame, whose
    source code names the iterators of the loops that it is in."""
    plain = _MEMBER.sub(lambda found: _dotted(found[1] or found[2]), expression)
    readable = _METHOD_ON_STACK.sub("<object whose method is called>", _GLOBAL.sub(r"\1", plain))
    if request is None or _ON_STACK.search(readable) is None:
        return _ON_STACK.sub(IN_PROGRESS, readable)
    loops = iterated(request)
    return _ON_STACK.sub(lambda found: loops.get(found[0], IN_PROGRESS), readable)


def _dotted(name: str) -> str:
    if name.isidentifier():
        return f".{name}"
    return f"[{name}]" if name.isdigit() else f"[{name!r}]"
