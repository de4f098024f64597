"""Back ends that take the captured graph as it is: to tell a fault of tracing from one of code generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx


def eager(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Run the captured graph operator by operator."""
    return graph.forward
