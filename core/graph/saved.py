"""Changes what the partitioner passes from the forward graph to the backward graph: inputs themselves in place of views
of them and of numbers read from them, no sums of what is passed anyway, and also sizes that only occur within
expressions.

A view made by the compiled graph would have to be recreated over its input before autograd can save it and detect later
writes to the input. In the backward graph the same view costs nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import fx

from armature.torch_abi import symbols
from armature.torch_abi.fake import NUMBER

aten = torch.ops.aten
Graphs = tuple[fx.GraphModule, fx.GraphModule]
SUMS = frozenset((aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.neg.default))
"""What takes less time to compute from values in memory than to write there and read."""
RESHAPES = frozenset(
    (aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.unsqueeze.default, aten.squeeze.dim)
)


def save_no_sums_of_saved(forward: fx.GraphModule, backward: fx.GraphModule, outputs: int) -> Graphs:
    """Change both graphs in place: backward computes sums and products of saved tensors itself.

    The partitioner saves them where forward reads an operand as a matrix first: else it would have to keep the operand
    for them, which it does not know to be saved for the matrix. `outputs`: see `save_inputs_of_views`.
    """
    returned = forward.graph.output_node()
    results = list(cast(Sequence[Any], returned.args[0]))
    named = {place.name: place for place in backward.graph.find_nodes(op="placeholder")}
    places = {node: named[node.name] for node in results[outputs:] if isinstance(node, fx.Node) and node.name in named}
    line = {node: number for number, node in enumerate(backward.graph.nodes)}
    for saved in [node for node in forward.graph.nodes if node in places]:
        if not _is_sum(saved) or saved in results[:outputs]:
            continue
        sources = [_same_elements(operand, places) for operand in saved.all_input_nodes]
        read = [places[source] for source in sources if source is not None]
        place = places[saved]
        if len(read) < len(sources) or not place.users or _bytes_kept_longer(read, place, line) > _bytes(place):
            continue
        first = min(place.users, key=line.__getitem__)
        with backward.graph.inserting_before(first):
            given = {n: _shaped(held, n) for n, held in zip(saved.all_input_nodes, read, strict=True)}
            made = backward.graph.node_copy(saved, given.__getitem__)
        line.update(dict.fromkeys((made, *given.values()), line[first]))
        place.replace_all_uses_with(made)
        backward.graph.erase_node(place)
        del places[saved]
        results[outputs:] = [node for node in results[outputs:] if node is not saved]
    returned.args = (tuple(results),)
    for module in (forward, backward):
        module.recompile()
    return forward, backward


def _is_sum(node: fx.Node) -> bool:
    """Whether a node is a sum or product of tensors of known sizes that nobody asked to be saved."""
    return node.target in SUMS and "recompute" not in node.meta and _has_numbers(node)


def _same_elements(node: fx.Node, places: Container[fx.Node]) -> fx.Node | None:
    """A saved tensor with the elements of a node in their order: itself, or another shape of it."""
    if node in places:
        return node
    shaped = [user for user in node.users if user in places and user.target in RESHAPES]
    dense = [n for n in (node, *shaped) if _has_numbers(n) and n.meta["val"].is_contiguous()]
    return dense[1] if len(dense) > 1 and dense[0] is node else None


def _shaped(held: fx.Node, like: fx.Node) -> fx.Node:
    """The tensor with the sizes of a node of the forward graph."""
    shape = like.meta["val"].shape
    if held.meta["val"].shape == shape:
        return held
    made = held.graph.call_function(aten.view.default, (held, list(shape)))
    made.meta.update(like.meta)
    return made


def _bytes_kept_longer(read: Iterable[fx.Node], place: fx.Node, line: Mapping[fx.Node, int]) -> int:
    """Bytes of the tensors that are in memory longer if the users of another read them instead."""
    until = max(line[user] for user in place.users)
    return sum(_bytes(n) for n in dict.fromkeys(read) if max((line[user] for user in n.users), default=0) < until)


def _bytes(node: fx.Node) -> int:
    return int(node.meta["val"].nbytes)


def _has_numbers(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and all(type(n) is int for n in (*value.shape, *value.stride()))


def save_inputs_of_views(forward: fx.GraphModule, backward: fx.GraphModule, outputs: int) -> Graphs:
    """Change both graphs in place. `outputs`: the number of the forward graph's results that precede the saved
    tensors."""
    returned = forward.graph.output_node()
    results = list(cast(Sequence[Any], returned.args[0]))
    if any(_is_written(node) for node in forward.graph.find_nodes(op="placeholder")):
        return forward, backward
    # The partitioner uses the same names in both graphs, but orders sizes differently.
    named = {place.name: place for place in backward.graph.find_nodes(op="placeholder")}
    places = {node: named[node.name] for node in results[outputs:] if isinstance(node, fx.Node) and node.name in named}
    first = next(node for node in backward.graph.nodes if node.op != "placeholder")
    for saved, place in list(places.items()):
        chain = _views(saved)
        if not chain:
            continue
        source = chain[0].all_input_nodes[0]
        results[outputs:] = _replaced(results[outputs:], saved, source, drop=source in places)
        if source not in places:
            with backward.graph.inserting_before(place):
                places[source] = backward.graph.placeholder(source.name)
            places[source].meta = dict(source.meta)
        place.replace_all_uses_with(_copied(chain, {source: places[source]}, backward.graph, first))
        backward.graph.erase_node(place)
    returned.args = (tuple(results),)
    forward.graph.eliminate_dead_code()
    for module in (forward, backward):
        module.recompile()
    return forward, backward


def save_inputs_of_numbers(forward: fx.GraphModule, backward: fx.GraphModule, outputs: int) -> Graphs:
    """Change both graphs in place: pass the input that a number is read from in place of the number. `outputs`: see
    `save_inputs_of_views`."""
    returned = forward.graph.output_node()
    results = list(cast(Sequence[Any], returned.args[0]))
    kept = results[outputs:]
    numbers = [node for node in kept if isinstance(node, fx.Node) and _is_read(node)]
    if not numbers:
        return forward, backward
    named = {place.name: place for place in backward.graph.find_nodes(op="placeholder")}
    tensors = [node for node in kept if isinstance(node.meta.get("val"), torch.Tensor)]
    last = [*backward.graph.find_nodes(op="placeholder")][len(kept) - 1]  # tensors follow numbers there
    first = next(node for node in backward.graph.nodes if node.op != "placeholder")
    for number in numbers:
        source, place = number.all_input_nodes[0], named[number.name]
        if source not in tensors:
            with backward.graph.inserting_after(last):
                named[source.name] = last = backward.graph.placeholder(source.name)
            last.meta = dict(source.meta)
            tensors.append(source)
        with backward.graph.inserting_before(first):
            read = backward.graph.node_copy(number, lambda node: named[node.name])
        place.replace_all_uses_with(read)
        backward.graph.erase_node(place)
    others = [node for node in kept if node not in tensors and node not in numbers]
    returned.args = ((*results[:outputs], *tensors, *others),)
    forward.graph.eliminate_dead_code()
    for module in (forward, backward):
        module.recompile()
    return forward, backward


def _is_read(node: fx.Node) -> bool:
    """Whether a node is a float that is read from an input."""
    return node.target is NUMBER and isinstance(node.meta["val"], torch.SymFloat) and _is_input(node.args[0])


def _is_input(node: object) -> bool:
    return isinstance(node, fx.Node) and node.op == "placeholder"


def save_sizes(forward: fx.GraphModule, backward: fx.GraphModule) -> Graphs:
    """Pass the backward graph each symbol that it needs and that no size of its arguments determines.

    The partitioner may save only results such as `n - (n + 1) // 2`, from which `n` can't be computed. Strides of saved
    tensors may differ from their fakes' along axes of size 1.
    """
    places = backward.graph.find_nodes(op="placeholder")
    given = {str(symbol) for place in places for symbol in _single_symbols(place.meta.get("val"))}
    wanted = {
        str(symbol)
        for node in backward.graph.nodes
        for number in _numbers(node.meta.get("val"))
        for symbol in symbols.symbols_of(number)
    }
    missing = [found for name in sorted(wanted - given) if (found := _reading_of(name, forward)) is not None]
    first_tensor = next((place for place in places if isinstance(place.meta.get("val"), torch.Tensor)), None)
    if not missing or first_tensor is None:
        return forward, backward
    returned = forward.graph.output_node()
    for place, read, axis, number in missing:
        with forward.graph.inserting_before(returned):
            size = forward.graph.call_function(read, (place, axis))
        size.meta["val"] = number
        returned.args = ((*cast(Sequence[Any], returned.args[0]), size),)
        with backward.graph.inserting_before(first_tensor):
            backward.graph.placeholder(size.name).meta["val"] = size.meta["val"]
    for module in (forward, backward):
        module.recompile()
    return forward, backward


def _reading_of(name: str, forward: fx.GraphModule) -> tuple[fx.Node, Any, int, Any] | None:
    """How the forward graph reads a symbol that is a size or stride by itself: the input, the operator that reads it,
    the axis, and the number."""
    for place in forward.graph.find_nodes(op="placeholder"):
        value = place.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        for read, numbers in (
            (torch.ops.aten.sym_size.int, value.shape),
            (torch.ops.aten.sym_stride.int, _strides(value)),
        ):
            for axis, number in enumerate(numbers):
                if str(symbols.single_symbol(number)) == name:
                    return place, read, axis, number
    return None


def _single_symbols(value: object) -> list[object]:
    """The symbols that are by themselves an argument's value or one of its sizes."""
    alone = (symbols.single_symbol(size) for size in _sizes(value))
    return [symbol for symbol in alone if symbol is not None]


def _strides(tensor: torch.Tensor) -> Sequence[object]:
    return tensor.stride() if tensor.layout is torch.strided else ()


def _numbers(value: object) -> list[object]:
    """The symbolic sizes and strides of tensors, and symbolic numbers."""
    if isinstance(value, (tuple, list)):
        return [number for part in value for number in _numbers(part)]
    strides = _strides(value) if isinstance(value, torch.Tensor) else ()
    return [*_sizes(value), *(stride for stride in strides if isinstance(stride, symbols.SYMBOLIC))]


def _sizes(value: object) -> list[object]:
    if isinstance(value, (tuple, list)):
        return [size for part in value for size in _sizes(part)]
    found = value.shape if isinstance(value, torch.Tensor) else (value,)
    return [size for size in found if isinstance(size, symbols.SYMBOLIC)]


def _is_written(place: fx.Node) -> bool:
    return any(
        isinstance(user.target, torch._ops.OpOverload) and user.target._schema.is_mutable for user in place.users
    )


def _views(node: object) -> list[fx.Node]:
    """The chain of views of fixed sizes that leads from a placeholder to the node; empty if there is none."""
    chain: list[fx.Node] = []
    while isinstance(node, fx.Node) and node.op == "call_function":
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or not target.is_view or len(node.all_input_nodes) != 1:
            return []
        if not isinstance(node.meta.get("val"), torch.Tensor):  # one of several results
            return []
        chain.append(node)
        node = node.all_input_nodes[0]
    return chain[::-1] if _is_input(node) else []


def _replaced(saved: list[object], old: fx.Node, new: fx.Node, *, drop: bool) -> list[object]:
    return [new if node is old else node for node in saved if node is not old or not drop]


def _copied(chain: list[fx.Node], known: Mapping[fx.Node, fx.Node], graph: fx.Graph, before: fx.Node) -> fx.Node:
    made = dict(known)
    with graph.inserting_before(before):
        for node in chain:
            made[node] = graph.node_copy(node, made.__getitem__)
    return made[chain[-1]]
