"""Branches on tensors of which one side only raises: in the graph, and with eager mode's answer on either side.

PYTEST_DONT_REWRITE: an `assert` of the programs is what is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import distributions

import armature
from armature.errors import Unsupported
from armature.testing.differential import difference
from tests.support.resuming import comparable, compiled, resumes

LOG: list[Any] = []


def asserts(x):
    assert x.min() > 0, f"the least is {float(x.min())}"
    return x * 2


def raises_if(x):
    if (x < 0).any():
        raise ValueError(f"bad {tuple(x.shape)}")
    return x.log()


def raises_unless(x):
    if not x.sum() > 0:
        raise KeyError(1)
    if x.sum() > 100:
        return x
    raise KeyError(2)


def one_element(x):
    if x.sum().reshape(1, 1):
        return x + 1
    raise ValueError("zero")


def says_what_it_does(x):
    LOG.append("first")
    x.add_(1)
    y = asserts(x) + raises_if(x)
    LOG.append("second")
    return y


def in_no_grad(x):
    with torch.no_grad():
        assert x.min() > 0
        return x + 1


def in_helpers(x):
    for _ in range(2):
        x = asserts(raises_if(x) + 3)
    return x


ONE_GRAPH = [asserts, raises_if, one_element, says_what_it_does, in_no_grad, in_helpers]


def caught(x):
    try:
        return raises_if(x) + 1
    except ValueError as error:
        return str(error)


def between_breaks(x):
    print("before")
    asserts(x)
    print("after")
    return x + 1


def what_cannot_run_again(x):
    asserts(x)
    return armature_node(x)


def armature_node(x):
    LOG.append("node")
    return x * 3


def signed(sign: float, file: str = "") -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.tensor([1.0, 2.0, 3.0]) * sign,)


@pytest.mark.parametrize("sign", [1.0, -1.0, 0.0])
@pytest.mark.parametrize("backend", [None, "auto"])
@pytest.mark.parametrize("program", [*ONE_GRAPH, raises_unless, caught, between_breaks])
def test_like_eager(program: Callable[..., Any], backend: str | None, sign: float) -> None:
    LOG.clear()
    assert resumes(program, signed(sign), backend=backend).graphs


@pytest.mark.parametrize("program", ONE_GRAPH)
def test_in_one_graph(program: Callable[..., Any]) -> None:
    mine = armature.compile(program, backend="eager", fullgraph=True)
    for sign in (1.0, -1.0, 2.0):  # compiled once, whatever came between
        theirs, ours = [outcome(fn, *signed(sign)()) for fn in (program, mine)]
        assert difference(comparable(theirs), comparable(ours)) <= 1e-6


def outcome(fn: Callable[..., Any], x: Any) -> tuple[Any, ...]:
    LOG.clear()
    try:
        return fn(x), x, list(LOG)
    except (AssertionError, ValueError) as error:
        return repr(error), x, list(LOG)


def test_a_handler_of_the_program_is_asked_for_a_break() -> None:
    with pytest.raises(Unsupported, match="Data-dependent branching"):
        armature.compile(caught, backend="eager", fullgraph=True)(torch.ones(3))


def test_a_graph_that_cannot_run_again_ends_before_the_branch() -> None:
    with armature.rules.in_graph(armature_node):
        mine, records = compiled(what_cannot_run_again)
        LOG.clear()
        assert torch.equal(mine(torch.ones(3)), torch.ones(3) * 3)
        with pytest.raises(AssertionError, match="the least is"):
            mine(-torch.ones(3))
    assert len(records.compilations) > 1


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_gradients(backend: str) -> None:
    def loss(x, scale):
        assert x.min() > 0, "negative"
        return -distributions.Normal(x, scale.exp(), validate_args=True).log_prob(x * 2).sum()

    mine = armature.compile(loss, backend=backend, fullgraph=True)
    for least in (1.0, 2.0):
        found = []
        for fn in (loss, mine):
            given = [torch.linspace(least, 3.0, 5).requires_grad_(), torch.zeros(5, requires_grad=True)]
            fn(*given).backward()
            found.append([tensor.grad for tensor in given])
        torch.testing.assert_close(*found)
    with pytest.raises(AssertionError, match="negative"):
        mine(-torch.ones(5, requires_grad=True), torch.zeros(5, requires_grad=True))


def on_both_sides(x):
    if x.sum() > 0:
        raise ValueError("much")
    raise ValueError("little")


def in_a_transform(x):
    return torch.func.grad(lambda a: asserts(a).sum())(x)


@pytest.mark.parametrize("program", [on_both_sides, in_a_transform])
def test_where_nothing_can_be_assumed(program: Callable[..., Any]) -> None:
    resumes(program, signed(1.0))
    with pytest.raises(Unsupported):
        armature.compile(program, backend="eager", fullgraph=True)(torch.ones(3))


DISTRIBUTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "normal": lambda x: distributions.Normal(x, x, validate_args=True).log_prob(x),
    "categorical": lambda x: distributions.Categorical(probs=x).entropy(),
    "drawn": lambda x: distributions.Categorical(logits=x).sample(),
    "gamma": lambda x: distributions.Gamma(x, x).log_prob(x),
    "divergence": lambda x: distributions.kl_divergence(distributions.Normal(x, x), distributions.Normal(x, x * 2)),
    "independent": lambda x: distributions.Independent(distributions.Normal(x, x), 1).log_prob(x),
    "transformed": lambda x: distributions.LogNormal(x, x).log_prob(x),
    "mixture": lambda x: distributions.MixtureSameFamily(
        distributions.Categorical(x), distributions.Normal(x, x)
    ).log_prob(x[0]),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_check_their_arguments(name: str) -> None:
    program = DISTRIBUTIONS[name]
    mine = armature.compile(program, backend="eager", fullgraph=True)
    for sign in (1.0, 2.0):
        x = torch.tensor([1.0, 2.0, 3.0]) * sign
        torch.manual_seed(0)
        theirs = program(x)
        torch.manual_seed(0)
        assert torch.allclose(mine(x), theirs)
    if name == "normal":
        with pytest.raises(ValueError, match="to satisfy the constraint"):
            mine(-torch.ones(3))
