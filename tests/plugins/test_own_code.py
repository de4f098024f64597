"""Code of this project that is traced in place of a call reaches no function of the project that a rule leaves alone."""

from __future__ import annotations

import dis
import itertools
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from armature import plugins
from armature.introspection import MISSING, member
from armature.plugin_api import functional_collectives
from armature.plugins.tables import Tables
from armature.rules import Decision

TRACING = frozenset({"polyfill", "inline", "whole", "inline_python", "call_whole"})  # methods that take what to trace
READING = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


@pytest.fixture(scope="module")
def tables() -> Tables:
    return plugins.manager().tables()


def is_own(obj: object) -> bool:
    """Whether it is a Python function of armature or of a plugin in this repository."""
    return type(obj) is FunctionType and str(obj.__module__).partition(".")[0].startswith("armature")


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions made in it."""
    yield code
    for held in code.co_consts:
        if isinstance(held, CodeType):
            yield from codes(held)


def named(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function reads by a global name and attributes of it, each with the attribute read just before."""
    for code in codes(function.__code__):
        found, before, last = MISSING, "", ""
        for instruction in dis.get_instructions(code):
            name = str(instruction.argval)
            if instruction.opname == "LOAD_GLOBAL":
                found, before = function.__globals__.get(name, MISSING), last
            elif instruction.opname in READING and found is not MISSING:
                found = member(found, name)
            else:
                found = MISSING
            last = name if instruction.opname in READING else ""
            if found is not MISSING:
                yield before, found


def own_functions() -> Iterator[FunctionType]:
    """Those of loaded modules, and the methods of their classes."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0].startswith("armature")]
    for module in modules:
        for obj in [*vars(module).values()] if isinstance(module, ModuleType) else ():
            for each in [obj, *(vars(obj).values() if isinstance(obj, type) else ())]:
                if is_own(each) and each.__module__ == module.__name__:
                    yield each


def traces_what_is_called(handler: object) -> bool:
    """Whether a handler has the function traced that it is for, as in `call.polyfill(call.fn)`."""
    code = handler.__code__ if isinstance(handler, FunctionType) else None
    read = [str(i.argval) for i in dis.get_instructions(code) if i.opname in READING] if code else []
    return any(name in TRACING and then == "fn" for name, then in itertools.pairwise(read))


def traced(tables: Tables) -> set[FunctionType]:
    """The project's functions that are traced whatever rules say: polyfills, and what handlers have traced."""
    rows = tables.registries
    found = [row.value.replacement for row in rows.polyfills.all_rows()]
    handlers = [row.value for row in rows.handlers.all_rows() if traces_what_is_called(row.value.fn)]
    found += [target for handler in handlers for target in handler.targets]
    found += [given for function in own_functions() for before, given in named(function) if before in TRACING]
    return {function for function in found if is_own(function)}


def called(functions: set[FunctionType]) -> set[FunctionType]:
    """The project's functions that these name, and that those name in turn."""
    seen: set[FunctionType] = set()
    waiting = [*functions]
    while waiting:
        fresh = {found for _, found in named(waiting.pop()) if is_own(found)} - seen
        seen |= fresh
        waiting += fresh
    return seen


def test_a_trace_goes_into_all_that_traced_code_calls(tables: Tables) -> None:
    known = traced(tables)
    assert len(known) > 50
    if functional_collectives.AVAILABLE:
        assert functional_collectives.all_reduce in known
    left_alone = [
        f"{function.__module__}.{function.__qualname__}"
        for function in called(known)
        if tables.handler(function) is None
        and tables.polyfill(function) is None
        and tables.rule_book.verdict(function).decision is Decision.SKIP
    ]
    assert left_alone == []
