"""List operators are the plain operator on each tensor, whatever their tensors' shapes, strides and dtypes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.testing.differential import difference
from armature_aten_lowerings import foreach

aten = torch.ops.aten
SHAPES = ((3, 4), (), (5,), (2, 3, 4))
TARGETS = [row.op for row in foreach.rows()]


def tensors(dtype: torch.dtype) -> list[Tensor]:
    """One tensor per shape, the last one not row-major; values suit every operator's domain."""
    made = [(torch.rand(shape) * 0.8 + 0.1).to(dtype) for shape in SHAPES]
    return [*made[:-1], made[-1].transpose(0, 2).contiguous().transpose(0, 2)]


def argument(formal: torch.Argument, dtype: torch.dtype, name: str) -> object:
    kind = str(formal.type)
    if name in ("mm",):
        return [torch.rand(3, 3, dtype=dtype), torch.rand(3, 3, dtype=dtype)]
    if kind == "List[Tensor]":
        return tensors(dtype)
    if formal.name == "ord":
        return 1
    if kind == "Tensor":
        return torch.tensor(0.75)
    if formal.type.kind() == "ListType":
        return [0.25, 1, 0.5, 2]
    return {"number": 0.75, "bool": False}.get(kind)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_each_is_eagers(target: torch._ops.OpOverload, dtype: torch.dtype) -> None:
    name = target._schema.name.partition("_foreach_")[2]
    given: list[Any] = [argument(formal, dtype, name) for formal in target._schema.arguments if not formal.kwarg_only]
    named = {a.name: argument(a, dtype, name) for a in target._schema.arguments if a.kwarg_only}

    def program(given: list[Any], named: dict[str, Any]) -> Any:
        return target(*given, **named)

    expected, found = program(given, named), armature.compile(program, fullgraph=True)(given, named)
    assert len(found) == len(expected)
    assert difference(list(expected), list(found)) <= (1e-5 if dtype is torch.float32 else 0.02)


@pytest.mark.parametrize("name", [n for n in dir(torch) if n.startswith("_foreach_") and n.endswith("_")])
def test_in_place_writes_the_tensors_of_the_list(name: str) -> None:
    operator = getattr(torch, name)
    schema = next(iter(getattr(aten, name).overloads()))
    formals = getattr(getattr(aten, name), schema)._schema.arguments
    xs = tensors(torch.float32)
    others = [argument(formal, torch.float32, name) for formal in formals[1:] if not formal.kwarg_only]

    def program(xs: list[Tensor], others: list[Any]) -> None:
        operator(xs, *others)

    expected = [x.clone() for x in xs]
    program(expected, others)
    armature.compile(program, fullgraph=True)(xs, others)
    assert difference(expected, xs) <= 1e-5


def test_lists_of_other_lengths_are_refused_as_eager_refuses_them() -> None:
    def program(xs: list[Tensor], ys: list[Tensor]) -> Any:
        return torch._foreach_add(xs, ys)

    xs, ys = tensors(torch.float32), tensors(torch.float32)[:2]
    with pytest.raises(RuntimeError) as expected:
        program(xs, ys)
    with pytest.raises(RuntimeError) as given:
        armature.compile(program)(xs, ys)
    assert str(given.value) == str(expected.value)
