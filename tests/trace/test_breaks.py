"""Where one graph is not enough: the break has an id and the user's stack, and nothing is left behind."""

from __future__ import annotations

import dis
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import BaseTorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor

from armature.breaks import events
from armature.plugins import manager
from armature.trace.errors import GraphBreak, SkipFrame
from armature.trace.opcodes import OPCODES
from armature.trace.opcodes.untraced import reason_for
from tests.support.tracing import break_of, trace

X = torch.ones(2, 3)


class Careless(TwoTensor):
    """Is made again as one of its base class."""


class Halving(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def backward(ctx, grad):
        return grad / 2


def branch(t):
    return t if t.sum() > 0 else -t


def loop(t):
    while t.sum() < 10:
        t = t + 1
    return t


def item(t):
    return t * t.sum().item()


def number(t):
    return float(t.sum())


def prints(t):
    print(t)
    return t + 1


def nonzero(t):
    return t.nonzero()


def mask(t):
    return t[t > 0]


def identity(t):
    return t + id(t) % 2


def asserts(t):
    assert (t > 0).all(), "positive"
    return t


def opens(t):
    with open("/dev/null") as f:
        return t + len(f.read())


def warns(t):
    warnings.warn("careful", stacklevel=2)
    return t


def wrong_shapes(t):
    return t @ t


def backward(t):
    w = t * 2
    w.sum().backward()
    return w


def runs_code(t):
    return eval("t + 1")


def keep_gradient_of_an_input(t):
    return t.retain_grad()


def missing_name(t):
    return t + undefined_name  # noqa: F821


def abandons(t):
    def numbers():
        try:
            yield t
        finally:
            log.append(1)

    log = []
    return next(numbers()), log


def switches(t):
    torch.backends.opt_einsum.strategy = torch.backends.opt_einsum.strategy
    return t + 1


def too_deep(t):
    return too_deep(t + 1)


BREAKS: dict[Callable[..., Any], str] = {
    branch: "data-dependent-branch",
    loop: "data-dependent-branch",
    item: "tensor-item",
    number: "number-of-tensor",
    nonzero: "dynamic-shape-operator",
    mask: "dynamic-shape-operator",
    asserts: "data-dependent-branch",
    identity: "address-as-number",
    wrong_shapes: "operator-runtime-error",
    backward: "tensor-backward",
    keep_gradient_of_an_input: "tensor-retain-grad",
    abandons: "generator-left-unfinished",
    switches: "sets-library-attribute",
    missing_name: "exception-leaves-frame",
    too_deep: "recursion-depth",
}


@pytest.mark.parametrize("fn", BREAKS, ids=lambda fn: fn.__name__)
def test_break(fn: Callable[..., Any]) -> None:
    assert break_of(fn, X) == BREAKS[fn]


@pytest.mark.parametrize("fn", [prints, opens, warns, runs_code], ids=lambda fn: fn.__name__)
def test_acts_on_the_world(fn: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    state = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert break_of(fn, X) != ""
    assert capsys.readouterr().out == ""
    assert torch.equal(torch.get_rng_state(), state)


def test_tensor_subclass() -> None:
    assert break_of(lambda t: t + 1, X.to_sparse()) == "sparse-tensor"
    assert break_of(lambda t: t + 1, Careless(X, X.clone())) == "opaque-subclass"


def test_code_of_the_program_in_the_graph_under_a_mode() -> None:
    def program(t: torch.Tensor) -> Any:
        with BaseTorchFunctionMode():
            return Halving.apply(t)

    assert break_of(program, X) == "overridden-call"


def test_breaks_have_a_row_and_the_users_line() -> None:
    for fn in BREAKS:
        with pytest.raises(GraphBreak) as stop:
            trace(fn, X)
        event = stop.value.event
        assert event.type is manager().tables().break_type(BREAKS[fn])
        assert events.explanation(event) == event.type.explanation.format(**event.facts)
        assert event.stack[0].file == __file__


def test_stack_of_a_break_in_a_helper() -> None:
    def outer(t):
        return branch(t)

    with pytest.raises(GraphBreak) as stop:
        trace(outer, X)
    assert [line.function for line in stop.value.event.stack] == ["outer", "branch"]
    assert "t.sum() > 0" in stop.value.event.stack[-1].text


def test_frames_without_tensors_are_skipped() -> None:
    with pytest.raises(SkipFrame):
        trace(lambda a, b: a + b, 1, 2)


def test_generators_are_skipped() -> None:
    def fn(t):
        yield t

    with pytest.raises(SkipFrame):
        trace(fn, X)


def test_every_opcode_is_decided() -> None:
    names = set(dis.opmap)
    undecided = {name for name in names if name not in OPCODES and reason_for(name) is None}
    twice = {name for name in names if name in OPCODES and reason_for(name) is not None}
    assert undecided == set()
    assert twice == set()
    assert all(reason_for(name) for name in names - OPCODES.keys())
    assert sys.version_info[:2] in {(3, 11), (3, 12), (3, 13)}
