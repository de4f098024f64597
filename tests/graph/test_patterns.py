"""Patterns of graphs: what they match, what they leave alone, and what is said of replacements that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

import armature
from armature.errors import InvariantError
from armature.graph.patterns import Pattern
from armature.pipeline.session import session
from armature.plugin_api import Match, Pass, Rewrite, fake_of, hookimpl, rewriting
from armature.plugins import manager

aten = torch.ops.aten


class Plugin:
    def __init__(self, *rewrites: Rewrite, stage: str = "pre_grad") -> None:
        self.step = Pass("mine", stage, rewriting(rewrites))

    @hookimpl
    def armature_passes(self) -> list[Pass]:
        return [self.step]


def compiled(fn: Callable[..., Any], inputs: tuple[Any, ...], plugin: Plugin) -> tuple[Any, list[str]]:
    """What the compiled function gives, and the operators of its graphs."""
    armature.reset()
    with manager().registered(plugin, "mine"):
        found = armature.compile(fn, fullgraph=True)(*inputs)
    graphs = [g.aten.module.graph for g in session().compilations[-1].graphs]
    return found, [str(n.target) for graph in graphs for n in graph.nodes if n.op == "call_function"]


def scaled_sine(x: Any, factor: Any) -> Any:
    return torch.mul(torch.sin(x), factor)


def scaled_cosine(x: Any, factor: Any) -> Any:
    return torch.cos(x) * factor


SINES = Rewrite(scaled_sine, scaled_cosine)
X = torch.linspace(-1, 1, 6).view(2, 3)

SPELLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "functions": lambda x: torch.mul(torch.sin(x), 3.0),
    "an operator": lambda x: torch.sin(x) * 3.0,
    "the other way round": lambda x: 3.0 * x.sin(),
    "methods": lambda x: x.sin().mul(3.0),
    "names": lambda x: torch.multiply(input=torch.sin(input=x), other=3.0),
}


@pytest.mark.parametrize("fn", SPELLINGS.values(), ids=SPELLINGS)
def test_one_pattern_for_all_spellings(fn: Callable[[Tensor], Tensor]) -> None:
    found, operators = compiled(fn, (X,), Plugin(SINES))
    torch.testing.assert_close(found, X.cos() * 3)
    assert "aten.sin.default" not in operators


def test_gradients_are_those_of_the_replacement() -> None:
    x = X.clone().requires_grad_()
    found, _ = compiled(lambda x: x.sin() * 3.0, (x,), Plugin(SINES))
    found.sum().backward()
    torch.testing.assert_close(x.grad, -3 * X.sin())


def written(x: Tensor) -> Tensor:
    y = x.sin()
    x.add_(1)
    return y * 3.0


STAYS: dict[str, Callable[[Tensor], Any]] = {
    "read by others": lambda x: ((y := x.sin()) * 3.0) + y,
    "something else": lambda x: x.sin() + 3.0,
    "written in between": lambda x: written(x.clone()),
}


@pytest.mark.parametrize("fn", STAYS.values(), ids=STAYS)
def test_what_stays(fn: Callable[[Tensor], Tensor]) -> None:
    found, operators = compiled(fn, (X,), Plugin(SINES))
    torch.testing.assert_close(found, fn(X))
    assert "aten.sin.default" in operators


def test_a_parameter_used_twice_is_the_same_thing() -> None:
    rule = Rewrite(lambda x: torch.add(torch.sin(x), torch.cos(x)), lambda x: torch.exp(x))
    _, operators = compiled(lambda x, y: x.sin() + y.cos(), (X, X + 1), Plugin(rule))
    assert "aten.exp.default" not in operators
    found, operators = compiled(lambda x, y: y.cos() + y.sin(), (X, X + 1), Plugin(rule))
    torch.testing.assert_close(found, (X + 1).exp())


def test_constants_must_be_equal() -> None:
    rule = Rewrite(lambda x: torch.softmax(x, 1), lambda x: torch.cos(x))
    assert "aten.cos.default" in compiled(lambda x: F.softmax(x, dim=1), (X,), Plugin(rule))[1]
    assert "aten.cos.default" not in compiled(lambda x: F.softmax(x, dim=0), (X,), Plugin(rule))[1]


def test_views_in_a_pattern_may_be_read_by_others() -> None:
    rule = Rewrite(lambda x: torch.sin(x.transpose(0, 1)), lambda x: torch.cos(x).transpose(0, 1))
    found, _ = compiled(lambda x: ((y := x.transpose(0, 1)).sin() * y, 0)[0], (X,), Plugin(rule))
    torch.testing.assert_close(found, X.T.cos() * X.T)


def test_a_condition_is_asked_about_each_place() -> None:
    def is_small(match: Match) -> bool:
        assert match.fake("factor") == fake_of(3.0)
        return bool(match.fake("x").shape[0] == 2)

    rule = Rewrite(scaled_sine, scaled_cosine, is_small)
    assert "aten.sin.default" not in compiled(lambda x: x.sin() * 3.0, (X,), Plugin(rule))[1]
    assert "aten.sin.default" in compiled(lambda x: x.sin() * 3.0, (X.T,), Plugin(rule))[1]


def test_patterns_of_operators() -> None:
    """In graphs of ATen operators."""
    rule = Rewrite(
        lambda x, y, z: aten.add.Tensor(aten.mm.default(x, y), z), lambda x, y, z: aten.addmm.default(z, x, y)
    )
    x, y = torch.randn(20, 30), torch.randn(30, 40)
    found, operators = compiled(lambda x, y, z: z + x @ y, (x, y, x @ y), Plugin(rule, stage="post_grad"))
    torch.testing.assert_close(found, 2 * x @ y, rtol=1e-4, atol=1e-4)
    assert "aten.addmm.default" in operators


@pytest.mark.parametrize(
    "wrong",
    [lambda x: torch.cos(x).sum(0), lambda x: torch.cos(x).double(), lambda x: torch.cos(x).t().contiguous().t()],
)
def test_a_replacement_of_another_kind_is_an_error(wrong: Callable[..., Any]) -> None:
    rule = Rewrite(lambda x: torch.sin(x), wrong, name="broken")
    with pytest.raises(InvariantError, match="broken"):
        compiled(lambda x: x.sin() * 2, (X,), Plugin(rule))


def test_a_pattern_has_to_call_something() -> None:
    with pytest.raises(InvariantError, match="the result of a call"):
        compiled(lambda x: x.sin() * 2, (X,), Plugin(Rewrite(lambda x: x, lambda x: x)))


def test_time_is_linear_in_the_graph() -> None:
    """Each node is looked at once for each pattern that may end there."""
    asked: list[fx.Node] = []
    rule = Rewrite(scaled_sine, scaled_cosine, lambda match: bool(asked.append(match.root)))

    def chain(x: Tensor) -> Tensor:
        for _ in range(50):
            x = x.sin() * 3.0
        return x

    compiled(chain, (X,), Plugin(rule))
    assert len(asked) == 50


def test_patterns_are_captured_where_a_subclass_computes() -> None:
    """As in the operators of DTensor, which are compiled graphs of their own: torch asks nobody for functions there."""
    with torch._C.DisableTorchFunction():
        pattern = Pattern.of(lambda x: aten.select.int(aten.neg.default(x), 0, 1))
    assert pattern.parameters == {"x"}
    assert pattern.output.target is aten.select.int


def cast_sine(x: Any) -> Any:
    return torch.sin(x).float()


def test_methods_named_like_dtypes_match() -> None:
    """`torch.float` is a dtype, so `x.float()` is no call of it."""
    rewrite = Rewrite(cast_sine, lambda x: torch.cos(x).to(torch.float32))
    found, operators = compiled(lambda x: x.sin().float() + 1, (X.double(),), Plugin(rewrite))
    torch.testing.assert_close(found, X.cos() + 1)
    assert "aten.sin.default" not in operators


def test_inputs_of_graphs_that_write() -> None:
    """The fakes of inputs are then others than those that the graph was made with."""

    def program(x: Tensor, y: Tensor) -> Tensor:
        y.add_(1)
        return x.sin() * 3.0

    y = X.clone()
    found, operators = compiled(program, (X, y), Plugin(SINES))
    torch.testing.assert_close((found, y), (X.cos() * 3, X + 1))
    assert "aten.sin.default" not in operators
