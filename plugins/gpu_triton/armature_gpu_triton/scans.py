"""Scans in Triton: of a whole row at once, or of one tile after the other, with a running value beside the loop."""

from __future__ import annotations

from armature.backend_api import Scan
from armature_gpu_triton import reduce
from armature_gpu_triton.ops import TYPES, cast_text

SCANS = frozenset(("sum", "prod", "logsumexp"))


def running(name: str) -> str:
    """The name of the running value of the scan called `name`."""
    return f"{name}_before"


def declaration(name: str, node: Scan) -> str:
    """The running value before the loop."""
    held = reduce.held_dtype(node.dtype)
    return f"{running(name)} = tl.full([XBLOCK, 1], {reduce.identity(node.op, held)}, {TYPES[held]})"


def of_row(name: str, node: Scan, value: str) -> str:
    """The scan of a tile that holds the whole row."""
    return f"{name} = {cast_text(_along(node.op, value), reduce.held_dtype(node.dtype), node.dtype)}"


def step_of(name: str, node: Scan, value: str) -> tuple[str, str, str]:
    """The scan of one of several tiles: what it adds, its result, and the running value after it."""
    held, before, own = reduce.held_dtype(node.dtype), running(name), f"{name}_new"
    both = reduce.combine(node.op, held, before, _along(node.op, own))
    after = reduce.combine(node.op, held, before, reduce.finish(node.op, held, own))
    return f"{own} = {value}", f"{name} = {cast_text(f'({both})', held, node.dtype)}", f"{before} = {after}"


def _along(op: str, value: str) -> str:
    """The tile's rows, each element combined with all before it."""
    return f"helpers.scan_{op}({value})"
