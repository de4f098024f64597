"""0-d CPU tensors that are passed to GPU kernels, such as an optimizer's bias corrections.

Eager mode reads such a tensor at each launch of an operator. Here all of them that depend on the CPU only are packed
into one tensor, which is copied once, and kernels read them from the copy.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch
from torch import Tensor, fx
from torch.fx.node import Argument

from armature.plugin_api import with_all_inputs

aten = torch.ops.aten


def gather_scalars(module: object, ctx: object) -> object:
    """The pass: GPU operators read 0-d CPU tensors from a copy on the GPU, one copy for each dtype."""
    if not isinstance(module, fx.GraphModule):
        return module
    for (device, dtype), users in needed_scalars(module.graph).items():
        gather(module.graph, users, device, dtype)
    return module


def needed_scalars(graph: fx.Graph) -> dict[tuple[torch.device, torch.dtype], dict[fx.Node, list[fx.Node]]]:
    """Per device and dtype, the CPU scalars that operators there read, each with these operators."""
    on_cpu: set[fx.Node] = set()
    found: dict[tuple[torch.device, torch.dtype], dict[fx.Node, list[fx.Node]]] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if is_on_cpu(value) and (
            node.op == "placeholder" or (on_cpu.issuperset(node.all_input_nodes) and is_pure(node))
        ):
            on_cpu.add(node)
        if not isinstance(value, Tensor) or value.device.type == "cpu" or not is_pure(node):
            continue
        for given in node.all_input_nodes:
            scalar = given.meta.get("val")
            if given in on_cpu and isinstance(scalar, Tensor) and scalar.dim() == 0 and not moves(node):
                found.setdefault((value.device, scalar.dtype), {}).setdefault(given, []).append(node)
    return found


def is_on_cpu(value: object) -> bool:
    """Whether a node's value is one or several CPU tensors, or a number that varies."""
    if isinstance(value, (tuple, list)):
        return all(is_on_cpu(item) for item in value)
    return isinstance(value, (torch.SymFloat, torch.SymInt)) or (
        isinstance(value, Tensor) and value.device.type == "cpu"
    )


def is_pure(node: fx.Node) -> bool:
    """Whether the node is an operator that writes nothing and draws no random numbers, or one of its results, or
    arithmetic of numbers."""
    target = node.target
    if getattr(operator, getattr(target, "__name__", ""), None) is target:
        return True
    return (
        isinstance(target, torch._ops.OpOverload)
        and not target._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in target.tags
    )


def moves(node: fx.Node) -> bool:
    """Whether the node itself copies from one device to another."""
    return node.target is aten._to_copy.default or "device" in node.kwargs


def gather(graph: fx.Graph, users: dict[fx.Node, list[fx.Node]], device: torch.device, dtype: torch.dtype) -> None:
    """Copy the scalars together, and redirect each user to the copy."""
    scalars = list(users)
    last = move_to_front(graph, scalars)
    with graph.inserting_after(last):
        stacked = add_call(graph, scalars[0], aten.stack.default, scalars)
    with graph.inserting_after(stacked):
        copied = add_call(graph, scalars[0], aten._to_copy.default, stacked, device=device, non_blocking=True)
    place = copied
    for number, scalar in enumerate(scalars):
        with graph.inserting_after(place):
            place = add_call(graph, scalar, aten.select.int, copied, 0, number)
        for user in users[scalar]:
            user.replace_input_with(scalar, place)


def move_to_front(graph: fx.Graph, nodes: Iterable[fx.Node]) -> fx.Node:
    """Move the nodes, and their operands, in front of all other operators. Returns the last one."""
    wanted = with_all_inputs(nodes)
    last: fx.Node = [node for node in graph.nodes if node.op == "placeholder"][-1]
    for node in list(graph.nodes):
        if node in wanted and node.op != "placeholder":
            last.append(node)
            last = node
    return last


def add_call(
    graph: fx.Graph, like: fx.Node, target: torch._ops.OpOverload, *args: Argument, **kwargs: Argument
) -> fx.Node:
    """A call attributed to the same line of the program as the node `like`."""
    made = graph.call_function(target, args, kwargs)
    made.meta.update({key: like.meta[key] for key in ("origin", "stack_trace") if key in like.meta})
    given, named = fx.map_arg((args, kwargs), lambda n: n.meta["val"])
    made.meta["val"] = target(*given, **named)
    return made
