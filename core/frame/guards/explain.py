"""Describes a failed guard: the expected value, the current one, and the user's expression for it."""

from __future__ import annotations

import re

import attrs

from armature.frame.data import STACK, FrameRequest
from armature.frame.guards.guard import Condition, Guard
from armature.frame.guards.kinds import TensorGuard
from armature.frame.guards.tree import GuardTree, Mark
from armature.frame.source import Resolver
from armature.frame.sources import Source
from armature.torch_abi.overrides import quietly

# Sources read attributes through `__dict__`, so that no user code runs; people know them as dotted names.
_MEMBER = re.compile(r"\.__dict__\['(?:_modules|_parameters|_buffers)'\]\['([^']+)'\]|\.__dict__\['([^']+)'\]")
_GLOBAL = re.compile(r"^globals\(\)\['([^']+)'\]")
_ON_STACK = re.compile(rf"{STACK}\d+")  # no name in the program, for example a loop's iterator
_METHOD_ON_STACK = re.compile(rf"{STACK}\d+\.__self__")


@attrs.frozen
class FailedGuard:
    """A guard that does not hold. `text` describes it completely.

    expression: the user's, "self.layers[0].scale", "" if the guard is about several values. before: the expected value;
    now: the current one, "" if it can't be told. user: the line that relies on it, "model.py:41".
    """

    text: str
    expression: str = ""
    before: str = ""
    now: str = ""
    user: str = ""


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
            if known == text:
                return FailedGuard(text, user=mark.user)
            continue
        expr = mark.source.expr
        if known == text or (mark.kind is TensorGuard and f"tensor '{expr}'" in text):
            about, before = _relied_on(known, expr, mark)
            return FailedGuard(text, about, before, _now(mark.source, mark.kind, request), mark.user)
    return FailedGuard(text)


def _relied_on(known: str, expr: str, mark: Mark) -> tuple[str, str]:
    """The subject of a guard's text as the program would write it (`len(self.blocks)`), and the expectation."""
    words, name = known.removesuffix(f"    ({mark.user})"), spoken(expr)
    for function, operator in (("type", "is"), ("len", "=="), ("list", "==")):
        about = f"{function}({expr}) {operator} "
        if words.startswith(about):
            return f"{function}({name})", words.removeprefix(about).strip()
    for about in (f"{expr} is ", f"{expr} == ", expr):
        if words.startswith(about):
            return name, words.removeprefix(about).strip()
    return name, words


@quietly
def _now(source: Source, kind: type[Guard], request: FrameRequest) -> str:
    try:
        return kind.now(Resolver(request).value(source))
    except Exception:  # it no longer exists, or the program's own code raises
        return ""


def spoken(expression: str) -> str:
    """A source's expression as the program would write it: `self.layers[0].scale`."""
    plain = _MEMBER.sub(lambda found: _dotted(found[1] or found[2]), expression)
    told = _METHOD_ON_STACK.sub("<object whose method is called>", _GLOBAL.sub(r"\1", plain))
    return _ON_STACK.sub("<value in progress>", told)


def _dotted(name: str) -> str:
    if name.isidentifier():
        return f".{name}"
    return f"[{name}]" if name.isdigit() else f"[{name!r}]"
