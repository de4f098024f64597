"""Reductions: how a running tile is initialised, updated with another tile, and reduced to one value per row."""

from __future__ import annotations

import torch

from armature_gpu_triton.ops import HALVES, kind

POSITIONS = frozenset(("argmax", "argmin"))
COMBINE = {"sum": "{0} + {1}", "prod": "{0} * {1}", "any": "{0} | {1}", "all": "{0} & {1}", "xor": "{0} ^ {1}"}
LAST_POSITION = {"tl.int32": 2**31 - 1, "tl.int64": 2**63 - 1}


def held_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a running value is held: float32 for 16-bit floats."""
    return torch.float32 if dtype in HALVES else dtype


def identity(op: str, dtype: torch.dtype) -> str:
    """The neutral element, as a literal."""
    if op in ("sum", "xor"):
        return "0.0" if kind(dtype) == "float" else "0"
    if op in ("any", "all"):
        return str(op == "all")
    if op == "prod":
        return "1.0" if kind(dtype) == "float" else "1"
    largest = op in ("max", "argmax", "logsumexp")
    if kind(dtype) == "float":
        return 'float("-inf")' if largest else 'float("inf")'
    if dtype == torch.bool:
        return str(not largest)
    info = torch.iinfo(dtype)
    return str(info.min if largest else info.max)


def combine(op: str, dtype: torch.dtype, left: str, right: str) -> str:
    """Combine two running values."""
    if op in COMBINE:
        return COMBINE[op].format(left, right)
    if op == "logsumexp":
        return f"helpers.logaddexp({left}, {right})"
    name = "maximum" if op == "max" else "minimum"
    if dtype == torch.bool:
        return f"{left} {'|' if op == 'max' else '&'} {right}"
    return f"{'helpers' if kind(dtype) == 'float' else 'tl'}.{name}({left}, {right})"


def finish(op: str, dtype: torch.dtype, value: str) -> str:
    """The tile's rows reduced to one value each."""
    if dtype == torch.bool:
        op = {"max": "any", "min": "all"}.get(op, op)
    return f"helpers.reduce_{op}({value})"
