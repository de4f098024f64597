"""Finds inputs of a compiled graph that must get no gradient when some of its outputs receive none.

In eager mode an input that only affects unused outputs has an undefined gradient, and optimizers skip it; given zeros
they would apply weight decay and momentum. A backward graph computes zeros for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from armature.torch_abi.eval_frame import skip_code

_ALL = -1
_ADD = torch.ops.aten.add.Tensor
_PROPER_OUTPUTS = ("non_alias", "unsafe_view_alias", "custom_function_view")


def feeds(forward: fx.GraphModule, backward: fx.GraphModule, outputs: Sequence[int]) -> tuple[int, ...]:
    """For each input, the outputs through which a gradient reaches it, as bits: bit k is the k-th of `outputs`.

    These are the outputs computed from it, except those from whose gradient nothing leads to its own: there the program
    cuts the gradient, as `detach` does.
    """
    results: Any = forward.graph.output_node().args[0]
    computed = _outputs_computed_from(forward, {results[position]: 1 << k for k, position in enumerate(outputs)})
    gradients: Any = backward.graph.output_node().args[0]
    led = _tangents_computed_from(backward, len(outputs))
    places = forward.graph.find_nodes(op="placeholder")
    return tuple(
        computed[place] & (led.get(gradient, _ALL) if isinstance(gradient, fx.Node) else 0)
        for place, gradient in zip(places, gradients, strict=True)
    )


def _outputs_computed_from(forward: fx.GraphModule, results: Mapping[fx.Node, int]) -> dict[fx.Node, int]:
    """For each node of the forward graph, the outputs that are computed from it, as bits."""
    reached = {node: results.get(node, 0) for node in forward.graph.nodes}
    for node in reversed(forward.graph.nodes):
        for used in node.all_input_nodes:
            reached[used] |= reached[node]
    return reached


def _tangents_computed_from(backward: fx.GraphModule, tangents: int) -> dict[fx.Node, int]:
    """For each node of the backward graph, the tangents that it is computed from, as bits; all tangents, if one may be
    missing."""
    places = backward.graph.find_nodes(op="placeholder")
    reached = {node: 1 << k for k, node in enumerate(places[len(places) - tangents :])}
    for node in backward.graph.nodes:
        parts = [reached.get(used, 0) for used in node.all_input_nodes]
        for part in parts:
            reached[node] = reached.get(node, 0) | part
        # A derivative that is always zero, like that of `floor`, is a constant and does not show its tangent.
        if node.target is _ADD and any(parts) and not all(parts):
            reached[node] = _ALL
    return {node: found or _ALL for node, found in reached.items()}


def feeds_of_wrapper(
    metadata: Any, forward: fx.GraphModule, backward: fx.GraphModule
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The outputs that receive gradients, and the feeds of the tensor inputs, for AOTAutograd's own function. None if
    nothing has to be undefined, or inputs and outputs are not those of the graph."""
    results: Any = forward.graph.output_node().args[0]
    gradients: Any = backward.graph.output_node().args[0]
    places = forward.graph.find_nodes(op="placeholder")
    outputs = _with_tangents(metadata)
    whole = (
        len(outputs) == len(metadata.traced_tangents)
        and len(places) == len(metadata.input_info) == len(gradients)
        and metadata.num_forward == metadata.num_forward_returns
        and all(isinstance(results[k], fx.Node) for k in outputs)
        and all(type(meta).__name__ == "PlainTensorMeta" for meta in metadata.subclass_fw_graph_out_meta)
        and all(type(meta).__name__ == "PlainTensorMeta" for meta in metadata.subclass_inp_meta)
    )
    if len(outputs) < 2 or not whole:
        return None
    found = feeds(forward, backward, outputs)
    tensors = tuple(fed for fed, place in zip(found, places, strict=True) if isinstance(place.meta.get("val"), Tensor))
    every = (1 << len(outputs)) - 1
    return (outputs, tensors) if any(fed & every != every for fed in tensors) else None


def _with_tangents(metadata: Any) -> tuple[int, ...]:
    """Positions of the outputs for which the backward graph takes a gradient: inputs' values after the call, outputs
    that are not views, and the bases of the views."""
    changed = [metadata.input_info[k] for k in metadata.mutated_inp_runtime_indices]
    # Before torch 2.12 one flag of an output meant both that it requires grad and that backward receives a gradient for
    # it.
    takes = [
        *(info.mutates_data and info.requires_grad for info in changed),
        *(
            info.output_type.name in _PROPER_OUTPUTS
            and issubclass(info.raw_type, Tensor)
            and getattr(info, "requires_grad_for_backward", info.requires_grad)
            for info in metadata.output_info
        ),
        *(True for _ in range(metadata.num_intermediate_bases)),
    ]
    return tuple(k for k, does in enumerate(takes) if does)


def leave_undefined(metadata: Any, outputs: Sequence[int], fed: Sequence[int]) -> None:
    """Make AOTAutograd's function with this metadata return None where eager mode does; it computes zeros. `fed`: per
    tensor input, as bits, those of `outputs` through which a gradient reaches it."""
    made = [each for each in torch.autograd.Function.__subclasses__() if vars(each).get("metadata") is metadata]
    for function in made:
        vars_of: Any = function
        vars_of.forward = staticmethod(_leaving_out_zeros(function.forward, outputs, fed))


def _leaving_out_zeros(forward: Callable[..., Any], outputs: Sequence[int], fed: Sequence[int]) -> Callable[..., Any]:
    """Wrap a forward method: a hook on its node drops gradients that no received gradient reaches."""

    def leave_out(made: Sequence[Tensor | None], came: Sequence[Tensor | None]) -> tuple[Tensor | None, ...] | None:
        missing = [k for k, position in enumerate(outputs) if came[position] is None]
        if not missing or len(made) != len(fed):
            return None
        there = ~sum(1 << k for k in missing)
        return tuple(g if bits & there else None for g, bits in zip(made, fed, strict=True))

    def forward_with_hook(ctx: Any, *args: Any) -> Any:
        results = forward(ctx, *args)
        ctx.register_hook(leave_out)
        return results

    skip_code(leave_out.__code__, below=True)
    skip_code(forward_with_hook.__code__, below=True)
    return forward_with_hook
