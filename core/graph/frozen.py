"""Inference with frozen weights: values that depend only on parameters and buffers are computed once and cached.

The graph gets these values as further inputs. They are computed again when a parameter or buffer has been written to
or replaced. Writes through `.data`, or through memory shared with NumPy, are not noticed.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor, fx

from armature.graph.facts import Rows, may_return_view, may_write
from armature.torch_abi.computing import undisturbed
from armature.trace.data import GraphInput

Call = Callable[[list[Any]], Any]
OWN = ("aten", "prims", "armature")  # the namespaces of operators without hidden side effects
GROWTH = 2
"""A value with more than this many times the bytes of what it is computed from is computed in each call."""
SMALL = 1 << 12  # bytes below which growth does not matter
_VERSION, _ADDRESS = operator.attrgetter("_version"), Tensor.data_ptr


def mark(module: fx.GraphModule, inputs: Sequence[GraphInput]) -> None:
    """Set `meta["frozen"]` on the placeholders of parameters and buffers that the graph does not write to."""
    places = module.graph.find_nodes(op="placeholder")
    if len(places) != len(inputs):  # inputs that share memory became one
        return
    for place, given in zip(places, inputs, strict=True):
        written = any(user.target is torch.ops.aten.copy_.default and user.args[0] is place for user in place.users)
        if given.is_parameter and not written and _counts_writes(given):
            place.meta["frozen"] = True


def _counts_writes(given: GraphInput) -> bool:
    """Whether the input is a plain tensor with a version counter. A tensor made in inference mode has none."""
    real = None if given.real is None else given.real()
    if real is None or type(real) not in (Tensor, torch.nn.Parameter) or real.layout is not torch.strided:
        return False
    return not real.is_inference()


def frozen_values(graph: fx.Graph, rows: Rows) -> set[fx.Node]:
    """The nodes whose values depend only on frozen inputs and constants, including those inputs and constants. rows:
    plugins' facts about operators."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        fixed = node.op == "get_attr" or (node.op == "placeholder" and node.meta.get("frozen", False))
        if fixed or (_is_pure(node, rows) and all(needed in found for needed in node.all_input_nodes)):
            found.add(node)
    return found


def _is_pure(node: fx.Node, rows: Rows) -> bool:
    """Whether the node has no side effects and always computes the same result from the same inputs."""
    target = node.target
    if target is operator.getitem:
        return True
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in OWN:
        return False
    row = rows.get(target)
    if row is not None and row.unset:
        return False
    return not may_write(target, rows) and torch.Tag.nondeterministic_seeded not in target.tags


@attrs.frozen(eq=False)
class Preparation:
    """The part of a graph that is computed once. positions: those of the frozen inputs that it takes. module: returns
    a tuple of values, which the rest of the graph takes as its last inputs. layouts: fakes of these values."""

    positions: tuple[int, ...]
    module: fx.GraphModule
    layouts: tuple[Tensor, ...]


def take_out(module: fx.GraphModule, rows: Rows) -> Preparation | None:
    """Move the nodes that depend only on frozen inputs into a `Preparation`, and give the graph placeholders for their
    values. None if no value is worth caching; the graph is then unchanged."""
    graph = module.graph
    known = frozen_values(graph, rows)
    places = graph.find_nodes(op="placeholder")
    if not any(place.meta.get("frozen") for place in places):
        return None
    cached = list(_cached(graph, known, rows))
    if not cached:
        return None
    inner = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    needed = with_all_inputs(cached)
    taken = tuple(k for k, place in enumerate(places) if place in needed)
    for node in graph.nodes:
        if node in needed:
            copies[node] = inner.node_copy(node, copies.__getitem__)
    inner.output(tuple(copies[node] for node in cached))
    preparation = Preparation(taken, fx.GraphModule(module, inner), tuple(node.meta["val"] for node in cached))
    last = places[-1]
    for number, node in enumerate(cached):
        with graph.inserting_after(last):
            last = graph.placeholder(f"prepared_{number}")
        last.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(last)
    for node in reversed([*graph.nodes]):
        if node in known and node.op == "call_function" and not node.users:
            graph.erase_node(node)
    module.recompile()
    return preparation


def _cached(graph: fx.Graph, known: set[fx.Node], rows: Rows) -> Iterator[fx.Node]:
    """The nodes whose values are cached: the last ones before readers that also depend on other inputs. Views and
    constants stay in the graph."""
    results = _reached_by_results(graph, rows)
    todo = [needed for reader in graph.nodes if reader not in known for needed in reader.all_input_nodes]
    seen: set[fx.Node] = set()
    while todo:
        node = todo.pop()
        if node in seen or node not in known or node.op != "call_function":
            continue
        seen.add(node)
        if _is_view(node, rows) or node in results or not _is_worth_keeping(node) or not _hangs_on_inputs(node):
            todo += node.all_input_nodes
        else:
            yield node


def _reached_by_results(graph: fx.Graph, rows: Rows) -> set[fx.Node]:
    """The graph's results, and the nodes whose memory they share. They are not cached, because each call has to return
    new tensors."""
    found: set[fx.Node] = set()
    todo = list(graph.output_node().all_input_nodes)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += node.all_input_nodes if _is_view(node, rows) else ()
    return found


def _is_view(node: fx.Node, rows: Rows) -> bool:
    """Whether the node is a view, or one result of an operator that makes several."""
    if node.target is operator.getitem:
        return _is_view(node.all_input_nodes[0], rows)
    return may_return_view(node.target, rows)


def _hangs_on_inputs(node: fx.Node) -> bool:
    """Whether the node depends on a frozen input. Nodes that depend only on constants are left to constant folding."""
    return any(needed.op == "placeholder" for needed in with_all_inputs([node]))


def with_all_inputs(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes and all that they are computed from, directly or not."""
    found: set[fx.Node] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += node.all_input_nodes
    return found


def _is_worth_keeping(node: fx.Node) -> bool:
    """Whether the value is a single dense tensor that is not much larger than the inputs it is computed from."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_quantized:
        return False
    if any(type(number) is not int for number in (*value.shape, *value.stride())):
        return False
    read = sum(_bytes_read(one) for n in node.all_input_nodes if isinstance(one := n.meta.get("val"), Tensor))
    return value.nbytes <= max(GROWTH * read, SMALL)


def _bytes_read(value: Tensor) -> int:
    """The tensor's bytes in memory; an element that expanding repeats counts once."""
    sizes = (size for size, stride in zip(value.shape, value.stride(), strict=True) if stride != 0)
    return math.prod(sizes) * value.itemsize


@attrs.frozen(eq=False)
class _Cached:
    """Prepared values, and what the inputs were like when they were computed."""

    inputs: tuple[weakref.ref[Tensor], ...]
    state: list[int]
    values: tuple[Tensor, ...]


@attrs.frozen(eq=False)
class Prepared:
    """Calls a graph with the values that were computed from its frozen inputs."""

    run: Call
    preparation: Preparation
    cached: dict[tuple[int, ...], _Cached] = attrs.field(factory=dict)

    def __call__(self, args: list[Any]) -> Any:
        given = [args[k] for k in self.preparation.positions]
        key = tuple(map(id, given))
        cached = self.cached.get(key)
        if cached is None or cached.state != _state(given):
            cached = self.cached[key] = self._prepared(key, given)
        args.extend(cached.values)
        return self.run(args)

    def _prepared(self, key: tuple[int, ...], given: list[Tensor]) -> _Cached:
        """The prepared values for these inputs. They are dropped as soon as one of the inputs is freed."""

        def forget(_: object, cached: dict[tuple[int, ...], _Cached] = self.cached) -> None:
            cached.pop(key, None)

        state = _state(given)  # taken before the inputs are read, so that the next call notices a write made meanwhile
        with undisturbed():
            found = self.preparation.module(*given)
            values = tuple(map(_laid_out, found, self.preparation.layouts))
        return _Cached(tuple(weakref.ref(one, forget) for one in given), state, values)


def _state(given: list[Tensor]) -> list[int]:
    """How often each tensor has been written to, and where it is: `p.data = ...` moves a parameter."""
    return [*map(_VERSION, given), *map(_ADDRESS, given)]  # a loop in Python takes three times as long


def _laid_out(value: Tensor, like: Tensor) -> Tensor:
    """The value with the strides that the graph was compiled for. A value in a library's opaque layout is returned
    unchanged."""
    if value.layout is not torch.strided or value.stride() == like.stride():
        return value
    return torch.empty_strided(like.shape, like.stride(), dtype=value.dtype, device=value.device).copy_(value)
