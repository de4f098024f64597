"""The tools of torch that record programs: they can be seen at work, and begin in functions that are known."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from armature.torch_abi import recorders

X = torch.ones(2, 3)


FOUND: list[tuple[bool, bool]] = []  # no attribute of the module: torch.export sets those back


class Asks(nn.Module):
    """Notes whether a tool is at work, and whether it was begun by one of the functions that are known."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        FOUND.clear()

    def forward(self, x: Tensor) -> Tensor:
        FOUND.append((recorders.at_work(), any(map(recorders.begins, codes_above(sys._getframe())))))
        return self.linear(x).relu()


def codes_above(frame: FrameType | None) -> Any:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


TOOLS: dict[str, Callable[[Asks], object]] = {
    "jit.trace": lambda net: torch.jit.trace(net, X, check_trace=False),
    "jit.trace of a function": lambda net: torch.jit.trace(net.forward, X, check_trace=False),
    "jit.trace_module": lambda net: torch.jit.trace_module(net, {"forward": X}, check_trace=False),
    "onnx": lambda net: torch.jit._get_trace_graph(net, (X,)),
    "fx": torch.fx.symbolic_trace,
    "fx tracer": lambda net: torch.fx.Tracer().trace(net),
    "export": lambda net: torch.export.export(net, (X,), strict=False),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_at_work(tool: str) -> None:
    net = Asks()
    TOOLS[tool](net)
    assert FOUND and all(found == (True, True) for found in FOUND)
    net(X)
    assert FOUND[-1] == (False, False)


def test_make_fx_begins_in_a_known_function() -> None:
    make_fx(Asks())(X)
    assert [begun for _, begun in FOUND] == [True]


def test_torch_compile_takes_the_question_for_true() -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def function(x: Tensor) -> Tensor:
        return x + 1 if recorders.at_work() else x - 1

    assert torch.equal(function(X), X + 1)
    assert not recorders.at_work()


def test_a_function_that_only_reads_a_program() -> None:
    assert recorders.begins(inspect.unwrap(torch.jit.script).__code__)
    assert not recorders.begins(inspect.unwrap(torch.jit.fork).__code__)


def test_fx_is_known_apart_from_the_others() -> None:
    found: list[bool] = []

    class Notes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            found.append(recorders.fx_at_work())
            return x

    torch.fx.symbolic_trace(Notes())
    torch.jit.trace(Notes(), X, check_trace=False)
    assert found == [True, False]
