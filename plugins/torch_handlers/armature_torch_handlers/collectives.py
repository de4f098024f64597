"""torch.distributed: process groups as objects known while tracing, and collectives that write in place.

In the graph, such a collective becomes one that returns a new tensor, which is then copied to its target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs
import torch

from armature.plugin_api import (
    Args,
    BoundMethod,
    Call,
    Kwargs,
    ListValue,
    Source,
    TracedTensor,
    Tracing,
    Value,
    ValueType,
    existing,
    functional_collectives,
    handles,
)
from armature_torch_handlers.known_values import KnownValue

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

GROUPS = existing("torch.distributed.ProcessGroup")
FOR_LIFE = frozenset({"rank", "size", "name"})  # methods
SETTABLE = frozenset({"group_name", "group_desc", "bound_device_id"})


def attribute_of(group: object, name: str) -> object:
    """A property of a group."""
    return getattr(group, name)


@attrs.define(eq=False)
class GroupValue(KnownValue):
    """A process group."""

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in FOR_LIFE:
            return BoundMethod(self, name)
        if name in SETTABLE:
            found = getattr(self.obj, name)
            tracer.guards.answers(attribute_of, (self.obj, name), {}, found)
            constant: Value = tracer.constant(found)
            return constant
        return super().get_attribute(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in FOR_LIFE and not args and not kwargs:
            constant: Value = tracer.constant(getattr(self.obj, name)())
            return constant
        return super().call_method(tracer, name, args, kwargs)


def group_of_program(obj: object, source: Source, tracer: Tracing) -> Value:
    """A process group of the program."""
    tracer.guards.same(source, obj)
    return GroupValue(type(obj), obj, source=source)


VALUE_TYPES = tuple(ValueType(kind, group_of_program) for kind in GROUPS)


def refused(why: str) -> None:
    """Break the graph while tracing."""
    raise NotImplementedError(why)


@handles(refused)
def ends_here(call: Call, why: Value) -> Value | None:
    """Break the graph where a polyfill meets an unsupported case."""
    call.graph_break("collective", why=str(why.as_constant()))


@handles(*functional_collectives.TRACED)
def trace_into(call: Call, *args: Value) -> Value:
    """Trace into polyfills, which are Python code that calls operators."""
    return call.polyfill(call.fn, *args)


def demand(call: Call, group: Value | None, async_op: Value | None, *tensors: Value) -> Value:
    """The group. Breaks if a collective that returns a new tensor would not be equivalent."""
    if async_op is not None and not (async_op.is_constant and not async_op.as_constant()):
        call.graph_break("collective-async")
    if not (group is None or isinstance(group, GroupValue) or (group.is_constant and group.as_constant() is None)):
        call.graph_break("collective-group")
    for tensor in tensors:
        if not isinstance(tensor, TracedTensor) or tensor.python_type() is not torch.Tensor:
            call.graph_break("collective-argument", type=tensor.describe())
        demand_plain(call, tensor.fake)
    return call.constant(None) if group is None else group


def demand_plain(call: Call, fake: torch.Tensor) -> None:
    """Break if a tensor has memory or history that its elements don't show."""
    if fake.layout is not torch.strided or fake.is_complex() or not fake.is_contiguous():
        call.graph_break("collective-layout")
    if fake.requires_grad and torch.is_grad_enabled():
        call.graph_break("collective-gradient")


def reduction(call: Call, op: Value | None) -> Value:
    """The name of a reduction."""
    if op is None:
        return call.constant("sum")
    held = op.as_object()
    name = functional_collectives.REDUCTIONS.get(held)
    if name is None:
        call.graph_break("collective-reduction", op=held)
    call.guard(op)
    return call.constant(name)


@handles(*existing("torch.distributed.all_reduce"))
def all_reduce(
    call: Call, tensor: Value, op: Value | None = None, group: Value | None = None, async_op: Value | None = None
) -> Value:
    """`dist.all_reduce(tensor)`."""
    known = demand(call, group, async_op, tensor)
    return call.polyfill(all_reduce_in_place, tensor, reduction(call, op), known)


def all_reduce_in_place(tensor: torch.Tensor, op: str, group: ProcessGroup | None) -> None:
    """Reduce, and write the result to the tensor."""
    group = in_use(group)
    tensor.copy_(functional_collectives.all_reduce(tensor, op, group.group_name))


def in_use(group: ProcessGroup | None) -> ProcessGroup:
    """The group, if its collectives are made immediately."""
    group = functional_collectives.group_or_default(group)
    if functional_collectives.is_coalescing(group):
        refused("collectives of the group are being collected")
    return group


def gathering(kind: str) -> tuple[Callable[..., object], ...]:
    """The implementing function of this kind: torch 2.13 has renamed some, and the older names call it."""
    return existing(f"torch.distributed.{kind}_single") or existing(
        f"torch.distributed.{'all_gather_into' if kind == 'all_gather' else kind}_tensor"
    )


@handles(*gathering("all_gather"))
def all_gather_into(
    call: Call,
    output_tensor: Value,
    input_tensor: Value,
    group: Value | None = None,
    async_op: Value | None = None,
) -> Value:
    """`dist.all_gather_into_tensor(output, input)`."""
    known = demand(call, group, async_op, output_tensor, input_tensor)
    return call.polyfill(all_gather_in_place, output_tensor, input_tensor, known)


def all_gather_in_place(output: torch.Tensor, input: torch.Tensor, group: ProcessGroup | None) -> None:
    """All processes' tensors, concatenated."""
    group = in_use(group)
    whole = input.dim() > 0 and output.shape == (group.size() * input.shape[0], *input.shape[1:])
    if not whole or output.dtype is not input.dtype:
        refused("the output does not have the shape or dtype of the concatenated inputs")
    output.copy_(functional_collectives.all_gather(input, group.size(), group.group_name))


@handles(*existing("torch.distributed.all_gather"))
def all_gather(
    call: Call, tensor_list: Value, tensor: Value, group: Value | None = None, async_op: Value | None = None
) -> Value:
    """`dist.all_gather(outputs, input)`."""
    if not isinstance(tensor_list, ListValue):
        call.graph_break("collective-argument", type=tensor_list.describe())
    known = demand(call, group, async_op, tensor, *call.tracing.unpack(tensor_list))
    return call.polyfill(all_gather_in_list, tensor_list, tensor, known)


def all_gather_in_list(outputs: list[torch.Tensor], input: torch.Tensor, group: ProcessGroup | None) -> None:
    """All processes' tensors, one output for each."""
    group = functional_collectives.group_or_default(group)
    if len(outputs) != group.size() or input.dim() == 0:
        refused("there is not one output for each process, or the tensors have no dimension")
    for output in outputs:
        if output.shape != input.shape or output.dtype is not input.dtype:
            refused("an output does not have the shape or dtype of the input")
    gathered = functional_collectives.all_gather(input, group.size(), group.group_name)
    parts_of_all = gathered.view(group.size(), *input.shape)
    for position, output in enumerate(outputs):
        output.copy_(parts_of_all[position])


@handles(*gathering("reduce_scatter"))
def reduce_scatter(
    call: Call,
    output: Value,
    input: Value,
    op: Value | None = None,
    group: Value | None = None,
    async_op: Value | None = None,
) -> Value:
    """`dist.reduce_scatter_tensor(output, input)`."""
    known = demand(call, group, async_op, output, input)
    return call.polyfill(reduce_scatter_in_place, output, input, reduction(call, op), known)


def reduce_scatter_in_place(output: torch.Tensor, input: torch.Tensor, op: str, group: ProcessGroup | None) -> None:
    """This process's slice of the reduction."""
    group = in_use(group)
    whole = output.dim() > 0 and input.shape == (group.size() * output.shape[0], *output.shape[1:])
    if not whole or output.dtype is not input.dtype:
        refused("the input does not have the shape or dtype of the concatenated outputs")
    output.copy_(functional_collectives.reduce_scatter(input, op, group.size(), group.group_name))


@handles(*existing("torch.distributed.all_to_all_single"))
def all_to_all(
    call: Call,
    output: Value,
    input: Value,
    output_split_sizes: Value | None = None,
    input_split_sizes: Value | None = None,
    group: Value | None = None,
    async_op: Value | None = None,
) -> Value:
    """`dist.all_to_all_single(output, input)`."""
    known = demand(call, group, async_op, output, input)
    none = call.constant(None)
    return call.polyfill(
        all_to_all_in_place, output, input, output_split_sizes or none, input_split_sizes or none, known
    )


def all_to_all_in_place(
    output: torch.Tensor,
    input: torch.Tensor,
    received: Sequence[int] | None,
    sent: Sequence[int] | None,
    group: ProcessGroup | None,
) -> None:
    """A slice from each process."""
    group = functional_collectives.group_or_default(group)
    received, sent = slice_sizes(output, received, group.size()), slice_sizes(input, sent, group.size())
    if output.shape[1:] != input.shape[1:] or output.dtype is not input.dtype:
        refused("output and input differ in more than their first dimension")
    output.copy_(functional_collectives.all_to_all(input, received, sent, group.group_name))


def slice_sizes(tensor: torch.Tensor, sizes: Sequence[int] | None, count: int) -> list[int]:
    """The sizes of a tensor's slices."""
    if tensor.dim() == 0:
        refused("a tensor without dimensions has no parts")
    if not sizes:
        sizes = [tensor.shape[0] // count] * count
    if len(sizes) != count or sum(sizes) != tensor.shape[0]:
        refused("the sizes of the parts are not those of the tensor")
    return list(sizes)
