"""Tests for handler authors: functions that call what the plugin handles run compiled and eagerly, and are compared.

    class TestHandlers(HandlerConformance):
        plugin = armature_mylib.plugin
        cases = (
            Case("size", lambda x: x * mylib.size_of(x), lambda: (torch.ones(3),), absent=(mylib.size_of,)),
            Case("reads a file", lambda x: x + mylib.load(), lambda: (torch.ones(3),), breaks="mylib-io"),
        )

For each case: the function is captured in one graph, behaves as in eager mode (values, dtypes, strides, exceptions),
runs a second time without recompiling, and the graph has and lacks the given calls. Or the graph breaks with the given
id, and the results are still those of eager mode. For the plugin: targets of handlers are callable, and handlers have
docstrings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import attrs
import pytest
import torch
from torch import fx

from armature.api import public as api
from armature.errors import ArmatureError
from armature.pipeline.session import session
from armature.plugins.plugin_manager import manager
from armature.testing.differential import difference
from armature.trace.handlers import Handler


@attrs.frozen(eq=False)
class Case:
    """`fn(*inputs())` under test. present, absent: functions or names of methods that the graph must or must not call.

    breaks: id of the expected graph break, "" for none. raises: the exception that eager mode raises too.
    """

    name: str
    fn: Callable[..., Any]
    inputs: Callable[[], tuple[Any, ...]]
    present: tuple[Any, ...] = ()
    absent: tuple[Any, ...] = ()
    breaks: str = ""
    raises: type[Exception] | None = None


@attrs.define(eq=False)
class Captured:
    """A backend that stores the graphs it receives and runs them uncompiled."""

    graphs: list[fx.GraphModule] = attrs.field(factory=list)

    def __call__(self, graph: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        self.graphs.append(graph)
        return graph.forward

    def calls(self) -> list[Any]:
        """Targets of all calls."""
        return [node.target for graph in self.graphs for node in graph.graph.nodes if node.op.startswith("call_")]


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> object:
    """The result of a call, or the type and text of the program's own exception."""
    torch.manual_seed(0)
    try:
        return fn(*args)
    except ArmatureError:
        raise
    except Exception as error:
        return type(error), str(error)


def break_id(fn: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The id of the graph break at which capturing the function ends; "" if there is none."""
    with session().recording() as records:
        outcome(api.compile(fn, backend=Captured()), args)
    return next((event.type.id for event in records.breaks()), "")


class HandlerConformance:
    """Subclass it, set `plugin` and `cases`."""

    plugin: ClassVar[object]
    cases: ClassVar[tuple[Case, ...]]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each case."""
        if "case" in metafunc.fixturenames:
            cases = type(self).cases
            metafunc.parametrize("case", cases, ids=[case.name for case in cases])

    @pytest.fixture(autouse=True)
    def registered(self) -> Iterator[None]:
        """Registers the plugin, in case it is not installed."""
        plugin = type(self).plugin
        name = getattr(plugin, "__name__", type(plugin).__name__)
        if any(place in (name, getattr(plugin, "__file__", name)) for place in _break_locations()):
            yield
            return
        with manager().registered(plugin, name):
            yield

    def test_like_eager(self, case: Case) -> None:
        captured = Captured()
        compiled = api.compile(case.fn, backend=captured, fullgraph=not case.breaks)
        eager = outcome(case.fn, case.inputs())
        if case.raises is not None:
            assert isinstance(eager, tuple)
            assert eager[0] is case.raises
        difference_of_outcomes(eager, outcome(compiled, case.inputs()))
        compiled_first = len(captured.graphs)  # several if calls on real tensors cut the graph into pieces
        difference_of_outcomes(eager, outcome(compiled, case.inputs()))
        if not case.breaks:
            assert len(captured.graphs) == compiled_first, "the second call compiled again"
        calls = captured.calls()
        assert [want for want in case.present if want not in calls] == []
        assert [want for want in case.absent if want in calls] == []

    def test_breaks(self, case: Case) -> None:
        assert break_id(case.fn, case.inputs()) == case.breaks

    def test_targets_are_callable_and_named(self) -> None:
        hook = getattr(type(self).plugin, "armature_handlers", None)
        rows = list(hook()) if hook is not None else []
        assert all(isinstance(row, Handler) and row.targets and all(map(callable, row.targets)) for row in rows)
        assert all(row.fn.__doc__ for row in rows), "a handler needs a docstring"


def difference_of_outcomes(eager: object, compiled: object) -> None:
    """Raises Mismatch or AssertionError if two outcomes differ."""
    if isinstance(eager, tuple) and eager and isinstance(eager[0], type):
        assert compiled == eager
    else:
        assert difference(eager, compiled) < 1e-4


def _break_locations() -> list[str]:
    return [place for plugin in manager().plugins for place in (plugin.name, plugin.place)]
