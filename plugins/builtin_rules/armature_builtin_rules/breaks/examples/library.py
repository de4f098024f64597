"""Modules of the standard library: random numbers, patterns, copies, bytes, results that are kept."""

from __future__ import annotations

import collections
import copy
import functools
import random
import re
import sys
from typing import Any

import torch
from torch import Tensor

import armature


def seed_from_system(x: Tensor) -> object:
    return x + 0 * random.Random().random()


def seed_from_system_mended(x: Tensor) -> object:
    return x + 0 * random.Random(1).random()


class Deck:
    """A sequence of the program."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, at: int) -> int:
        return at


@armature.allow_in_graph
def opaque(x: Tensor) -> Tensor:
    return x + 1


def random_after_own_code(x: Tensor) -> object:
    y = opaque(x)
    return y + 0 * random.random()


def random_after_own_code_mended(x: Tensor) -> object:
    return opaque(x + 0 * random.random())


def pattern_argument(x: Tensor) -> object:
    return x + len(re.sub("a", "b", f"{x.sum()}")) * 0


def pattern_argument_mended(x: Tensor) -> object:
    return x + len(re.sub("a", "b", "abc")) * 0


LOCAL = re.compile(rb"a", re.LOCALE)


def pattern_of_locale(x: Tensor) -> object:
    return x + len(LOCAL.sub(b"b", b"abc"))


PLAIN = re.compile(rb"a")


def pattern_of_locale_mended(x: Tensor) -> object:
    return x + len(PLAIN.sub(b"b", b"abc"))


def match_in_changing_text(x: Tensor, found: Any) -> object:
    return x + found.start()


def match_in_changing_text_inputs() -> tuple[object, ...]:
    return torch.ones(3), re.search(b"b", bytearray(b"abc"))


def match_in_changing_text_mended(x: Tensor, found: Any) -> object:
    return x + 1


class Handle:
    """An object that defines how it is copied."""

    def __reduce__(self) -> Any:
        return Handle, ()


HANDLE = Handle()


def copies_object(x: Tensor) -> object:
    return x + (copy.deepcopy(HANDLE) is HANDLE)


def copies_object_mended(x: Tensor) -> object:
    return x + (copy.deepcopy([1]) is HANDLE)  # type: ignore[comparison-overlap]


def deep_copies_tensor(x: Tensor) -> object:
    return copy.deepcopy(x[0]) + 1


def deep_copies_tensor_mended(x: Tensor) -> object:
    return x[0].clone() + 1


COUNTS = {"calls": 0}


@functools.lru_cache
def counted(n: int) -> int:
    COUNTS["calls"] += 1
    return n + 1


@functools.lru_cache
def increased(n: int) -> int:
    return n + 1


def cached_function(x: Tensor) -> object:
    return x + counted(2)


def cached_function_mended(x: Tensor) -> object:
    return x + increased(2)


def changes_bytearray(x: Tensor, data: bytearray) -> object:
    data[0] = 1
    return x + len(data)


def a_bytearray() -> tuple[object, ...]:
    return torch.ones(3), bytearray(b"abc")


changes_bytearray_inputs = a_bytearray


def changes_bytearray_mended(x: Tensor, data: bytearray) -> object:
    return x + len(data)


def bytes_after_change(x: Tensor, data: bytearray) -> object:
    x.add_(1)
    return x + data[0]


bytes_after_change_inputs = a_bytearray


def bytes_after_change_mended(x: Tensor, data: bytearray) -> object:
    first = data[0]
    x.add_(1)
    return x + first


def buffer_as_argument(x: Tensor, data: bytearray) -> object:
    return torch.tensor(data) + x.sum()


buffer_as_argument_inputs = a_bytearray


def buffer_as_argument_mended(x: Tensor, data: bytearray) -> object:
    return torch.tensor(list(data)) + x.sum()


def buffer_operator(x: Tensor, data: bytearray) -> object:
    try:
        return x + len(data + 1)  # type: ignore[operator]
    except TypeError:
        return x + 1


buffer_operator_inputs = a_bytearray


def buffer_operator_mended(x: Tensor, data: bytearray) -> object:
    return x + len(data + b"1")


def buffer_resize(x: Tensor) -> object:
    data = bytearray(b"abc")
    view = memoryview(data)
    try:
        data.append(1)
    except BufferError:
        return x + len(view)
    return x


def buffer_resize_mended(x: Tensor) -> object:
    data = bytearray(b"abc")
    data.append(1)
    return x + len(data) - 1


def memoryview_of_changing(x: Tensor, view: memoryview) -> object:
    return x + view[0]


def memoryview_of_changing_inputs() -> tuple[object, ...]:
    return torch.ones(3), memoryview(bytearray(b"abc"))


def memoryview_of_changing_mended(x: Tensor, view: memoryview) -> object:
    return x + 97


def random_state_unknown(x: Tensor) -> object:
    return x + len(random.choice(["a", "b"]))


def random_state_unknown_mended(x: Tensor) -> object:
    chosen = random.Random(1).choice(["a", "b"])
    return x + len(chosen)


def random_call_fails(x: Tensor) -> object:
    try:
        return x + random.randrange(0, random.randint(0, 0))
    except ValueError:
        return x + 1


def random_call_fails_mended(x: Tensor) -> object:
    return x + random.randrange(0, 5) * 0


def random_choice_from(x: Tensor) -> object:
    chosen = random.Random(0).choices(collections.deque([1, 2]), k=1)
    return x + chosen[0]


def random_choice_from_mended(x: Tensor) -> object:
    chosen = random.Random(0).choices([1, 2], k=1)
    return x + chosen[0]


def exception_of_caller(x: Tensor) -> object:
    return x + (sys.exception() is None)


def exception_of_caller_called(fn: Any, x: Tensor) -> object:
    try:
        raise ValueError("the step failed")
    except ValueError:
        return fn(x)


def exception_of_caller_mended(x: Tensor, error: Exception | None) -> object:
    return x + (error is None)


def exception_of_caller_mended_called(fn: Any, x: Tensor) -> object:
    try:
        raise ValueError("the step failed")
    except ValueError as error:
        return fn(x, error)
