"""Graphs with wrapper subclasses for which no functional graph of plain tensors is equivalent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import fx

from armature.torch_abi import wrappers as abi


def loses_wrappers(graph: fx.Graph, writes: bool) -> bool:
    """Whether a functional graph of plain tensors would return something different. writes: whether the graph may write
    to its inputs."""
    places = [(before, after) for before, after in map(_fakes, graph.find_nodes(op="placeholder"))]
    inputs = [after for _, after in places if isinstance(after, torch.Tensor)]
    values = [node.meta.get("example_value") for node in graph.output_node().all_input_nodes]
    results = [value for value in values if isinstance(value, torch.Tensor)]
    if not any(abi.is_wrapper(type(tensor)) for tensor in (*inputs, *results)):
        return False
    made = [value for value in results if abi.is_wrapper(type(value))]
    return (
        any(_is_resized(before, after) for before, after in places)
        or not all(map(abi.survives_rebuilding, made))
        or (writes and _part_is_output(inputs, results))
        or not all(map(abi.takes_strides, _views(inputs, results)))
    )


def _fakes(place: fx.Node) -> tuple[object, object]:
    """An input's fakes before and after the graph; None for an unused parameter."""
    before = place.meta.get("example_value")
    return before, place.meta.get("traced_value", before)


def _views(inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The wrappers among the results that share memory with an input or another result."""
    given = {id(tensor): tensor for tensor in inputs}
    own = {id(value): value for value in results if id(value) not in given}
    held = Counter(memory for tensor in (given | own).values() for memory in set(map(_memory, abi.innermost(tensor))))
    wrappers = (value for value in own.values() if abi.is_wrapper(type(value)))
    return [value for value in wrappers if any(held[_memory(inner)] > 1 for inner in abi.innermost(value))]


def _is_resized(before: object, after: object) -> bool:
    """Whether the graph changes the sizes or strides of a wrapper of the program."""
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor) or not abi.is_wrapper(type(after)):
        return False
    return _form(before) != _form(after)


def _form(tensor: torch.Tensor) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in (*tensor.shape, *tensor.stride())]


def _part_is_output(inputs: Iterable[torch.Tensor], results: Iterable[torch.Tensor]) -> bool:
    """Whether a graph that writes to its inputs returns something that shares memory with an inner tensor of one, but
    not with all of it: functional graphs only track the memory of whole tensors."""
    owners: dict[int, set[int]] = {}
    for tensor in inputs:
        for inner in abi.innermost(tensor):
            owners.setdefault(_memory(inner), set()).add(_memory(tensor))
    return any(
        _memory(inner) in owners and _memory(value) not in owners[_memory(inner)]
        for value in results
        for inner in abi.innermost(value)
    )


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
