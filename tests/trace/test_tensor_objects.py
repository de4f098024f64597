"""What Python asks of a tensor as of any object, and operands that torch or a graph's text reads in its own way."""

# ruff: noqa: UP031 - it is what is tested

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import armature


def run(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        facts = [(one.dtype, one.shape, one.stride(), one.requires_grad, type(one.grad_fn)) for one in (left, right)]
        return facts[0] == facts[1] and torch.equal(left, right)
    return bool(left == right)


def check(program: Callable[..., Any], *args: Any, fullgraph: bool = False) -> None:
    expected = run(program, *args)
    armature.reset()
    compiled = armature.compile(program, backend="eager", fullgraph=fullgraph)
    assert same(expected, run(compiled, *args))


def tensors() -> list[torch.Tensor]:
    return [
        torch.arange(1.0, 7.0).reshape(2, 3),
        torch.arange(1, 7),
        torch.tensor(3.0, requires_grad=True),
        nn.Parameter(torch.ones(2)),
    ]


POWERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "of a negative int": lambda x: (-1) ** x,
    "of a negative float": lambda x: (-1.0) ** x,
    "by pow()": lambda x: pow(-2, x),
    "of a positive int": lambda x: 2**x,
    "of the negated": lambda x: -(1**x),
}


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("program", POWERS.values(), ids=POWERS)
def test_number_to_the_power_of_a_tensor(program: Callable[..., Any], which: int) -> None:
    check(program, tensors()[which], fullgraph=True)


ASKED: dict[str, Callable[[torch.Tensor], Any]] = {
    "%s": lambda x: "%s" % x,
    "%r in a text": lambda x: "a %r %%" % x,
    "%.6s": lambda x: "%.6s|" % x,
    "%d": lambda x: "%d" % x,
    "%s %s": lambda x: "%s %s" % x,
    "__str__": lambda x: x.__str__(),
    "__repr__": lambda x: x.__repr__(),
    "__format__": lambda x: x.__format__(""),
    "__hash__": lambda x: x.__hash__() == id(x),
    "__dir__": lambda x: x.__dir__(),
    "const_data_ptr": lambda x: x.const_data_ptr() == x.data_ptr(),
    "is_set_to": lambda x: (x.is_set_to(x), x.is_set_to(x.clone())),
}


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("program", ASKED.values(), ids=ASKED)
def test_what_only_the_tensor_itself_tells(program: Callable[..., Any], which: int) -> None:
    check(program, tensors()[which])
    check(lambda x: program(x + 1), tensors()[which])


CLASSES: dict[str, Callable[[torch.Tensor], Any]] = {
    "float": lambda x: x.to(float),
    "int": lambda x: x.to(int),
    "a type of torch": lambda x: x.type(torch.IntTensor),
    "dtype": lambda x: torch.zeros(2, dtype=float) + x.sum(),
}


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("program", CLASSES.values(), ids=CLASSES)
def test_class_in_place_of_a_dtype(program: Callable[..., Any], which: int) -> None:
    check(program, tensors()[which])


DTYPES: dict[str, Callable[[torch.Tensor], Any]] = {
    "factory with data of the call": lambda x: torch.tensor([x.shape[0]], dtype=int) + x.sum(),
    "factory": lambda x: torch.arange(3, dtype=float) * x.sum(),
    "complex": lambda x: torch.full((2,), 1.5, dtype=complex) * x.sum(),
    "bool": lambda x: torch.ones_like(x, dtype=bool) | (x > 0),
    "sum": lambda x: x.sum(dtype=float),
    "new": lambda x: x.new_zeros(2, dtype=int),
}


@pytest.mark.parametrize("program", DTYPES.values(), ids=DTYPES)
def test_class_in_place_of_a_dtype_makes_no_break(program: Callable[..., Any]) -> None:
    x = torch.linspace(-1, 1, 6)
    found, expected = armature.compile(program, fullgraph=True)(x), program(x)
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


BOOLS: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "+": lambda x, flag: x + flag,
    "-": lambda x, flag: x - flag,
    "* on the left": lambda x, flag: flag * x,
    "in place": lambda x, flag: x.clone().sub_(flag),
    "compared": lambda x, flag: x == flag,
    "or": lambda x, flag: x | flag,
    "keepdim": lambda x, flag: x.sum(0, keepdim=flag),
}


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("program", BOOLS.values(), ids=BOOLS)
def test_bool_of_numpy_is_no_bool_of_python_to_torch(program: Callable[..., Any], which: int) -> None:
    check(program, tensors()[which], np.bool_(True))
    check(program, tensors()[which], True)


SIZES: dict[str, Callable[[torch.Tensor], Any]] = {
    "no argument": lambda x: x.shape.numel(),
    "an argument": lambda x: x.shape.numel(1),
    "a keyword": lambda x: x.shape.numel(dim=1),
    "by the class": lambda x: torch.Size.numel(x.shape),
    "by the class, with an argument": lambda x: torch.Size.numel(x.shape, 1),
}


@pytest.mark.parametrize("program", SIZES.values(), ids=SIZES)
def test_elements_of_sizes(program: Callable[..., Any]) -> None:
    check(program, torch.ones(2, 3))
