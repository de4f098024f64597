"""Functions of the program as graphs of their own within the graph: the branches of `torch.cond`.

A branch is traced like any call, at the end of the graph; what it put there is then taken out into a graph of its own,
whose inputs are all that it uses from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import attrs
import torch
from torch import fx

from armature.torch_abi.fake import version_of
from armature.trace import graph_calls
from armature.trace.errors import GraphBreak
from armature.trace.places import places_of
from armature.trace.values.base import Args, Value
from armature.trace.values.sequence import ListValue, TupleValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.trace.capture import Tracer


@attrs.frozen(eq=False)
class Branch:
    """The nodes that a function put in the graph, what it gives, and what it uses from outside."""

    nodes: tuple[fx.Node, ...]
    results: tuple[TensorValue, ...]
    result: Value
    outside: tuple[fx.Node, ...]


def choose(tracer: Tracer, pred: Value, functions: tuple[Value, Value], operands: Args) -> Value:
    """A node that calls one of two functions by the truth of a tensor. Breaks the graph where they can't be graphs."""
    condition = pred.as_argument(tracer)
    taken = [trace_branch(tracer, function, operands) for function in functions]
    first, second = taken
    outside = tuple(dict.fromkeys((*first.outside, *second.outside)))
    if not all(isinstance(node.meta.get("example_value"), torch.Tensor) for node in outside):
        _refuse(tracer, "a branch that uses a number that is not known while tracing")
    fakes = tuple(_common(tracer, one, other) for one, other in zip(first.results, second.results, strict=False))
    if len(first.results) != len(second.results) or _shape(first.result) != _shape(second.result):
        _refuse(tracer, "branches that give results of different kinds")
    modules = [_add(tracer, _module(tracer, branch, outside, name)) for branch, name in zip(taken, ("true", "false"))]
    for branch in reversed(taken):
        for node in reversed(branch.nodes):
            tracer.graph.erase_node(node)
    getters = [graph_calls.record(tracer, "get_attr", name, (), {}) for name in modules]
    node = graph_calls.record(tracer, "call_function", torch.ops.higher_order.cond, (condition, *getters, outside), {})
    node.meta["example_value"] = fakes
    items = [graph_calls.item_of(tracer, fake, node, position) for position, fake in enumerate(fakes)]
    if isinstance(first.result, TensorValue):
        return items[0]
    return ListValue(items) if isinstance(first.result, ListValue) else TupleValue(items)


def trace_branch(tracer: Tracer, function: Value, operands: Args) -> Branch:
    """Trace a call, and say which nodes are its own."""
    last = next(iter(reversed(tracer.graph.nodes)), None)
    before, versions = _state(tracer), _versions(tracer)
    result = _call_whole(tracer, function, operands)
    if _state(tracer) != before or _versions(tracer)[: len(versions)] != versions:
        _refuse(tracer, "a branch that changes something outside of it")
    nodes = _after(tracer.graph, last)
    results = tuple(result.items) if isinstance(result, (ListValue, TupleValue)) else (result,)
    own = set(nodes)
    found: list[TensorValue] = []
    for value in results:
        if not isinstance(value, TensorValue) or value.node not in own or value.kind is not None:
            _refuse(tracer, f"a branch that gives {value.describe()} that is not its own")
        found.append(value)
    used = (given for node in nodes for given in node.all_input_nodes if given not in own)
    return Branch(nodes, tuple(found), result, tuple(dict.fromkeys(used)))


def _call_whole(tracer: Tracer, function: Value, operands: Args) -> Value:
    """Trace a call; what breaks in it breaks here."""
    tracer.regions += 1
    try:
        return tracer.call(function, operands, {})
    except GraphBreak as stop:
        stop.places, stop.blame = places_of(tracer.frames), None
        raise
    finally:
        tracer.regions -= 1


def _state(tracer: Tracer) -> tuple[object, ...]:
    """What a branch must leave as it is."""
    return tracer.effects.count, tracer.mutates, torch.is_grad_enabled(), [*tracer.overrides.modes]


def _versions(tracer: Tracer) -> list[int]:
    return [version_of(value.fake) for value in tracer.by_fake.values()]


def _after(graph: fx.Graph, last: fx.Node | None) -> tuple[fx.Node, ...]:
    """The nodes after one, without inputs of the graph."""
    found: list[fx.Node] = []
    for node in reversed(graph.nodes):
        if node is last:
            break
        if node.op != "placeholder":
            found.append(node)
    return tuple(reversed(found))


def _module(tracer: Tracer, branch: Branch, outside: tuple[fx.Node, ...], name: str) -> fx.GraphModule:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in outside:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in branch.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    results = tuple(copies[value.node] for value in branch.results if value.node is not None)
    graph.output(results).meta["example_value"] = tuple(value.fake for value in branch.results)
    return fx.GraphModule(dict(tracer.modules), graph, f"{name}_branch")


def _add(tracer: Tracer, module: fx.GraphModule) -> str:
    """The name under which nodes of the graph refer to one within it."""
    name = f"{type(module).__name__}_{len(tracer.modules)}"
    tracer.modules[name] = module
    return name


def _common(tracer: Tracer, one: TensorValue, other: TensorValue) -> torch.Tensor:
    """A fake of what either gives."""
    facts = [(value.fake.shape, value.fake.stride(), value.dtype, value.device) for value in (one, other)]
    if facts[0] != facts[1]:
        _refuse(tracer, "branches that give tensors of different kinds")
    fake: Any = one.fake if one.fake.requires_grad else other.fake
    made: torch.Tensor = fake.clone()
    return made


def _shape(result: Value) -> str:
    return type(result).__name__


def _refuse(tracer: Tracer, what: str) -> NoReturn:
    tracer.graph_break("control-flow-operator", operation=f"torch.cond, of {what},")
