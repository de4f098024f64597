"""A skip is for the frame that it names: it runs eagerly, and what it calls is still compiled."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature import plugins
from armature.hookspecs import hookimpl
from armature.pipeline.session import session
from armature.rules import Decision, Rule
from armature.testing.rules_kit import rows


def module_of(source: str, name: str) -> types.SimpleNamespace:
    """Functions that live in a module of that name."""
    namespace: dict[str, Any] = {"__name__": name, "torch": torch}
    exec(compile(source, f"{name}.py", "exec"), namespace)
    return types.SimpleNamespace(**{k: v for k, v in namespace.items() if isinstance(v, types.FunctionType)})


@pytest.fixture
def captured() -> tuple[list[str], Callable[..., Any]]:
    """The operators of each graph, and a backend that notes them."""
    graphs: list[str] = []

    def backend(gm: torch.fx.GraphModule, example_inputs: object) -> Callable[..., Any]:
        calls = [node for node in gm.graph.nodes if node.op in ("call_function", "call_method")]
        graphs.append(" ".join(getattr(node.target, "__name__", str(node.target)) for node in calls))
        return gm.forward

    return graphs, backend


SOURCE = """
def helper(x):
    return torch.sin(x) + 1

def outer(x):
    return helper(x) * 2

def top(x):
    return outer(x) - torch.cos(x)
"""
X = torch.linspace(0, 1, 4)


def with_rules(*given: Rule) -> Any:
    plugin = types.SimpleNamespace(armature_rules=hookimpl(rows(*given)))
    return plugins.manager().registered(plugin, "frames-test")


def test_a_skipped_function_runs_eagerly_and_its_callees_are_compiled(captured: Any) -> None:
    graphs, backend = captured
    made = module_of(SOURCE, "frames_one")
    with with_rules(Rule(made.outer, Decision.SKIP, "it must run as it is")):
        result = armature.compile(made.outer, backend=backend)(X)
    assert torch.equal(result, made.outer(X))
    assert graphs == ["sin add"], "the multiplication of the skipped frame is in no graph"


LIBRARY = """
def checked(array):
    if array.min() < 0:
        return -array
    return array

def scaled(array):
    return checked(array) * 2

def both(array):
    return scaled(array) + checked(array + 1)

def twice(array):
    return array * 2

def called(function, x):
    return checked(x) + function(x)
"""
WHOLE = Rule("whole_library", Decision.INLINE, "computes on arrays", whole=True)


def test_a_break_in_a_library_whose_calls_run_as_a_whole(captured: Any) -> None:
    """The frame of the program is cut at its call of the library; without the rule the library's frames are."""
    graphs, backend = captured
    library = module_of(LIBRARY, "whole_library.parts")

    def f(x: torch.Tensor) -> torch.Tensor:
        return library.both(x.sin()).cos()

    assert torch.equal(armature.compile(f, backend=backend)(X), f(X))
    assert len(graphs) > 2
    graphs.clear()
    armature.reset()
    with with_rules(WHOLE):
        assert torch.equal(armature.compile(f, backend=backend)(X), f(X))
        assert graphs == ["sin", "cos"]
        armature.reset()
        assert armature.explain(f)(X).graph_break_count == 1


def test_a_library_whose_calls_run_as_a_whole_is_traced_into(captured: Any) -> None:
    graphs, backend = captured
    library = module_of(LIBRARY, "whole_library.more")
    with with_rules(WHOLE):
        result = armature.compile(lambda x: library.twice(x.sin()).cos(), backend=backend, fullgraph=True)(X)
        assert torch.equal(result, (X.sin() * 2).cos())
        assert graphs == ["sin mul cos"]


def test_functions_given_to_a_library_whose_calls_run_as_a_whole_are_compiled(captured: Any) -> None:
    graphs, backend = captured
    library = module_of(LIBRARY, "whole_library.callers")

    def own(x: torch.Tensor) -> torch.Tensor:
        return x.exp() - x

    with with_rules(WHOLE):
        result = armature.compile(lambda x: library.called(own, x.sin()).cos(), backend=backend)(X)
    assert torch.equal(result, library.called(own, X.sin()).cos())
    assert graphs == ["sin", "exp sub", "cos"]


def test_a_function_of_such_a_library_is_compiled_where_it_is_asked_for(captured: Any) -> None:
    graphs, backend = captured
    library = module_of(LIBRARY, "whole_library.asked")
    with with_rules(WHOLE):
        assert torch.equal(armature.compile(library.twice, backend=backend)(X), X * 2)
        assert graphs == ["mul"]
        assert "runs eagerly" in armature.why(library.twice).meaning


def test_a_skipped_module_and_an_inlined_one_below_it(captured: Any) -> None:
    graphs, backend = captured
    skipped = module_of("def run(f, x):\n    return f(x) * 2\n", "frames_two.machinery")
    inlined = module_of("def work(x):\n    return torch.sin(x) + 1\n", "frames_two.machinery.parts")
    given = [
        Rule("frames_two.machinery", Decision.SKIP, "machinery"),
        Rule("frames_two.machinery.parts", Decision.INLINE, "plain operators"),
    ]
    with with_rules(*given):
        result = armature.compile(skipped.run, backend=backend)(inlined.work, X)
    assert torch.equal(result, skipped.run(inlined.work, X))
    assert graphs == ["sin add"]


def test_in_the_graph_is_for_calls_and_not_for_the_frame(captured: Any) -> None:
    """A function that is one node when traced code calls it is traced when its own frame is compiled."""
    graphs, backend = captured
    made = module_of(SOURCE, "frames_three")
    with with_rules(Rule(made.helper, Decision.IN_GRAPH, "one node")):
        assert torch.equal(armature.compile(made.outer, backend=backend)(X), made.outer(X))
        assert torch.equal(armature.compile(made.helper, backend=backend)(X), made.helper(X))
    assert graphs == ["helper mul", "sin add"]


def test_a_skipped_call_breaks_the_graph_and_says_why() -> None:
    made = module_of(SOURCE, "frames_four")
    with with_rules(Rule(made.outer, Decision.SKIP, "it must run as it is")):
        compiled = armature.compile(made.top, fullgraph=True, backend="eager")
        with pytest.raises(armature.errors.Unsupported, match="it must run as it is"):
            compiled(X)


@functools.singledispatch
def waved(x: object) -> object:
    return x


@waved.register
def _(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2 + 1


def test_what_the_standard_library_does_around_the_program_is_no_graph_of_its_own() -> None:
    """`functools` dispatches in a Python function, which is given the tensor."""
    armature.reset()

    @armature.rules.skip(reason="for this test")
    def eager(x: object) -> object:
        return waved(x)

    x = torch.randn(3)
    assert torch.equal(armature.compile(lambda x: eager(x + 1), backend="eager")(x), waved(x + 1))
    seen = [one.file for one in session().compilations]
    assert seen and set(seen) == {__file__}
    assert any(skip.function.endswith("wrapper") and "standard library" in skip.reason for skip in session().skips)
