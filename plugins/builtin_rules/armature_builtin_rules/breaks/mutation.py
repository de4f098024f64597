"""Breaks at changes that the compiled code could not make again at its end."""

from __future__ import annotations

from armature.plugin_api import BreakType

ROWS = (
    BreakType(
        "unsupported-mutation",
        "Change to an object that tracing cannot replay",
        "{operation} of {type} happens while the function runs, and cannot be put off until the graph has run.",
        ("Return the new value and store it where the function is called.",),
    ),
    BreakType(
        "unsupported-tensor-method",
        "Tensor method that a graph cannot hold",
        "Tensor.{method} changes what the tensor is rather than what it holds, or leaves the graph.",
        ("Call it before or after the compiled function.",),
    ),
)
