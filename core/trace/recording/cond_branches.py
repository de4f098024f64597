"""Functions of the program as graphs of their own within the graph: the branches of `torch.cond`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import attrs
import torch

from armature.trace.frame_state import whole
from armature.trace.recording import graph_calls
from armature.trace.recording.subgraphs import NotApart, Part, Watch, add_module, trace_part
from armature.trace.values.base import Args, Tracing, Value
from armature.trace.values.sequence import ListValue, TupleValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from torch import fx

    from armature.trace.frame_state import Trace


@attrs.frozen(eq=False)
class Branch:
    """What a function put in the graph, and the tensors that it gives."""

    part: Part
    results: tuple[TensorValue, ...]

    def module(self, outside: tuple[fx.Node, ...], name: str) -> fx.GraphModule:
        """The branch as a graph over all that both branches use."""
        return self.part.module(outside, tuple(value.node for value in self.results), f"{name}_branch")


def choose(tracer: Tracing, pred: Value, functions: tuple[Value, Value], operands: Args) -> Value:
    """A node that calls one of two functions by the truth of a tensor. Breaks the graph where they can't be graphs."""
    tracer = whole(tracer)
    condition = pred.as_argument(tracer)
    taken = [trace_branch(tracer, function, operands) for function in functions]
    first, second = taken
    outside = tuple(dict.fromkeys((*first.part.outside, *second.part.outside)))
    if not all(isinstance(node.meta.get("example_value"), torch.Tensor) for node in outside):
        _refuse(tracer, "a branch that uses a number that is not known while tracing")
    fakes = tuple(_common(tracer, one, other) for one, other in zip(first.results, second.results, strict=False))
    result = first.part.result
    if len(first.results) != len(second.results) or _shape(result) != _shape(second.part.result):
        _refuse(tracer, "branches that give results of different kinds")
    modules = [add_module(tracer, branch.module(outside, name)) for branch, name in zip(taken, ("true", "false"))]
    for branch in reversed(taken):
        branch.part.remove()
    getters = [graph_calls.record(tracer, "get_attr", name, (), {}) for name in modules]
    node = graph_calls.record(tracer, "call_function", torch.ops.higher_order.cond, (condition, *getters, outside), {})
    node.meta["example_value"] = fakes
    items = [graph_calls.item_of(tracer, fake, node, position) for position, fake in enumerate(fakes)]
    if isinstance(result, TensorValue):
        return items[0]
    return ListValue(items) if isinstance(result, ListValue) else TupleValue(items)


def trace_branch(tracer: Trace, function: Value, operands: Args) -> Branch:
    """Trace a call, and say which nodes are its own."""
    try:
        with Watch(tracer) as watch:
            part = trace_part(tracer, function, operands, {})
    except NotApart as unfit:
        _refuse(tracer, f"a branch that {unfit.reason}")
    if part.writes or watch.changed():
        _refuse(tracer, "a branch that changes something outside of it")
    result, own = part.result, set(part.nodes)
    found: list[TensorValue] = []
    for value in result.items if isinstance(result, (ListValue, TupleValue)) else (result,):
        if not isinstance(value, TensorValue) or value.node not in own or value.kind is not None:
            _refuse(tracer, f"a branch that gives {value.describe()} that is not its own")
        found.append(value)
    return Branch(part, tuple(found))


def _common(tracer: Trace, one: TensorValue, other: TensorValue) -> torch.Tensor:
    """A fake of what either gives."""
    facts = [(value.fake.shape, value.fake.stride(), value.dtype, value.device) for value in (one, other)]
    if facts[0] != facts[1]:
        _refuse(tracer, "branches that give tensors of different kinds")
    fake: Any = one.fake if one.fake.requires_grad else other.fake
    made: torch.Tensor = fake.clone()
    return made


def _shape(result: Value) -> str:
    return type(result).__name__


def _refuse(tracer: Trace, what: str) -> NoReturn:
    tracer.graph_break("cond-branches", what=what)
