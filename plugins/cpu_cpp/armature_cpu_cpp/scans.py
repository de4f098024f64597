"""Scans in C++: a running value beside the inner loop, and a prefix within each vector where lanes are inner points."""

from __future__ import annotations

import attrs
import torch

from armature.backend_api import Scan
from armature_cpu_cpp import reduce
from armature_cpu_cpp.vector import cpp_type

SCANS = frozenset(("sum", "prod", "max", "min"))


@attrs.frozen
class Form:
    """C++ of one scan. `dtype`: that of its running value, which eager keeps in double for sums of floats."""

    dtype: torch.dtype
    start: str
    combine: str


def form_of(node: Scan) -> Form:
    """How a scan is computed."""
    exact = node.op in ("sum", "prod") and node.dtype == torch.float32
    held = torch.float64 if exact else node.dtype
    row = reduce.FORMS[node.op]
    return Form(held, row.start(held), row.combine)


def running(name: str) -> str:
    """The name of the running value of the scan called `name`."""
    return f"{name}_so_far"


def declaration(name: str, node: Scan, across: bool) -> str:
    """The running value before the inner loop: one of each lane where lanes are outer points that differ (`across`)."""
    form = form_of(node)
    kind = f"Vec<{cpp_type(form.dtype)}, N>" if across else cpp_type(form.dtype)
    return f"{kind} {running(name)} = {kind}({form.start});"


def step_of(name: str, node: Scan, value: str, lanes: bool) -> str:
    """The scan's next value; `lanes`: of all lanes of the inner loop's vector."""
    form = form_of(node)
    before = running(name)
    value = value if form.dtype == node.dtype else f"cast<{cpp_type(form.dtype)}>({value})"
    if lanes:
        text = f"scan(l, {reduce.function(node.op)}, {before}, {value}, {cpp_type(form.dtype)}({form.start}))"
    else:
        text = f"({before} = {form.combine.format(before, value)})"
    return text if form.dtype == node.dtype else f"cast<{cpp_type(node.dtype)}>({text})"
