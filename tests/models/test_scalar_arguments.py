"""Every operator that scales by `alpha` or `beta`, or takes a `value`, with numbers of each kind, against eager mode."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.testing.differential import difference

NAMES = frozenset({"alpha", "beta", "value"})
KINDS = frozenset({"number", "float", "Optional[number]", "Optional[float]", "List[number]"})
NUMBERS: tuple[Any, ...] = (0, 2, False, -1, 0.5, True)
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
SHAPES: tuple[tuple[int, ...], ...] = ((4, 4), (4,), (2, 4, 4), ())
ELSEWHERE = ("cudnn", "miopen", "sparse", "sspaddmm", "_test_", "_pad_enum", "_addmm_activation", "_add_relu")
OTHERS: dict[str, Any] = {"bool": True, "number": 1, "float": 0.5, "List[int]": [1, 1], "str": "add"}
INT = {"reduction": 1, "window_length": 7}
# Each argument that an operator may ignore, for a factor of 0, holds NaN and infinity.
TOLERANCE = 1e-4
IGNORED = (float("nan"), float("inf"))


def operators() -> Iterator[torch._ops.OpOverload]:
    """ATen's operators with such an argument, less those that write: they become these when graphs are made."""
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        scales = any(one.name in NAMES and str(one.type) in KINDS for one in schema.arguments)
        if space != "aten" or not scales or any(word in name for word in ELSEWHERE):
            continue
        if any(one.alias_info is not None and one.alias_info.is_write for one in schema.arguments):
            continue
        op = getattr(getattr(torch.ops.aten, name), schema.overload_name or "default")
        if any(calls(op, torch.float32)):  # others are for CUDA alone
            yield op


def places(shape: tuple[int, ...]) -> Tensor:
    """Numbers from 0 along the last axis, the same along all others."""
    return torch.arange(shape[-1] if shape else 1).expand(shape or (1,)).reshape(shape).clone()


def tensor(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Numbers of both signs, others for each name; what is added to starts with NaN and infinity."""
    if name == "index":
        return places(shape)
    if name == "mask":
        return places(shape) % 2 == 0
    count = torch.Size(shape).numel()
    shift = sum(map(ord, name)) % 7
    numbers = ((torch.arange(count, dtype=torch.float64) + shift) % 11 * 1.25 - 6).reshape(shape)
    if dtype == torch.uint8:
        numbers = numbers.abs()
    made = numbers.to(dtype) if dtype != torch.bool else numbers.long() % 3 == 0
    if dtype.is_floating_point and name == "self":
        made.view(-1)[:2] = torch.tensor(IGNORED, dtype=dtype)[:count]
    return made


def argument(one: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    """Some value for one argument of a schema."""
    kind = str(one.type)
    if kind == "Tensor":
        return tensor(one.name, shape, dtype)
    if kind == "List[Tensor]":
        return [tensor(one.name, shape, dtype), tensor(one.name, shape, dtype)]
    return INT.get(one.name, 0) if kind == "int" else OTHERS[kind]


def required(op: torch._ops.OpOverload, shapes: Iterator[tuple[int, ...]], dtype: torch.dtype) -> dict[str, Any]:
    """What an operator takes besides its numbers, without what has a default."""
    return {
        one.name: argument(one, next(shapes) if "Tensor" in str(one.type) else (), dtype)
        for one in op._schema.arguments
        if not one.has_default_value() and one.name not in NAMES
    }


def calls(op: torch._ops.OpOverload, dtype: torch.dtype) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The first tensors for which eager mode takes the call, and the numbers that it takes with them."""
    if "backward" in op._schema.name and not dtype.is_floating_point:  # their kernels divide by zero: the process ends
        return
    scaling = [one.name for one in op._schema.arguments if one.name in NAMES]
    numbers = NUMBERS if len(scaling) == 1 else NUMBERS[:3]
    for shapes in itertools.product(SHAPES, repeat=str(op._schema).count("Tensor")):
        tensors = required(op, iter(shapes), dtype)
        chosen = [dict(zip(scaling, one, strict=True)) for one in itertools.product(numbers, repeat=len(scaling))]
        if taken := [one for one in chosen if accepted(op, tensors | one)]:
            yield tensors, taken
            return


def accepted(op: torch._ops.OpOverload, arguments: dict[str, Any]) -> bool:
    """Whether eager mode makes the call."""
    try:
        op(**arguments)
    except (RuntimeError, TypeError, NotImplementedError, IndexError):
        return False
    return True


@pytest.mark.parametrize("op", list(operators()), ids=str)
def test_numbers_of_each_kind(op: torch._ops.OpOverload) -> None:
    every = [found for dtype in DTYPES for found in calls(op, dtype)]
    numbers = [chosen for _, chosen in every]

    def program(tensors: list[dict[str, Any]]) -> list[Any]:
        return [op(**given, **one) for given, chosen in zip(tensors, numbers, strict=True) for one in chosen]

    tensors = [given for given, _ in every]
    expected = program(tensors)
    labels = [(next(iter(given.values())), one) for given, chosen in every for one in chosen]
    for backend in ("eager", "auto"):
        armature.reset()
        found = armature.compile(program, backend=backend)(tensors)
        for label, eager, compiled in zip(labels, expected, found, strict=True):
            assert difference(eager, compiled) <= TOLERANCE, (backend, label)


def test_the_sweep_reaches_sums_and_products() -> None:
    found = {op._schema.name for op in operators()}
    assert {"aten::add", "aten::rsub", "aten::addcmul", "aten::baddbmm", "aten::addr", "aten::_foreach_add"} <= found
