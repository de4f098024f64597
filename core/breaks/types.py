"""Break types: a graph break's stable id, its texts, and the event that says where it happened."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Never, cast

import attrs
import torch

from armature.errors import ArmatureError


class NoExamples(ArmatureError):
    """The module that should hold the example of a break type can't be imported."""

    code = "A245"
    text = "the example of the graph break {type} can't be read, as {module} can't be imported: {problem}"
    hint = "Correct the name given to with_examples, or install what that module imports."


class HintKind(enum.Enum):
    """What following a hint amounts to."""

    FUNDAMENTAL = "fundamental"  # no graph can hold this: the program has to be written differently
    SUPPORTABLE = "supportable"  # a setting, a rule, a handler or a plugin can keep it in the graph
    USER_ERROR = "user error"  # the program is wrong here, with or without a compiler
    OURS = "ours"  # it could be compiled, but is not yet

    @classmethod
    def _missing_(cls, value: object) -> Never:
        kinds = ", ".join(repr(kind.value) for kind in cls)
        raise ValueError(f"there is no kind of hint called {value!r}; the kinds are {kinds}")


def _fault(row: object, field: str, value: object, wanted: str) -> TypeError:
    """The error for a field. It names the row, because a plugin has many."""
    called = f"break type {row.id!r}" if isinstance(row, BreakType) else "hint"
    return TypeError(f"{called}: {field} is to be {wanted}, not {value!r:.60} ({type(value).__name__})")


def _text(row: object, field: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str):
        raise _fault(row, field.name, value, "a text")


def _some_text(row: object, field: attrs.Attribute[str], value: object) -> None:
    if not (isinstance(value, str) and value.strip()):
        raise _fault(row, field.name, value, "a text that is not empty")


def _texts(row: object, field: attrs.Attribute[tuple[str, ...]], value: object) -> None:
    if not isinstance(value, tuple):
        raise _fault(row, field.name, value, "a tuple of texts")
    for text in value:
        if not isinstance(text, str):
            raise _fault(row, f"one of {field.name}", text, "a text")


@attrs.frozen
class Hint:
    """Advice about a break: a template over the facts of the break, like its explanation."""

    text: str = attrs.field(validator=_some_text)
    kind: HintKind = attrs.field(default=HintKind.FUNDAMENTAL, converter=HintKind)


def fundamental(text: str) -> Hint:
    """A hint how to write the program differently, because no graph can hold what it does."""
    return Hint(text, HintKind.FUNDAMENTAL)


def supportable(text: str) -> Hint:
    """A hint how to keep it in the graph: by a setting, a rule, a handler or a plugin."""
    return Hint(text, HintKind.SUPPORTABLE)


def user_error(text: str) -> Hint:
    """A hint that tells what is wrong with the program."""
    return Hint(text, HintKind.USER_ERROR)


def ours(text: str) -> Hint:
    """A hint how to avoid something that could be compiled, but is not yet."""
    return Hint(text, HintKind.OURS)


def a_tensor() -> tuple[Any, ...]:
    """The arguments of most examples: one tensor, float32[2, 3]."""
    return (torch.linspace(-1, 1, 6).reshape(2, 3),)


def plainly(fn: Callable[..., Any], *args: Any) -> Any:
    """Call an example as most programs do."""
    return fn(*args)


@attrs.frozen
class Example:
    """A small program that breaks the graph, and the same program written without the break.

    before, after: functions of a plugin's module, whose source is shown. after is None if nothing else computes what
    `before` does; the hints say why. inputs, inputs_after: functions that make their arguments. settings: the settings
    under which it breaks. called, called_after: functions that call the example with its arguments, for breaks that
    depend on the caller. fullgraph: it breaks, with an error, only under fullgraph=True; otherwise it runs eagerly.
    """

    before: Callable[..., Any]
    after: Callable[..., Any] | None = None
    inputs: Callable[[], tuple[Any, ...]] = a_tensor
    inputs_after: Callable[[], tuple[Any, ...]] = a_tensor
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    called: Callable[..., Any] = plainly
    called_after: Callable[..., Any] = plainly
    fullgraph: bool = False


def _as_hints(given: Iterable[Hint | str]) -> tuple[Hint, ...]:
    """Texts as hints. Anything else is unchanged; the check, which names the row, reports it."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        return cast(tuple[Hint, ...], given)
    return tuple(Hint(hint) if isinstance(hint, str) and hint.strip() else cast(Hint, hint) for hint in given)


def _some_hints(row: object, field: attrs.Attribute[tuple[Hint, ...]], value: object) -> None:
    if not isinstance(value, tuple) or not value:
        raise _fault(row, field.name, value, "a tuple of hints, at least one")
    for hint in value:
        if not isinstance(hint, Hint):
            raise _fault(row, f"one of {field.name}", hint, "a Hint, or a text that is not empty")


def _example(row: object, field: attrs.Attribute[Example | None], value: object) -> None:
    if not (value is None or isinstance(value, Example)):
        raise _fault(row, field.name, value, "an Example")


def _example_in(module: str, id: str) -> Example | None:
    """The example that a module has for a type; None if it has none. Errors: NoExamples."""
    try:
        found, name = vars(importlib.import_module(module)), id.replace("-", "_")
    except Exception as error:  # importing a module may raise anything
        raise NoExamples(type=id, module=module, problem=f"{type(error).__name__}: {error}") from error
    if name not in found:
        return None
    inputs = found.get(f"{name}_inputs", a_tensor)
    inputs_after, settings = found.get(f"{name}_mended_inputs", inputs), found.get(f"{name}_settings", {})
    called = found.get(f"{name}_called", plainly)
    called_after = found.get(f"{name}_mended_called", called)
    after, whole = found.get(f"{name}_mended"), found.get(f"{name}_fullgraph", False)
    return Example(found[name], after, inputs, inputs_after, settings, called, called_after, whole)


@attrs.frozen
class BreakType:
    """A row of the break catalogue. `explanation` is a template over the facts given where the break is raised.

    id: the name by which code raises it. code: a permanent number that people can search for; torch.compile's number if
    the situation is the same. torch_name: its name in torch.compile, if that differs from the title. also: other types
    of torch.compile that this one covers.
    explanation: what it means for the program. cause: why the operation can't be in the graph. examples: the module
    with the example, if none is given (`with_examples`).
    """

    id: str = attrs.field(validator=_some_text)  # "data-dependent-branch"
    title: str = attrs.field(validator=_some_text)
    explanation: str = attrs.field(validator=_some_text)
    hints: tuple[Hint, ...] = attrs.field(validator=_some_hints, converter=_as_hints)  # texts too
    docs_url: str = attrs.field(default="", validator=_text)
    code: str = attrs.field(default="", validator=_text)
    cause: str = attrs.field(default="", validator=_text)
    also: tuple[str, ...] = attrs.field(default=(), validator=_texts)
    example: Example | None = attrs.field(default=None, validator=_example)
    examples: str = attrs.field(default="", validator=_text)
    torch_name: str = attrs.field(default="", validator=_text)

    @property
    def shown_example(self) -> Example | None:
        """The example, given or from the module. Errors: NoExamples."""
        if self.example is not None or not self.examples:
            return self.example
        return _example_in(self.examples, self.id)

    @property
    def name(self) -> str:
        """Its name in reports: "GB0170 data-dependent-branch"."""
        return f"{self.code} {self.id}".lstrip()


def with_examples(rows: Iterable[BreakType], module: str) -> tuple[BreakType, ...]:
    """The rows, each with the example that the module of this name has for it, if any.

    The function `my_break` breaks with `my-break`, and `my_break_mended` is the version without the break.
    `my_break_inputs` and `my_break_mended_inputs` make arguments, `my_break_settings` has the settings under which it
    breaks; `my_break_called(fn, *args)` and `my_break_mended_called` call it, if the way of calling matters;
    `my_break_fullgraph` says that it breaks with fullgraph=True only. The module is imported when an example is needed,
    not when the plugin is loaded.
    """
    return tuple(attrs.evolve(row, examples=module) for row in rows)


@attrs.frozen
class FrameSummary:
    """One line of the user's stack. `text` is stripped.

    column, end_column: the span of the executed expression in the unstripped line, counted in characters from 0; -1 if
    Python does not know it. end_line: the line on which the expression ends; 0 if unknown.
    """

    file: str
    line: int
    function: str
    text: str = ""
    column: int = -1
    end_line: int = 0
    end_column: int = -1


@attrs.frozen
class SeenValue:
    """A value used by a line: the user's expression for it, and a description ("a tensor float32[2, 4] on cpu")."""

    expression: str
    description: str


@attrs.frozen
class BreakEvent:
    """A graph break that happened: its type, the facts, the user's stack (innermost last) and what was done.

    values: those that the line uses. seconds: the time of tracing the frame again to cut it there.
    """

    type: BreakType
    facts: Mapping[str, object]
    stack: tuple[FrameSummary, ...]
    outcome: str = "the frame runs eagerly"
    values: tuple[SeenValue, ...] = ()
    seconds: float = 0.0
