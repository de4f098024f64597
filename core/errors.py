"""All errors. Each class has a code, a text in the user's terms and a hint that says what to do.

A raise gives facts, never prose: `raise UnknownBackend(name=name, known=...)`. The user's file and line, where known, come
first in the printed message. A1xx plugins, A2xx what a user asked for, A3xx tracing, A4xx lowering and scheduling,
A5xx code generation and tools, A9xx armature's own faults.
"""

from __future__ import annotations

from typing import ClassVar


class ArmatureError(Exception):
    """Base of all. Subclasses set `code`, `text` and `hint`, templates over the facts given to the constructor."""

    code: ClassVar[str] = "A000"
    text: ClassVar[str] = ""
    hint: ClassVar[str] = ""

    def __init__(self, *, where: str = "", **facts: object) -> None:
        self.where = where
        self.facts = facts
        super().__init__(self.message())

    def message(self) -> str:
        """The whole message: place, code, what happened, what to do."""
        lead = f"{self.where}: " if self.where else ""
        body = f"{lead}[{self.code}] {self.text.format(**self.facts)}"
        hint = self.hint.format(**self.facts)
        return f"{body}\n  What to do: {hint}" if hint else body


class InvariantError(ArmatureError):
    """Something that armature itself guarantees does not hold."""

    code = "A900"
    text = "{what} ({details})"
    hint = "This is a fault of armature, not of your program. Please report it with the text above."


def invariant(condition: bool, what: str, **facts: object) -> None:
    """Raise InvariantError naming the facts when the condition does not hold."""
    if not condition:
        details = ", ".join(f"{k}={v!r}" for k, v in facts.items())
        raise InvariantError(what=what, details=details)


class Unsupported(ArmatureError):
    """Under fullgraph=True: the frame can't be captured in one graph."""

    code = "A301"
    text = "{title}: {explanation}\n{stack}"
    hint = "{hints}"


class BackendError(ArmatureError):
    """A device back end could not build or load a kernel."""

    code = "A501"
    text = "{backend} could not build {what}: {message}"
    hint = "{fix}"


class LoweringError(ArmatureError):
    """An operator's lowering failed."""

    code = "A401"
    text = "lowering {op} failed: {message}"
    hint = "Run with ARMATURE_STRICT=0 to use eager for this frame, and report the operator with its input shapes."
