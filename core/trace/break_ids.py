"""The graph breaks that the tracer raises: id to the facts each gives. The catalogue of texts comes from plugins."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

BREAK_IDS: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "data-dependent-branch": ("test",),
    "data-dependent-value": ("operation",),
    "exception-leaves-frame": ("exception",),
    "explicit-break": ("message",),
    "opaque-subclass": ("type", "reason"),
    "overridden-call": ("function",),
    "operator-failed": ("operation", "message"),
    "skipped-function": ("function", "reason"),
    "tensor-subclass": ("type",),
    "unknown-answer": ("function",),
    "unknown-stride": ("operation",),
    "unsupported-argument": ("type",),
    "unsupported-attribute": ("name", "type"),
    "unsupported-call": ("callable",),
    "unsupported-key": ("type",),
    "unsupported-mutation": ("operation", "type"),
    "unsupported-operation": ("operation", "type"),
    "unsupported-result": ("type",),
    "unsupported-tensor-method": ("method",),
    "untraced-opcode": ("opcode", "reason"),
})  # fmt: skip
