"""`while_loop`, `scan` and `map`: nodes of the graph, with a graph for each function that they call.

torch's Python code around the operators is traced into: it checks arguments, flattens nests and moves axes. In eager
mode it compiles itself, so if the graph breaks, the call runs outside of any frame being compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypeGuard

import attrs
import torch
from torch.utils._pytree import tree_leaves

from armature.plugin_api import (
    Call,
    SymbolicNumber,
    TracedTensor,
    Value,
    existing,
    handles,
)
from armature_torch_handlers.programs.bodies import (
    ANY_INT,
    Body,
    Like,
    in_tree,
    needs_gradient,
    trace_body,
    with_common_parameters,
)
from armature_torch_handlers.programs.subgraphs import NotSeparable, call_graphs


@handles(
    *existing(
        "torch._higher_order_ops.while_loop.while_loop",
        "torch._higher_order_ops.scan.scan",
        "torch._higher_order_ops.map.map",
    )
)
def entry(call: Call, *args: Value, **kwargs: Value) -> Value:
    """The public functions: Python code that ends in a call of the operator."""
    return call.tracing.calls.call_whole(call.fn, args, kwargs)


@handles(*existing("torch._higher_order_ops.while_loop.while_loop_op"))
def while_loop(call: Call, cond_fn: Value, body_fn: Value, carried_inputs: Value, additional_inputs: Value) -> Value:
    """Tensors and ints are carried from one iteration to the next."""
    tracer = call.tracing
    carried, more = tracer.unpack(carried_inputs), tracer.unpack(additional_inputs)
    likes = [ANY_INT if is_int(value) else like(call, value) for value in carried]
    test = body_of(call, cond_fn, likes, more, "test", single=True)
    (decision,) = test.results
    if decision.is_constant and decision.as_constant() is False:
        return carried_inputs
    if not is_truth(decision):
        refuse(call, f"a condition that is {decision.describe()}")
    body = body_of(call, body_fn, likes, more, "body")
    check_carries(call, likes, body.results)
    learning = needs_gradient([*carried, *more], [test, body])
    if learning and not all(can_learn(one) for one in likes):
        refuse(call, "ints, or tensors that are not contiguous, carried with gradients")
    made = [None if one is ANY_INT else one.result_like(learning) for one in likes]
    given = tuple(value.as_argument(tracer) for value in carried)
    modules, free = with_common_parameters([test, body])
    found = call_graphs(tracer, call.fn, modules, lambda *graphs: (*graphs, given, tuple(free)), made)
    return in_tree(tracer, found, body.tree)


@handles(*existing("torch._higher_order_ops.scan.scan_op"))
def scan(call: Call, combine_fn: Value, init: Value, xs: Value, additional_inputs: Value) -> Value:
    """Tensors are carried from slice to slice, and other results of the iterations are stacked."""
    tracer = call.tracing
    carried, columns, more = (tracer.unpack(value) for value in (init, xs, additional_inputs))
    length = common_length(call, columns)
    likes = [like(call, value) for value in carried]
    body = body_of(call, combine_fn, [*likes, *(slice_of(call, value) for value in columns)], more, "step")
    count = len(carried)
    shape = in_tree(tracer, body.results, body.tree)
    both = tracer.unpack(shape) if issubclass(shape.python_type(), (tuple, list)) else []
    if len(both) != 2 or len(tracer.unpack(call.polyfill(tree_leaves, both[0]))) != count:
        refuse(call, "a function that does not return the carried values and one more")
    check_carries(call, likes, body.results[:count])
    learning = needs_gradient([*carried, *columns, *more], [body])
    made = [one.result_like(learning) for one in likes]
    made += [stacked(call, value, length, learning) for value in body.results[count:]]
    given = [[value.as_argument(tracer) for value in values] for values in (carried, columns)]
    found = call_graphs(tracer, call.fn, [body.module], lambda graph: (graph, *given, body.free), made)
    return in_tree(tracer, found, body.tree)


@handles(*existing("torch._higher_order_ops.map.map_impl"))
def map_impl(call: Call, f: Value, xs: Value, pos_args: Value) -> Value:
    """The results for slices, stacked."""
    tracer = call.tracing
    columns, more = tracer.unpack(xs), tracer.unpack(pos_args)
    length = common_length(call, columns)
    body = body_of(call, f, [slice_of(call, value) for value in columns], more, "step")
    learning = needs_gradient([*columns, *more], [body])
    made = [stacked(call, value, length, learning) for value in body.results]
    given = [value.as_argument(tracer) for value in columns]
    found = call_graphs(tracer, call.fn, [body.module], lambda graph: (graph, given, list(body.free)), made)
    return in_tree(tracer, found, body.tree)


def body_of(
    call: Call, function: Value, likes: Sequence[Like], more: Sequence[Value], name: str, *, single: bool = False
) -> Body:
    """A function as a separate graph."""
    try:
        return trace_body(call.tracing, function, likes, tuple(more), name=name, single=single)
    except NotSeparable as unfit:
        refuse(call, f"a function that {unfit.reason}")


def like(call: Call, value: Value) -> Like:
    """The kind of a tensor that a function takes, and returns in the same form."""
    if not is_plain(value):
        refuse(call, value.describe())
    found = Like.of(value.fake)
    if not found.dense():
        refuse(call, "a tensor with gaps, or with elements that share memory,")
    return found


def slice_of(call: Call, value: Value) -> Like:
    """The kind of a tensor's slices along its first axis."""
    if not is_plain(value) or not value.fake.dim():
        refuse(call, value.describe())
    with torch.no_grad():
        return attrs.evolve(Like.of(value.fake.select(0, 0)), requires_grad=value.fake.requires_grad)


def common_length(call: Call, columns: Sequence[Value]) -> int | torch.SymInt:
    """The number of slices."""
    sizes: list[int | torch.SymInt] = [value.fake.shape[0] for value in columns if is_plain(value) and value.fake.dim()]
    if len(sizes) != len(columns) or not sizes or not sizes[0] or any(size != sizes[0] for size in sizes):
        refuse(call, "something other than tensors of one length")
    return sizes[0]


def check_carries(call: Call, likes: Sequence[Like], results: Sequence[Value]) -> None:
    """Check that an iteration's results fit the next one."""
    found = [ANY_INT if is_int(value) else like(call, value) for value in results]
    if [one.without_gradient() for one in found] != [one.without_gradient() for one in likes]:
        refuse(call, "a function whose results differ in kind from its arguments")


def stacked(call: Call, value: Value, length: int | torch.SymInt, learning: bool) -> torch.Tensor:
    """A fake of a number of stacked tensors."""
    if not is_plain(value):
        refuse(call, f"a function that gives {value.describe()}")
    fake = value.fake
    return Like.of(torch.empty((length, *fake.shape), dtype=fake.dtype, device=fake.device)).result_like(learning)


def is_plain(value: Value) -> TypeGuard[TracedTensor]:
    """Whether it is a dense tensor of torch's own class."""
    return isinstance(value, TracedTensor) and value.python_type() in PLAIN and value.fake.layout is torch.strided


def is_int(value: Value) -> bool:
    """Whether it is an int, known or not, and not a bool."""
    known = value.is_constant or isinstance(value, SymbolicNumber)
    return known and value.python_type() is int


def is_truth(value: Value) -> bool:
    """Whether it is a bool that is only known at run time."""
    if isinstance(value, TracedTensor):
        return value.dtype is torch.bool and not value.fake.dim()
    return isinstance(value, SymbolicNumber) and value.python_type() is bool


def can_learn(one: Like) -> bool:
    """Whether torch's derivative of the loop carries such a value, and returns it in this form."""
    return one is not ANY_INT and torch.empty(one.shape, device="meta").stride() == one.stride


def refuse(call: Call, what: str) -> NoReturn:
    """Break the graph."""
    call.graph_break("loop-operator", operation=call.fn.__name__, what=what)


PLAIN = (torch.Tensor, torch.nn.Parameter)
