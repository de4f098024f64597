"""A kernel that compiler processes compile before they are needed, because Triton's first compilation of a process
imports much of it and reads its whole installation. It uses what most kernels use."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"
# Triton reads annotations as its own

from __future__ import annotations

import triton
import triton.language as tl

from armature_gpu_triton import helpers
from armature_gpu_triton.spec import KernelSpec

CAPABILITY = 80  # that of the kernel; the same code compiles for others
SPEC = KernelSpec("add", ("*bf16", "*fp32"), (0, 1), (("XBLOCK", 64), ("RBLOCK", 16)), (1, 1, 1))


@triton.jit
def add(in0, out0, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    summed = helpers.reduce_sum(helpers.from_bfloat16(tl.load(in0 + x * RBLOCK + r)))
    tl.store(out0 + x, summed)
