"""Changes of what a tensor is: its memory (`x.data = y`, `x.set_(y)`), whether and how autograd follows it.

They stand in the graph, among the operators, and are made on the fakes too, which so tell what the tensor is from then
on. A functional graph would lose them: one that begins or ends to collect gradients in a tensor is done between pieces
that are compiled (`graph/pieces.py`), and a graph with one that changes memory runs operator by operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx

from armature.torch_abi.altering import come_to_all, is_leaf, is_parameter, is_view, set_data_
from armature.torch_abi.fake import of_transform
from armature.torch_abi.symbols import expression
from armature.torch_abi.wrappers import is_wrapper
from armature.trace.break_ids import STATE_METHOD, STATE_METHODS
from armature.trace.values.base import Args, Kwargs, Value

if TYPE_CHECKING:
    from armature.trace.values.base import Tracing
    from armature.trace.values.graph_tensor import GraphTensor

AS_CAPTURED = "as_captured"  # in the meta of a node that a functional graph would not have
COLLECTING = frozenset({"requires_grad_", "retain_grad"})  # of what they do, a tensor's memory and history know nothing
APART = "apart"  # in that of one that is done between the pieces of a functional graph
LEAF_VIEW = "leaf_view"  # in that of a view, made without gradients, of a tensor that wants some


def mark_leaf(result: torch.Tensor, node: fx.Node) -> None:
    """Told of a tensor that a node makes: one that collects gradients from its start is of eager mode only, and so is
    a parameter. A view made without gradients, of a tensor that wants some, is only where it leaves the graph."""
    leaf = result.requires_grad and is_leaf(result) and not of_transform(result)
    if leaf and is_view(result):
        node.meta[LEAF_VIEW] = True
    elif leaf or is_parameter(result):
        node.meta[APART] = True


def has_altered(graph: fx.Graph) -> bool:
    """Whether the graph changes where a tensor is, or what made it."""
    return any(AS_CAPTURED in node.meta for node in graph.nodes)


def gives_no_gradient(graph: fx.Graph) -> bool:
    """Whether the graph has results with gradients, and writes through `x.data` to a tensor that wants some and that
    none of them comes to. From a functional graph it would get zeros."""
    places = [node for node in graph.nodes if node.op == "placeholder" and node.meta.get("counts_writes") is False]
    fakes = [place.meta.get("traced_value", place.meta["example_value"]) for place in places]
    learning = [fake for fake in fakes if fake.requires_grad]
    results = [node.meta.get("example_value") for node in graph.output_node().all_input_nodes]
    if not learning or not any(isinstance(result, torch.Tensor) and result.requires_grad for result in results):
        return False
    return not come_to_all(results, learning)


def gives_leaf(graph: fx.Graph) -> bool:
    """Whether a result is a view, made without gradients, of a tensor that wants some: so does the view, in eager mode
    only."""
    return any(LEAF_VIEW in node.meta for node in graph.output_node().all_input_nodes)


def set_attribute(tracer: Tracing, tensor: GraphTensor, name: str, value: Value) -> bool:
    """`tensor.name = value`, where that changes what the tensor is. False: it does not."""
    if name == "data" and value is tensor:
        return True
    if name == "data":
        _set_memory(tracer, tensor, set_data_, value, "setting attribute data")
        return True
    if name == "requires_grad" and value.is_constant and isinstance(value.as_constant(), bool):
        requires_grad_(tracer, tensor, value)
        return True
    return False


def requires_grad_(tracer: Tracing, tensor: GraphTensor, requires_grad: Value | None = None) -> Value:
    """`tensor.requires_grad_(requires_grad)`."""
    wanted = tracer.constant(True) if requires_grad is None else requires_grad
    if not wanted.is_constant or not isinstance(wanted.as_constant(), bool):
        _refuse(tracer, "requires_grad_")
    if wanted.as_constant() is tensor.fake.requires_grad:
        return tensor
    tensor.guard_autograd(tracer)
    if not tensor.fake.is_leaf or tracer.effects.calls:  # a hook may be waiting for the end of the frame
        _refuse(tracer, "requires_grad_")
    return _alter(tracer, tensor, "requires_grad_", (wanted,))


def set_(tracer: Tracing, tensor: GraphTensor, source: Value | None = None) -> Value:
    """`tensor.set_(source)` of another tensor."""
    return _set_memory(tracer, tensor, "set_", source, "Tensor.set_")


def detach_(tracer: Tracing, tensor: GraphTensor) -> Value:
    """`tensor.detach_()`; what made a tensor of the program would be lost for good if the graph then raised."""
    if tensor.real is not None and tensor.fake.requires_grad:
        _refuse(tracer, "detach_")
    return _alter(tracer, tensor, "detach_", ())


def retain_grad(tracer: Tracing, tensor: GraphTensor) -> Value:
    """`tensor.retain_grad()`: nothing, for a leaf."""
    tensor.guard_autograd(tracer)
    if tensor.fake.is_leaf and tensor.fake.requires_grad:
        return tracer.constant(None)
    if tensor.real is not None:
        _refuse(tracer, "retain_grad")
    return _alter(tracer, tensor, "retain_grad", ())


METHODS: Mapping[str, Callable[..., Value]] = {
    "requires_grad_": requires_grad_,
    "set_": set_,
    "detach_": detach_,
    "retain_grad": retain_grad,
}


def method(tracer: Tracing, tensor: GraphTensor, name: str, args: Args, kwargs: Kwargs) -> Value | None:
    """A method that changes what the tensor is; None: that is none of these, or is called in a form not known."""
    known = METHODS.get(name)
    if known is None or len(args) + len(kwargs) > 1 or not kwargs.keys() <= {"requires_grad", "source"}:
        return None
    return known(tracer, tensor, *args, *kwargs.values())


def _set_memory(
    tracer: Tracing, tensor: GraphTensor, fn: Callable[..., Any] | str, source: Value | None, operation: str
) -> Value:
    if source is None or not source.is_tensor or not _is_plain(source):
        tracer.graph_break("sets-data", operation=operation)
    before, given = _facts(tensor.fake), _facts(source.as_fake(tracer))
    symbolic = not (tensor.has_static_shape and source.has_static_shape)  # type: ignore[attr-defined]
    if before != given and (symbolic or "grad" in tensor.written):
        # Sizes of the program are read when the graph has run, and its gradient is set then.
        tracer.graph_break("sets-data-of-other-size", operation=operation)
    return _alter(tracer, tensor, fn, (source,))


def _facts(fake: Any) -> tuple[object, ...]:
    return (
        tuple(expression(size) if isinstance(size, torch.SymInt) else size for size in fake.shape),
        fake.dtype,
        fake.device,
    )


def _is_plain(value: Any) -> bool:
    return value.kind is None and not is_wrapper(type(value.fake)) and not of_transform(value.fake)


def _alter(tracer: Tracing, tensor: GraphTensor, fn: Callable[..., Any] | str, args: Args) -> Value:
    """Put the change in the graph. What the tensor was is set back if the graph raises."""
    if tracer.atomic_depth or tracer.overrides.present or not _is_plain(tensor) or tensor.fake.is_inference():
        _refuse(tracer, fn if isinstance(fn, str) else fn.__name__)
    tensor.as_argument(tracer)
    tracer.mutates = True
    tracer.effects.alter(tensor)
    result = tracer.graph_call(fn, (tensor, *args), {})
    next(iter(reversed(tracer.graph.nodes))).meta[APART if fn in COLLECTING else AS_CAPTURED] = True
    return result


def _refuse(tracer: Tracing, name: str) -> NoReturn:
    tracer.graph_break(STATE_METHODS.get(name, STATE_METHOD), function=f"Tensor.{name}")
