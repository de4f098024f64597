"""Why an operator of a graph is called as it is: a table of the kinds of reason, and the reason of one call."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import torch

from armature.errors import invariant
from armature.graph.facts import Rows

# Each kind in the words of reports. The order is that in which a call's reasons are looked at.
KINDS: Mapping[str, str] = {
    "library": "left to a library by choice",
    "function": "a plugin calls a function in its place",
    "random": "draws random numbers, or prepares them for kernels",
    "values": "the sizes of its result depend on values",
    "foreign": "an operator of another library than ATen",
    "nothing": "there is nothing to compute",
    "device": "the device has no back end",
    "dtype": "the device's kernels have no such dtype",
    "operation": "the device's kernels lack an operation",
    "changing": "a number or size that changes",
    "cost": "a library's kernel is faster here",
    "arguments": "not lowered for these arguments",
    "failed": "its lowering failed, which is a fault of a plugin",
    "number": "a number that the host computes",
    "no-lowering": "no plugin lowers it",
}


@attrs.frozen
class Reason:
    """Why one call is no loop. kind: of KINDS. detail: which dtype, operation, argument or library, if it is known."""

    kind: str
    detail: str = ""

    def __attrs_post_init__(self) -> None:
        invariant(self.kind in KINDS, "no such kind of reason", kind=self.kind)

    @property
    def text(self) -> str:
        """The kind in words, followed by the detail."""
        return f"{KINDS[self.kind]}: {self.detail}" if self.detail else KINDS[self.kind]


class NotSupported(Exception):
    """A lowering can't make loops of these arguments, or the device's back end lacks a feature; the message says what.
    Never leaves the lowering stage. kind: of KINDS."""

    def __init__(self, message: str, kind: str = "arguments") -> None:
        super().__init__(message)
        self.reason = Reason(kind, message)


def reason_for(target: torch._ops.OpOverload, rows: Rows, tried: Reason | None) -> Reason:
    """Why an operator is called as it is. tried: why its last lowering gave no loops; None: it has no lowering."""
    row = rows.get(target)
    if row is not None and row.library:
        return Reason("library", row.library)
    if torch.Tag.nondeterministic_seeded in target.tags:
        return Reason("random")
    if torch.Tag.dynamic_output_shape in target.tags or torch.Tag.data_dependent_output in target.tags:
        return Reason("values")
    if tried is not None:
        return tried
    return Reason("no-lowering") if target.namespace in ("aten", "prims") else Reason("foreign", target.namespace)
