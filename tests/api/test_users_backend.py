"""A function as back end: what it is given is what torch.compile would give it, and what goes wrong in it is told as its own."""

from __future__ import annotations

import gc
import random
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_module_simplified

import armature
from armature.errors import BackendFunctionFailed
from armature.pipeline.session import Outcome, session

X = torch.randn(4, 3)


@pytest.fixture(params=[True, False], ids=["strict", "lenient"], autouse=True)
def either_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing here is a fallback."""
    with armature.config.patch(strict=request.param), warnings.catch_warnings():
        warnings.filterwarnings("error", category=armature.ArmatureWarning)
        yield


class Keeps:
    """A back end that keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[list[Any]] = []

    def __call__(self, module: fx.GraphModule, inputs: list[Any]) -> Any:
        self.given.append(inputs)
        return module.forward


class Labelled(Tensor):
    pass


HELD = torch.ones(3)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a tensor": (lambda x: x + 1, (X,)),
    "a leaf": (lambda x: x + 1, (torch.ones(3, requires_grad=True),)),
    "a parameter": (lambda x: x + 1, (nn.Parameter(torch.ones(3)),)),
    "a subclass": (lambda x: x + 1, (torch.ones(3).as_subclass(Labelled),)),
    "in a list": (lambda xs: xs[0] + xs[1], ([X, X * 2],)),
    "of a closure": (lambda x: x + HELD, (X,)),
    "written to": (lambda x: x.add_(1), (torch.ones(3),)),
    "one twice": (lambda x, y: x + y, (X, X)),
    "a module": (nn.Linear(3, 2), (X,)),
    "a number": (lambda x, n: x * n, (X, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_examples_are_those_of_torch_compile(name: str) -> None:
    fn, args = CASES[name]
    torch.compiler.reset()  # other tests compile layers too, for other sizes
    ours, theirs = Keeps(), Keeps()
    armature.compile(fn, backend=ours)(*args)
    torch.compile(fn, backend=theirs)(*args)
    ((found,), (expected,)) = ours.given, theirs.given
    assert {(id(x), type(x)) for x in found} == {(id(x), type(x)) for x in expected}


def test_numbers_that_change_are_symbols_and_sizes_those_of_the_call() -> None:
    backend = Keeps()
    compiled = armature.compile(lambda x, n: x * n + x.shape[0], backend=backend, dynamic=True)
    compiled(X, 5)
    (given,) = backend.given
    assert sorted(type(value).__name__ for value in given) == ["SymInt", "Tensor"]
    assert next(value for value in given if isinstance(value, Tensor)) is X


def test_what_is_not_there_yet_is_a_tensor_of_the_same_kind() -> None:
    backend = Keeps()
    compiled = armature.compile(lambda x: x * random.random(), backend=backend)
    compiled(X)
    assert [(type(value), value.dim()) for value in backend.given[0]] == [(Tensor, 2), (Tensor, 0)]
    given: list[Any] = []
    array = np.arange(3.0)
    compiled = armature.compile(lambda a: torch.from_numpy(a) * 2, backend=lambda m, i: given.extend(i) or m.forward)
    compiled(array)
    assert [type(value) for value in given] == [Tensor] and given[0].tolist() == [0, 1, 2]


def test_the_graph_can_be_run_on_the_examples() -> None:
    def runs(module: fx.GraphModule, inputs: list[Any]) -> Any:
        found.append(module(*inputs))
        return module.forward

    found: list[Any] = []
    result = armature.compile(lambda x: x.sin() + 1, backend=runs)(X)
    assert torch.equal(found[0][0], result)


@pytest.mark.parametrize("gradient", [False, True])
def test_aotautograd_keeps_sizes_that_change(gradient: bool) -> None:
    """Of the tensors alone it would make the sizes constants, while guards let others through."""
    seen: list[Any] = []

    def compiles(module: fx.GraphModule, inputs: Any) -> Any:
        seen.append(inputs)
        return lambda args: module.forward(*args)

    def boxed(module: fx.GraphModule, inputs: Any) -> Any:
        run = compiles(module, inputs)
        run._boxed_call = True
        return run

    def backend(module: fx.GraphModule, inputs: list[Any]) -> Any:
        return aot_module_simplified(module, inputs, fw_compiler=boxed)

    def function(x: Tensor) -> Tensor:
        return x * x.shape[0] + x.sum().expand(x.shape[0], 1)

    compiled = armature.compile(function, backend=backend)
    for size in (3, 4, 5, 6):
        first, second = (torch.linspace(0, 1, size * 2).view(size, 2).requires_grad_(gradient) for _ in range(2))
        torch.testing.assert_close(compiled(first), function(second))
        if gradient:
            compiled(first).sum().backward()
            function(second).sum().backward()
            torch.testing.assert_close(first.grad, second.grad)
    assert len([c for c in session().compilations if c.function.endswith("function")]) == 2


def raises(module: fx.GraphModule, inputs: list[Any]) -> Any:
    raise KeyError("my own")


def nothing(module: fx.GraphModule, inputs: list[Any]) -> Any:
    return None


WRONG: dict[str, tuple[Any, str]] = {
    "raises": (raises, r"the backend raises raised KeyError: 'my own'"),
    "gives nothing": (nothing, r"returned None of type NoneType, which can't be called"),
    "takes too little": (lambda module: module.forward, r"raised TypeError: .*takes 1 positional argument"),
    "no tuple": (lambda module, inputs: lambda *args: args[0], r"returned a Tensor; the graph returns a tuple of 1"),
    "too many": (lambda module, inputs: lambda *args: (1, 2), r"returned 2 results; the graph returns a tuple of 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_of_a_back_end_names_it_and_the_function(name: str) -> None:
    backend, text = WRONG[name]

    def function(x: Tensor) -> Tensor:
        return x + 1

    compiled = armature.compile(function, backend=backend)
    for _ in range(2):
        with pytest.raises(BackendFunctionFailed, match=text) as caught:
            compiled(X)
        assert str(caught.value).startswith(f"{__file__}:{function.__code__.co_firstlineno}: [A219]")
        assert "What to do: " in str(caught.value)
    if not text.startswith("returned a Tensor") and "results" not in text:
        assert {c.outcome for c in session().compilations} == {Outcome.FAILED}


def test_an_error_carries_what_the_back_end_raised() -> None:
    with pytest.raises(BackendFunctionFailed) as caught:
        armature.compile(lambda x: x + 1, backend=raises)(X)
    cause = caught.value.__cause__
    assert type(cause) is KeyError and cause.args == ("my own",)
    assert traceback.extract_tb(cause.__traceback__)[-1].name == "raises"


def test_the_function_is_compiled_once_the_back_end_works() -> None:
    broken = [True]

    def sometimes(module: fx.GraphModule, inputs: list[Any]) -> Any:
        if broken:
            raise ValueError("not yet")
        return module.forward

    compiled = armature.compile(lambda x: x + 1, backend=sometimes)
    with pytest.raises(BackendFunctionFailed):
        compiled(X)
    broken.clear()
    assert torch.equal(compiled(X), X + 1)
    assert session().totals().graphs == 1


def test_an_error_in_what_a_back_end_made_comes_out_as_it_is() -> None:
    def fails(*args: Any) -> Any:
        raise ZeroDivisionError("mine")

    compiled = armature.compile(lambda x: x + 1, backend=lambda module, inputs: fails)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="mine"):
            compiled(X)


def test_an_error_of_the_program_is_the_programs() -> None:
    def function(x: Tensor, index: Tensor) -> Tensor:
        return x[index] + 1

    compiled = armature.compile(function, backend=lambda module, inputs: lambda *args: module(*args))
    good, bad = torch.tensor([0, 1]), torch.tensor([0, 9])
    assert torch.equal(compiled(X, good), function(X, good))
    with pytest.raises(IndexError, match="out of bounds") as caught:
        compiled(X, bad)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line == "return x[index] + 1"


def test_what_a_back_end_made_is_not_traced() -> None:
    def made(*args: Any) -> Any:
        return (args[0] + 1,)

    compiled = armature.compile(lambda x: x + 1, backend=lambda module, inputs: made)
    for _ in range(2):
        assert torch.equal(compiled(X), X + 1)
    assert [c.function.rpartition(".")[2] for c in session().compilations] == ["<lambda>"]


def test_examples_do_not_outlive_the_call() -> None:
    compiled = armature.compile(lambda x: x + 1, backend=lambda module, inputs: lambda *args: module(*args))
    x = torch.ones(5)
    compiled(x)
    watch = weakref.ref(x)
    del x
    gc.collect()
    assert watch() is None
