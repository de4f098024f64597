"""A container with operators of its own and a context manager, compiled: one graph, with guards on what it relied on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import armature_quantities
import quantities
from quantities import Quantity, relaxed

import armature
from armature.plugin_api import CompileEvent, EventKind, hookimpl
from armature.plugins import manager


class Watcher:
    def __init__(self) -> None:
        self.compiled = 0

    @hookimpl
    def armature_compile_event(self, event: CompileEvent) -> None:
        self.compiled += event.kind is EventKind.FINISH


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    armature.reset()
    watching = Watcher()
    with manager().registered(armature_quantities, "quantities"), manager().registered(watching, "watcher"):
        yield watching
    armature.reset()


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        found = fn(*args)
    except ValueError as error:
        return str(error)
    return found.values.tolist(), found.unit


def quantity(unit: str) -> Quantity:
    return Quantity(torch.arange(4.0), unit)


def total(a: Quantity, b: Quantity) -> Quantity:
    return (a + b) * 2.0


def mixed(a: Quantity, b: Quantity) -> Quantity:
    with relaxed():
        found = a + b
    return Quantity(found.values.sin(), found.unit) + a


def test_operators_are_one_graph(watcher: Watcher) -> None:
    compiled = armature.compile(total, fullgraph=True)
    assert outcome(compiled, quantity("m"), quantity("m")) == outcome(total, quantity("m"), quantity("m"))
    assert outcome(compiled, quantity("m"), quantity("m")) == ([0.0, 4.0, 8.0, 12.0], "m")
    assert watcher.compiled == 1


def test_another_unit_is_compiled_again(watcher: Watcher) -> None:
    compiled = armature.compile(total)
    for units in (("m", "m"), ("s", "s"), ("m", "m"), ("m", "s")):
        given = [quantity(unit) for unit in units]
        assert outcome(compiled, *given) == outcome(total, *given)
    assert watcher.compiled >= 2


def test_the_context_manager_is_traced(watcher: Watcher) -> None:
    compiled = armature.compile(mixed, fullgraph=True)
    given = quantity("m"), quantity("s")
    assert outcome(compiled, *given) == outcome(mixed, *given)
    assert not quantities.is_relaxed() and watcher.compiled == 1


def test_what_was_in_force_before_is_guarded(watcher: Watcher) -> None:
    compiled = armature.compile(total)
    given = quantity("m"), quantity("s")
    assert outcome(compiled, *given) == outcome(total, *given) == "m and s do not add up"
    with relaxed():
        assert outcome(compiled, *given) == outcome(total, *given)
    assert outcome(compiled, *given) == "m and s do not add up"
