"""The targets that a user's rule may have, and the location in the user's program that declares it."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

from torch import nn

from armature.introspection import (
    MISSING,
    class_member,
    find_loaded,
    is_class,
    is_module,
    is_object_of,
    is_written_in_c,
    layers,
    text,
)
from armature.plugins.registry import name_of
from armature.rules.data import Decision, RuleOrigin
from armature.rules.errors import BadTarget

USER = "user"  # the name of the plugin that represents the user
# Modules whose classes wrap other callables.
WRAPPERS = ("armature.rules.declare", "armature.api.compiled_module")
ORIGINAL = "__armature_original__"  # the attribute in which armature's own wrappers store the wrapped object
OWN_FOLDER = str(Path(__file__).parents[1])  # as code objects name it, with links not resolved
DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(#[^\W\d]\w*)?")
PIECES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE

WANTED = 'Give a function, method or class, a module, or a name: "pkg.mod.fn", "pkg.mod.Class#method".'
Check = Callable[[object], tuple[str, str] | None]


def is_dotted(name: str) -> bool:
    """Whether the text is a dotted name, perhaps ending in `#method`."""
    return DOTTED.fullmatch(name) is not None


def original(obj: Any) -> Any:
    """The object behind one of armature's own wrappers (of `compile`, `rules.skip`); any other object itself."""
    if type(obj) is not FunctionType and text(class_member(type(obj), "__module__")) not in WRAPPERS:
        return obj
    found = dict.get(obj.__dict__, ORIGINAL)
    return obj if found is None else found


def called_from() -> RuleOrigin:
    """The file and line of the user's program that is calling armature now."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(f"{OWN_FOLDER}/"):
        frame = frame.f_back
    return RuleOrigin(USER, frame.f_code.co_filename, frame.f_lineno)


def place(origin: RuleOrigin) -> str:
    """File and line in one short text."""
    return f"{origin.file}:{origin.line}" if origin.line else origin.file


def check_target(call: str, target: object, decision: Decision) -> None:
    """Raise BadTarget, naming the call, if the target can't have a rule with this decision."""
    named = is_object_of(target, str)
    if named and not is_dotted(str(target)):
        raise BadTarget(call=call, target=repr(target), problem="it is not a dotted name", fix=WANTED)
    meant = find_loaded(str(target)) if named else target
    if meant is MISSING:  # it may be defined later
        return
    if not (callable(meant) or is_module(meant) or is_object_of(meant, classmethod)):
        problem = f"an object of type {type(meant).__qualname__} can't be called"
        raise BadTarget(call=call, target=f"{target!r:.80}", problem=problem, fix=WANTED)
    if found := refusal(meant, decision):
        raise BadTarget(call=call, target=name_of(target), problem=found[0], fix=found[1])


def refusal(target: object, decision: Decision) -> tuple[str, str] | None:
    """Why a callable or module can't have a rule with this decision, and what to do instead; None if it can."""
    if is_module(target):
        return None
    answers = (check(target) for check in (_no_module_object, *CHECKS[decision]))
    return next((found for found in answers if found is not None), None)


def inner_function(target: object) -> object:
    """The function that a call of the target finally runs: through bound methods, partials, caches."""
    return list(layers(target))[-1]


def _no_module_object(target: object) -> tuple[str, str] | None:
    if not is_object_of(target, nn.Module):
        return None
    cls = name_of(type(target))
    return (
        "a call of a module is a call of its class's forward, and a rule is for all objects of the class",
        f"Say it of {cls.replace('<locals>.', '')}.forward, or use armature.disable for this one object.",
    )


def _has_python_code(target: object) -> tuple[str, str] | None:
    found = inner_function(target)
    if is_class(found) or not is_written_in_c(found):
        return None
    return (
        "it is written in C and has no Python code to trace into",
        "Give Python code that does the same with armature.substitute, or keep the call with armature.allow_in_graph.",
    )


def _runs_in_one_go(target: object) -> tuple[str, str] | None:
    found = inner_function(target)
    code = found.__code__ if type(found) is FunctionType else None
    if code is None or not code.co_flags & PIECES:
        return None
    return (
        "a generator or coroutine runs in pieces, and a node of a graph is one call",
        "Put a plain function in the graph that returns tensors.",
    )


def _is_no_class(target: object) -> tuple[str, str] | None:
    if not is_class(target) or is_written_in_c(target):
        return None
    return (
        "what a graph gives are tensors and containers of tensors, not objects of a class",
        'Say it of its methods, as in "pkg.mod.Class#method".',
    )


CHECKS: dict[Decision, tuple[Check, ...]] = {
    Decision.SKIP: (),
    Decision.INLINE: (_has_python_code,),
    Decision.IN_GRAPH: (_is_no_class, _runs_in_one_go),
}


def own_copy(fn: FunctionType) -> FunctionType:
    """The same function with a code object of its own; globals, defaults, closure and attributes are shared."""
    made = FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    for name in ("__kwdefaults__", "__qualname__", "__module__", "__doc__", "__annotations__", "__type_params__"):
        if hasattr(fn, name):
            setattr(made, name, getattr(fn, name))
    made.__dict__.update(fn.__dict__)
    return made
