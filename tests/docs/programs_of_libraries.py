"""Programs with libraries that need not be installed, by the code of torch.compile's type: what they need, and whether
they are one graph."""

from __future__ import annotations

import importlib.util

import torch

NEEDED = {"GB0216": "triton", "GB0361": "triton", "GB4026": "triton", "GB3383": "pydantic"}

if importlib.util.find_spec("triton"):
    import triton
    import triton.language as tl

    @triton.jit
    def add_one(x, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

    with_heuristics = triton.heuristics({"BLOCK": lambda args: 16})(add_one)

if importlib.util.find_spec("pydantic"):
    import pydantic.dataclasses

    @pydantic.dataclasses.dataclass
    class Checked:
        n: int


class OneGraph:
    """Whatever launches a kernel raises in eager mode too where there is no GPU."""

    @staticmethod
    def gb0361(x):
        y = x.clone()
        with_heuristics[(1,)](y, 6)
        return y


class Broken:
    @staticmethod
    def gb0216(x):
        y = x.clone()
        add_one[1](y, 6, BLOCK=16)
        return y

    @staticmethod
    def gb4026(x):
        triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))
        return x + 1

    @staticmethod
    def gb3383(x):
        return x + Checked(n=3).n
