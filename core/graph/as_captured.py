"""Captured graphs that must run operator by operator, because no functional graph is equivalent to them."""

from __future__ import annotations

import torch
from torch import fx

from armature.graph import inference
from armature.graph.functional import returns_other_dtypes
from armature.graph.in_place import loses_layout
from armature.graph.numbers import known_numbers
from armature.graph.wrapped import loses_wrappers
from armature.torch_abi import altering, symbols
from armature.torch_abi.functions import Functions
from armature.torch_abi.jagged import meets_jagged
from armature.trace.data import GraphInput, TracedFrame
from armature.trace.recording.tensor_state import AS_CAPTURED, LEAF_VIEW


def runs_as_captured(traced: TracedFrame, module: fx.GraphModule, functions: Functions) -> bool:
    """Whether a graph must run operator by operator."""
    return (
        loses_wrappers(module.graph, traced.writes)
        or any(map(_is_zero_tensor, traced.inputs))  # a kernel would read the tensor's memory, but it has none
        or (traced.writes and any(map(_is_negated, traced.inputs)))  # kernels write what memory shall hold
        # Inputs overlap and one is written to: eager refuses some such calls, which a functional graph can't detect.
        or any(guard.overlapping for guard in traced.guards)
        or meets_jagged(module.graph)
        # lowering does not support sizes that are only partly known
        or symbols.depends_on_numbers(module.graph, known_numbers(traced.inputs, module.graph))
        or inference.returns_other_kinds(module)
        or returns_other_dtypes(module)
        or loses_layout(module.graph)
        or only_as_captured(module.graph, functions)
    )


def _is_zero_tensor(given: GraphInput) -> bool:
    real = given.real() if given.real is not None else None
    return isinstance(real, torch.Tensor) and altering.is_zero_tensor(real)


def _is_negated(given: GraphInput) -> bool:
    real = given.real() if given.real is not None else None
    return isinstance(real, torch.Tensor) and real.is_neg()


def only_as_captured(graph: fx.Graph, functions: Functions) -> bool:
    """Whether a compiled graph would compute something different from eager mode.

    The cases: calls under another default dtype, which operators would read at run time; changes of a tensor's state,
    which would be lost or get a gradient of zeros; views made under no_grad, which would require gradients; and calls
    that plugins' rows tell of, such as Python's `sum`, which adds in another order.
    """
    if lacks_gradient_path(graph) or returns_leaf_view(graph):
        return True
    return any(
        AS_CAPTURED in node.meta or hasattr(node.target, "in_default_dtype") or functions.runs_as_captured(node)
        for node in graph.nodes
    )


def lacks_gradient_path(graph: fx.Graph) -> bool:
    """Whether the graph has results with gradients, and writes through `x.data` to a tensor that requires gradients but
    that no result depends on. A functional graph would give it a gradient of zeros."""
    places = [node for node in graph.nodes if node.op == "placeholder" and node.meta.get("counts_writes") is False]
    fakes = [place.meta.get("traced_value", place.meta["example_value"]) for place in places]
    learning = [fake for fake in fakes if fake.requires_grad]
    results = [node.meta.get("example_value") for node in graph.output_node().all_input_nodes]
    if not learning or not any(isinstance(result, torch.Tensor) and result.requires_grad for result in results):
        return False
    return not altering.reach_all(results, learning)


def returns_leaf_view(graph: fx.Graph) -> bool:
    """Whether a result is a view, made under no_grad, of a tensor that requires gradients: in eager mode only, the view
    requires them too."""
    return any(LEAF_VIEW in node.meta for node in graph.output_node().all_input_nodes)
