"""Floats of the program that vary, in functional graphs.

A captured graph reads each from an input without axes on the CPU, by `item`. In functional graphs, operators are given
that tensor in place of the number: backward saves an input, and kernels load the number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

import torch
from torch import fx

from armature.frame.sources import CallSource
from armature.torch_abi.fake import DATA_DEPENDENT, NUMBER, tensor_of_number
from armature.torch_abi.recorder import STANDS_FOR_NUMBER
from armature.trace.data import GraphInput

ASKING = frozenset({"add", "sub", "rsub", "lerp"})
WITHOUT_FACTOR = 2  # arguments of a sum without `alpha`
NUMBERS = (torch.NumberType, torch.FloatType)


class Computed(Exception):
    """A functional graph computes with numbers that vary: it runs as captured, operator by operator."""


STAYS_AS_CAPTURED: tuple[type[BaseException], ...] = (Computed, *DATA_DEPENDENT)


def known_numbers(inputs: Iterable[GraphInput], graph: fx.Graph) -> frozenset[str]:
    """The inputs that hold a number of the program: made for the call, so nothing writes to them. Not those of which a
    derivative asks whether they are 1."""
    asked = {given.args[0] for node in graph.nodes if _asks(node) for given in node.all_input_nodes if given.args}
    return frozenset(
        place.name
        for given, place in zip(inputs, graph.find_nodes(op="placeholder"))
        if isinstance(given.source, CallSource) and given.source.fn is tensor_of_number and place not in asked
    )


def _asks(node: fx.Node) -> bool:
    """Whether the derivative of a call compares a number with 1."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    result = node.meta.get("example_value")
    scales = "alpha" in node.kwargs or len(node.args) > WITHOUT_FACTOR or name.startswith("lerp")
    return scales and name.removesuffix("_") in ASKING and isinstance(result, torch.Tensor) and result.requires_grad


def as_tensors(graph: fx.Graph) -> None:
    """Give operators the tensors that numbers are read from. Only inputs that `known_numbers` names are read. Errors:
    Computed."""
    for node in graph.find_nodes(op="call_function", target=NUMBER):
        if isinstance(node.meta.get("val"), torch.SymFloat):
            if not all(isinstance(user.target, torch._ops.OpOverload) for user in node.users):
                raise Computed
            place = cast(fx.Node, node.args[0])
            place.meta[STANDS_FOR_NUMBER] = True
            node.replace_all_uses_with(place)
            graph.erase_node(node)


def reading_numbers(module: fx.GraphModule) -> fx.GraphModule:
    """The graph as operators can run it: they are given numbers where they take no tensors."""
    graph = module.graph
    for node in list(graph.nodes):
        for place in _in_place_of_numbers(node):
            with graph.inserting_before(node):
                read = graph.call_function(NUMBER, (place,))
            node.replace_input_with(place, read)
    module.recompile()
    return module


def _in_place_of_numbers(node: fx.Node) -> Iterator[fx.Node]:
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    for position, formal in enumerate(node.target._schema.arguments):
        given = node.args[position] if position < len(node.args) else node.kwargs.get(formal.name)
        if takes_number(formal):
            items = given if isinstance(given, (list, tuple)) else (given,)
            yield from (item for item in items if isinstance(item, fx.Node) and holds_number(item))


def takes_number(formal: torch.Argument) -> bool:
    """Whether an argument of a schema is a number, or a list of them."""
    kind = formal.type
    while isinstance(kind, (torch.OptionalType, torch.ListType)):
        kind = kind.getElementType()
    return isinstance(kind, NUMBERS)


def holds_number(node: fx.Node) -> bool:
    """Whether a node is an input that operators are given in place of a number: a tensor without axes on the CPU."""
    return STANDS_FOR_NUMBER in node.meta
