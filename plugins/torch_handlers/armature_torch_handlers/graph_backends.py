"""Back ends that generate no code: they help to distinguish faults of tracing from those of AOTAutograd or lowering."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import fx

from armature.plugin_api import DATA_DEPENDENT, Compilers, compile_functional, min_cut


def eager(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., object]:
    """Run the captured graph operator by operator."""
    return graph.forward


def aot_eager(graph: fx.GraphModule, example_inputs: Sequence[object]) -> Callable[..., object]:
    """Run the functional ATen graphs, forward and backward, operator by operator. If the derivative of an operator asks
    for a number that varies, as that of `x ** number` does, the captured graph runs."""
    try:
        return compile_functional(graph, example_inputs, Compilers(as_it_is, as_it_is, as_it_is, min_cut), {})
    except DATA_DEPENDENT:
        return graph.forward


def as_it_is(graph: fx.GraphModule, inputs: Sequence[object]) -> Callable[[list[object]], object]:
    """The graph, wrapped to be called with a list."""
    return lambda args: graph.forward(*args)
