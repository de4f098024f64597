"""Methods of tensors that are not nodes of the graph: those that the fake tensor answers, those whose result depends on
the elements, and those that change a tensor's state or leave the graph."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

from armature.plugin_api import (
    Args,
    Call,
    ClassValue,
    Kwargs,
    ListValue,
    TracedTensor,
    Tracing,
    Value,
    handles,
    strides_are_known,
    tensor_method,
    tensor_of_class,
)

# Methods that the fake tensor answers.
STATIC_METHODS = frozenset({
    "size", "stride", "dim", "numel", "nelement", "ndimension", "element_size", "is_contiguous",
    "is_floating_point", "is_complex", "is_signed", "get_device", "storage_offset", "__len__", "is_conj", "is_neg",
    "is_inference", "has_names",
})  # fmt: skip
# Methods whose result depends on the elements.
VALUE_METHODS = frozenset({
    "item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__complex__", "__index__", "__array__",
    "data_ptr", "const_data_ptr", "is_set_to", "is_nonzero", "equal", "allclose", "__contains__",
    "__str__", "__repr__", "__format__", "__hash__", "__dir__", "__sizeof__",
})  # fmt: skip
# Methods that change a tensor's state, not its elements, or that leave the graph.
OPAQUE_METHODS = frozenset({
    "requires_grad_", "set_", "resize_", "resize_as_", "detach_", "share_memory_", "pin_memory", "register_hook",
    "backward", "retain_grad", "as_subclass", "storage", "untyped_storage", "apply_", "map_", "map2_",
    "register_post_accumulate_grad_hook", "to_sparse", "__deepcopy__", "__reduce_ex__", "rename_", "rename",
    "swap_tensors", "is_shared", "to_mkldnn", "refine_names", "align_to", "align_as", "unflatten_names",
    "module_load", "__dlpack__", "type_as_",
})  # fmt: skip

# The prefix of `tensor.type()`.
TYPE_PREFIXES = {"cpu": "torch.", "cuda": "torch.cuda."}

# The break types of methods whose result depends on the elements, by name, and the fallback.
NUMBER_METHODS: Mapping[str, str] = MappingProxyType({
    "item": "tensor-item",
    "tolist": "tensor-to-list",
    "numpy": "tensor-to-numpy",
    "__array__": "tensor-to-numpy",
    "data_ptr": "tensor-address",
    "const_data_ptr": "tensor-address",
    "is_set_to": "tensor-address",
    "is_nonzero": "compares-tensors",
    "equal": "compares-tensors",
    "allclose": "compares-tensors",
    "__str__": "text-of-tensor",
    "__repr__": "text-of-tensor",
    "__format__": "text-of-tensor",
    "__hash__": "tensor-method",
    "__dir__": "tensor-method",
    "__sizeof__": "tensor-method",
    "type": "tensor-method",
})  # fmt: skip
NUMBER_METHOD = "number-of-tensor"

# The break types of methods that change a tensor's state or leave the graph, by name, and the fallback.
STATE_METHODS: Mapping[str, str] = MappingProxyType({
    "requires_grad_": "tensor-requires-grad",
    "set_": "tensor-set",
    "resize_": "tensor-resize",
    "resize_as_": "tensor-resize-as",
    "share_memory_": "tensor-share-memory",
    "is_shared": "tensor-share-memory",
    "register_hook": "tensor-hook",
    "register_post_accumulate_grad_hook": "tensor-hook",
    "backward": "tensor-backward",
    "retain_grad": "tensor-retain-grad",
    "detach_": "tensor-detach",
    "storage": "tensor-storage",
    "untyped_storage": "tensor-storage",
    "apply_": "tensor-apply",
    "map_": "tensor-apply",
    "map2_": "tensor-apply",
    "to_sparse": "makes-sparse",
    "to_mkldnn": "makes-other-layout",
    "rename": "named-tensor",
    "rename_": "named-tensor",
    "refine_names": "named-tensor",
    "align_to": "named-tensor",
    "align_as": "named-tensor",
    "unflatten_names": "named-tensor",
    "__reduce_ex__": "pickles",
    "__dlpack__": "exports-memory",
    "pin_memory": "pins-memory",
})  # fmt: skip
STATE_METHOD = "tensor-method"


@handles(tensor_method)
def method_of_tensor(call: Call, self: Value, /, *args: Value, **kwargs: Value) -> Value | None:
    """The result of a method without a handler of its own; None: a node of the graph."""
    name, tracer = call.fn.__name__, call.tracing
    if not isinstance(self, TracedTensor):
        return None
    if name in STATIC_METHODS:
        return known_without_numbers(call, self, name, args, kwargs)
    if name == "type" and not args and not kwargs and self.device.type in TYPE_PREFIXES:
        text = torch.empty(0, dtype=self.dtype, device="meta").type().rpartition(".")[2]
        return call.constant(TYPE_PREFIXES[self.device.type] + text)
    if name == "type" and args and isinstance(args[0], ClassValue) and type(args[0].cls) is type(torch.FloatTensor):
        return tracer.graph.call("type", (self, call.constant(name_of(args[0].cls)), *args[1:]), kwargs)
    if name in ("item", "tolist") and tracer.config.capture_scalar_outputs:
        return item_of(tracer, self) if name == "item" else items_of(tracer, self)
    if name in VALUE_METHODS or (name == "type" and not args):
        tracer.graph_break(NUMBER_METHODS.get(name, NUMBER_METHOD), function=f"Tensor.{name}")
    if name == "as_subclass" and len(args) == 1 and isinstance(args[0], ClassValue) and not kwargs:
        return tensor_of_class(tracer, self, args[0].cls)
    if name in OPAQUE_METHODS:
        tracer.graph_break(STATE_METHODS.get(name, STATE_METHOD), function=f"Tensor.{name}")
    return None


def name_of(kind: type) -> str:
    """The name by which torch takes one of its old types, such as `torch.DoubleTensor`, which a node can't refer to."""
    return f"{kind.__module__}.{kind.__name__}"


def item_of(tracer: Tracing, tensor: TracedTensor) -> Value:
    """`.item()`: a number computed by the graph."""
    return tracer.graph.call("item", (tensor,), {})


def items_of(tracer: Tracing, tensor: TracedTensor) -> Value:
    """`.tolist()`, with each number computed by the graph."""
    if not tensor.fake.shape:
        return item_of(tracer, tensor)
    return ListValue([items_of(tracer, row) for row in tensor.stream(tracer) if isinstance(row, TracedTensor)])


def known_without_numbers(call: Call, tensor: TracedTensor, name: str, args: Args, kwargs: Kwargs) -> Value:
    """The fake tensor's answer."""
    tracer = call.tracing
    if name == "storage_offset":
        guard_offsets(tracer, tensor)
    plain = [arg.as_constant() for arg in args]
    named = {key: arg.as_constant() for key, arg in kwargs.items()}
    if name == "stride" and not stride_is_known(tracer, tensor, [*plain, *named.values()]):
        tracer.graph_break("unknown-stride", operation="Tensor.stride")
    try:
        return tracer.as_value(getattr(tensor.fake, name)(*plain, **named))
    except (IndexError, TypeError, ValueError) as error:
        tracer.raise_real(error)


def stride_is_known(tracer: Tracing, tensor: TracedTensor, asked: list[object]) -> bool:
    """Whether the fake knows the strides: for dimensions of size 1, some operators on fakes choose others than real
    kernels. `asked`: the dimension, if there is one."""
    shape = tensor.fake.shape
    axes = [int(axis) for axis in asked if isinstance(axis, int) and -len(shape) <= axis < len(shape)]
    if all(shape[axis] != 1 for axis in axes or range(len(shape))) or tensor.real is not None:
        return True
    if strides_are_known(tensor.fake):
        return True
    memory = tensor.fake.untyped_storage()._cdata
    inputs = [value for value in tracer.objects.by_fake.values() if value.real is not None]
    return any(value.fake.untyped_storage()._cdata == memory for value in inputs)


def guard_offsets(tracer: Tracing, value: TracedTensor) -> None:
    """Guard a tensor's offset in its storage: for a view, the offsets of the inputs that it may be a view of."""
    storage = value.fake.untyped_storage()._cdata
    for known in tracer.objects.by_fake.values():
        if known.source is None or known.real is None:
            continue
        if known.fake.untyped_storage()._cdata == storage:
            tracer.guards.offset(known.source, int(known.real.storage_offset()))
