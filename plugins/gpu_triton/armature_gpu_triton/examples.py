"""A kernel launch that breaks the graph, and one that does not: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def kernel(function: Callable[..., None]) -> Any:
    return triton.jit(function) if DEVICE == "cuda" else InterpretedFunction(function)


@kernel
def add_one(x: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


@kernel
def add_one_at_address(address: Any, n: Any, BLOCK: tl.constexpr) -> None:
    x = tl.load(address).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def triton_launch_inputs() -> tuple[object, ...]:
    x = torch.linspace(-1, 1, 6, device=DEVICE)
    return x, torch.tensor([x.data_ptr()], device=DEVICE)


def triton_launch(x: Tensor, address: Tensor) -> object:
    add_one_at_address[(1,)](address, x.numel(), BLOCK=8)
    return x * 2


def triton_launch_mended(x: Tensor, address: Tensor) -> object:
    add_one[(1,)](x, x.numel(), BLOCK=8)
    return x * 2
