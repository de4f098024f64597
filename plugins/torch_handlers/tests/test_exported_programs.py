"""Modules of exported programs, and functions and modules that torch.compile was given, called in a traced function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature
from armature.testing.handler_kit import break_id

X = torch.linspace(-1.0, 1.0, 6).reshape(2, 3)
BATCH = torch.export.Dim("batch", min=2, max=8)


@pytest.fixture(autouse=True)
def the_same_weights() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor, k: float = 2.0) -> Tensor:
        self.calls.add_(1)
        return self.linear(x) * k


class Nested(nn.Module):
    def forward(self, x: Tensor, more: dict[str, Tensor]) -> dict[str, Any]:
        return {"sum": x + more["y"], "both": (x, x * 2)}


class Chooses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, self.one, self.other, (x,))


class WithoutGrad(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            kept = self.linear(x)
        return self.linear(x) + kept


class Cast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            low = self.linear(x)
        return self.linear(x) + low


def exported(module: nn.Module, *args: Any, **options: Any) -> nn.Module:
    made: nn.Module = torch.export.export(module, args, **options).module()
    return made


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = armature.compile(function, backend="eager", fullgraph=True)
    return made


@pytest.mark.parametrize("strict", [False, True])
def test_called_in_a_function(strict: bool) -> None:
    theirs, ours = Counts(), Counts()
    ours.load_state_dict(theirs.state_dict())
    module = exported(ours, X, strict=strict)
    function = compiled(lambda x: module(x) + 1)
    for x in (X, X * 2):
        torch.testing.assert_close(function(x), theirs(x) + 1)
    assert dict(module.named_buffers())["calls"] == theirs.calls


def test_compiled_itself() -> None:
    module = exported(Nested(), X, {"y": X.clone()})
    torch.testing.assert_close(compiled(module)(X, {"y": X + 1}), Nested()(X, {"y": X + 1}))


@pytest.mark.parametrize("make", [Chooses, WithoutGrad, Cast])
def test_operators_that_call_parts_of_it(make: Callable[[], nn.Module]) -> None:
    module = make()
    function = compiled(exported(module, X))
    for x in (X + 1, X - 1):
        theirs, ours = module(x), function(x)
        torch.testing.assert_close(ours, theirs)
        names = [name for name, _ in module.named_parameters()]
        wanted = torch.autograd.grad(theirs.sum(), list(module.parameters()), allow_unused=True)
        given = torch.autograd.grad(ours.sum(), list(module.parameters()), allow_unused=True)
        for name, one, other in zip(names, wanted, given, strict=True):
            zero = torch.zeros_like(dict(module.named_parameters())[name])
            torch.testing.assert_close(zero if other is None else other, zero if one is None else one)


def test_the_grad_mode_is_back_after_a_part_without() -> None:
    module = exported(WithoutGrad(), X)
    function = compiled(lambda x: (module(x), torch.is_grad_enabled()))
    with torch.no_grad():
        assert function(X)[1] is False
    assert function(X)[1] is True
    assert torch.is_grad_enabled()


def test_its_checks_of_sizes_hold() -> None:
    shapes = ({0: BATCH}, {"y": {0: BATCH}})
    module = exported(Nested(), X, {"y": X.clone()}, dynamic_shapes=shapes)
    function = armature.compile(lambda x: module(x, {"y": x}), backend="eager")
    for rows in (2, 4, 6, 8):
        x = torch.ones(rows, 3)
        torch.testing.assert_close(function(x), Nested()(x, {"y": x}))
    with pytest.raises(AssertionError, match="Guard failed"):
        function(torch.ones(9, 3))


def test_a_function_of_torch_compile() -> None:
    inner = [torch.compile(lambda x: x.sin(), backend="eager"), torch.compile(lambda x: x.cos(), backend="eager")]
    function = compiled(lambda x, f: f(x) + 1)
    for chosen, wanted in zip(inner, (X.sin(), X.cos()), strict=True):
        torch.testing.assert_close(function(X, chosen), wanted + 1)
    assert compiled(lambda x, f: (x + 1, f))(X, inner[0])[1] is inner[0]


def test_a_method_of_torch_compile() -> None:
    module = Counts()
    module.double = torch.compile(module.forward, backend="eager")
    torch.testing.assert_close(compiled(lambda x: module.double(x, 3.0))(X), module.linear(X) * 3.0)


def test_a_module_of_torch_compile() -> None:
    module = Counts()
    inner = torch.compile(module, backend="eager")
    seen: list[str] = []
    module.register_forward_hook(lambda *given: seen.append("hook"))
    torch.testing.assert_close(compiled(lambda x: inner(x) + 1)(X), module.linear(X) * 2.0 + 1)
    assert module.calls == 1
    assert seen == ["hook"]


def test_a_module_compiled_in_place_by_torch_compile() -> None:
    module = Counts()
    function = compiled(lambda x: module(x) + 1)
    torch.testing.assert_close(function(X), module.linear(X) * 2.0 + 1)
    module.compile(backend="eager")
    torch.testing.assert_close(function(X), module.linear(X) * 2.0 + 1)
    assert module.calls == 2


def test_functions_that_torch_compile_leaves_alone_are_left_alone() -> None:
    function = torch.compiler.disable(lambda x: x + 1)
    assert break_id(lambda x: function(x) * 2, (X,)) == "disabled-function"


def wraps_a_compiled_one(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(x: Tensor) -> Tensor:
        result: Tensor = function(x) * 2
        return result

    wrapper.__dict__.update(function.__dict__)
    return wrapper


def test_a_wrapper_with_the_marks_of_what_it_wraps() -> None:
    wrapper = wraps_a_compiled_one(torch.compile(lambda x: x.sin(), backend="eager"))
    torch.testing.assert_close(compiled(lambda x: wrapper(x) + 1)(X), X.sin() * 2 + 1)
