"""Branches, exceptions, generators and contexts."""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor


def data_dependent_branch(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x + 1
    return x - 1


def data_dependent_branch_mended(x: Tensor) -> Tensor:
    return torch.where(x.sum() > 0, x + 1, x - 1)


def branch_on_unknown_size(x: Tensor) -> Tensor:
    found = x[x > 0]
    if found.shape[0] > 2:
        return found.sum()
    return x.sum()


def branch_on_unknown_size_mended(x: Tensor) -> Tensor:
    positive = x > 0
    return torch.where(positive.sum() > 2, (x * positive).sum(), x.sum())


branch_on_unknown_size_settings = MappingProxyType({"capture_dynamic_output_shape_ops": True})


def branch_on_random_number(x: Tensor) -> Tensor:
    return x * 2 if random.random() < 2 else x


def branch_on_random_number_mended(x: Tensor) -> Tensor:
    return torch.where(torch.rand(()) < 2, x * 2, x)


def exception_leaves_frame(x: Tensor) -> Tensor:
    if x.dim() < 5:
        raise ValueError(f"expected 5 dimensions, got {x.dim()}")
    return x + 1


def exception_leaves_frame_mended(x: Tensor) -> Tensor:
    return x + 1 if x.dim() >= 5 else x - 1


def raises_no_exception(x: Tensor) -> Tensor:
    if x.dim() < 5:
        raise "too few dimensions"  # type: ignore[misc]
    return x + 1


def raises_no_exception_mended(x: Tensor) -> Tensor:
    try:
        raise ValueError("too few dimensions")
    except ValueError:
        return x + 1


def countdown(x: Tensor, n: int) -> Tensor:
    return x if n == 0 else countdown(x + 1, n - 1)


def recursion_depth(x: Tensor) -> Tensor:
    return countdown(x, 300)


def recursion_depth_mended(x: Tensor) -> Tensor:
    for _ in range(300):
        x = x + 1
    return x


async def doubled(x: Tensor) -> Tensor:
    return x * 2


def coroutine(x: Tensor) -> Tensor:
    running = doubled(x)
    try:
        running.send(None)
    except StopIteration as done:
        return done.value + 1  # type: ignore[no-any-return]
    return x


def coroutine_mended(x: Tensor) -> Tensor:
    return x * 2 + 1


def rows_until_closed(x: Tensor, log: list[str]) -> Iterator[Tensor]:
    try:
        yield from x
    finally:
        log.append("closed")


def generator_left_unfinished(x: Tensor) -> object:
    log: list[str] = []
    first = next(rows_until_closed(x, log))
    return first, log


def generator_left_unfinished_mended(x: Tensor) -> object:
    log: list[str] = []
    first = list(rows_until_closed(x, log))[0]
    return first, log


def context_left_open(x: Tensor) -> Tensor:
    autocast = torch.autocast("cpu", dtype=torch.bfloat16)
    autocast.__enter__()
    y = x @ x.T
    return y


def context_left_open_mended(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.T


def exit_without_enter(x: Tensor) -> Tensor:
    autocast = torch.autocast("cpu", dtype=torch.bfloat16)
    try:
        autocast.__exit__(None, None, None)
    except AttributeError:
        return x + 1
    return x


def exit_without_enter_mended(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pass
    return x + 1


def value_not_known(x: Tensor) -> object:
    return x + 1, getattr(Rows(x), str(x.sum()), 1)


def value_not_known_mended(x: Tensor) -> object:
    return x + 1, getattr(Rows(x), "missing", 1)


def looks_at_frames(x: Tensor) -> object:
    return x + 1, caller()


def caller() -> str:
    return sys._getframe(1).f_code.co_name


def looks_at_frames_mended(x: Tensor) -> object:
    return x + 1, "looks_at_frames_mended"


def iterate_rows(x: Tensor) -> Iterator[Tensor]:
    yield from Rows(x)


class Rows:
    """An iterator that takes what is sent to it."""

    def __init__(self, x: Tensor) -> None:
        self.left = list(x)

    def __iter__(self) -> Rows:
        return self

    def __next__(self) -> Tensor:
        if not self.left:
            raise StopIteration
        return self.left.pop()  # type: ignore[no-any-return]

    def send(self, value: Any) -> Tensor:
        return self.left.pop() * value  # type: ignore[no-any-return]


def yield_from_object(x: Tensor) -> object:
    return list(iterate_rows(x))


def yield_from_object_mended(x: Tensor) -> object:
    return list(Rows(x))


def echo(x: Tensor) -> Iterator[Tensor]:
    yield from [x, x + 1]


def send_to_iterator(x: Tensor) -> object:
    rows: Any = echo(x)
    next(rows)
    try:
        return rows.send(2)
    except AttributeError:
        return x - 1


def send_to_iterator_mended(x: Tensor) -> object:
    rows: Any = echo(x)
    next(rows)
    return rows.send(None)


FORMULA = types.FunctionType(compile("size + 1", "formula", "eval"), {"size": 2})
NAMES = {"size": 2}


def _formula() -> int:
    return NAMES["size"] + 1


def untraced_opcode(x: Tensor) -> object:
    return x + FORMULA()


def untraced_opcode_mended(x: Tensor) -> object:
    return x + _formula()
