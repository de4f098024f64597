"""A change of rules forgets the code that relied on the contrary, and no other."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import armature
from armature.pipeline.session import session
from armature.plugins import manager
from armature.rules import in_graph, inline, skip

X = torch.linspace(0.1, 1, 4)


def helper(x: Tensor) -> Tensor:
    return x.sin() + 1


def other_helper(x: Tensor) -> Tensor:
    return x.cos() - 1


def first(x: Tensor) -> Tensor:
    return helper(x * 2) * 3


def second(x: Tensor) -> Tensor:
    return other_helper(x * 4) * 5


def third(x: Tensor) -> Tensor:
    return x * math.gamma(5.0)


class Layer(nn.Module):
    def scaled(self, x: Tensor) -> Tensor:
        return helper(x) * 2

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(x) + 1


class Counter:
    """A back end that counts what it compiles and runs."""

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.runs = 0

    def __call__(self, module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        self.compiled.append(str(module.graph))

        def run(*args: Any) -> Any:
            self.runs += 1
            return module.forward(*args)

        return run


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    armature.reset()
    with manager().user.apart():
        yield
    armature.reset()


def compile_of(fn: Callable[..., Any]) -> SimpleNamespace:
    counter = Counter()
    return SimpleNamespace(fn=fn, counter=counter, call=armature.compile(fn, backend=counter))


def new_graphs(made: SimpleNamespace) -> int:
    """Graphs compiled by a call now, which is like eager."""
    before = len(made.counter.compiled)
    assert torch.allclose(made.call(X), made.fn(X))
    return len(made.counter.compiled) - before


def test_only_what_asked_for_the_target_is_compiled_again() -> None:
    one, two = compile_of(first), compile_of(second)
    assert (new_graphs(one), new_graphs(two)) == (1, 1)
    with skip(helper):
        assert new_graphs(two) == 0
        assert new_graphs(one) == 2  # before and after the call
        assert (new_graphs(one), new_graphs(two)) == (0, 0)
    assert new_graphs(two) == 0
    assert new_graphs(one) == 1


@pytest.mark.parametrize("rule", [skip, in_graph])
@pytest.mark.parametrize(
    "target", [first, f"{__name__}.first", __name__, helper, f"{__name__}.helper", "json.dumps", "json"]
)
def test_what_is_kept_is_what_a_fresh_compilation_gives(rule: Callable[..., Any], target: Any) -> None:
    made = [compile_of(fn) for fn in (first, second, third)]
    for one in made:
        new_graphs(one)
    with rule(target):
        kept = [graphs_of_a_call(one) for one in made]
        armature.reset()
        again = [graphs_of_a_call(one) for one in made]
    assert kept == again
    kept = [graphs_of_a_call(one) for one in made]
    armature.reset()
    assert kept == [graphs_of_a_call(one) for one in made]


def graphs_of_a_call(made: SimpleNamespace) -> int:
    before = made.counter.runs
    assert torch.allclose(made.call(X), made.fn(X))
    return int(made.counter.runs - before)


def test_a_rule_that_changes_nothing_forgets_nothing() -> None:
    one = compile_of(first)
    new_graphs(one)
    inline(helper)
    assert new_graphs(one) == 1  # its rule goes before handlers now
    inline("json.dumps")
    skip("no.such.name")
    in_graph(other_helper)
    assert new_graphs(one) == 0


def test_a_stand_in_and_its_end() -> None:
    one, three = compile_of(first), compile_of(third)
    assert (new_graphs(one), new_graphs(three)) == (1, 1)

    @armature.substitute(math.gamma)
    def gamma(x: float, /) -> float:
        return 24.0

    assert (new_graphs(one), new_graphs(three)) == (0, 1)


def test_a_frame_that_is_left_alone_and_taken_up_again() -> None:
    one, two = compile_of(first), compile_of(second)
    with skip(first):
        assert new_graphs(one) == 1  # of the helper, whose frame is looked at
        assert new_graphs(two) == 1
    assert (new_graphs(one), new_graphs(two)) == (1, 0)


def test_methods_of_modules() -> None:
    layer = compile_of(Layer())
    assert new_graphs(layer) == 1
    with skip(other_helper):
        assert new_graphs(layer) == 0
    with skip(f"{__name__}.Layer#scaled"):
        assert new_graphs(layer) == 2  # of the helper, whose frame is looked at, and after the call
    assert new_graphs(layer) == 1


def test_what_is_gone_counts_as_changed() -> None:
    namespace: dict[str, Any] = {}
    exec("def passing(x):\n    return x + 1", namespace)
    holder = SimpleNamespace(fn=namespace.pop("passing"))

    def calls_held(x: Tensor) -> Tensor:
        result: Tensor = holder.fn(x) * 2
        return result

    one = compile_of(calls_held)
    assert new_graphs(one) == 1
    code = calls_held.__code__
    relied = session().relied(code)
    tables = armature.plugins.manager().tables()
    assert relied.holds(tables, code)
    holder.fn = helper
    gc.collect()
    assert not relied.holds(tables, code)


def test_what_was_relied_on_goes_with_the_code() -> None:
    namespace: dict[str, Any] = {"helper": helper}
    exec("def short_lived(x):\n    return helper(x) + 1", namespace)
    one = compile_of(namespace["short_lived"])
    new_graphs(one)
    before = len(session()._relied)
    armature.reset()
    del one
    namespace.clear()
    gc.collect()
    assert len(session()._relied) < before
