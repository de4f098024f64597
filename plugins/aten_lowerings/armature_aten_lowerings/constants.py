"""Parts of a graph that depend on constants only (positions, rotary tables, masks): computed once, at compile time.

Values that are cheap per element, such as ranges or comparisons of ranges, stay in the loops, where they need no
memory.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import suppress

import attrs
import torch
from torch import Tensor, fx

from armature.plugin_api import KnownValues, NotKnown, Services, written_number
from armature_aten_lowerings.common import is_pure, returned
from armature_aten_lowerings.layouts import is_view
from armature_aten_lowerings.operators import UNSET

aten = torch.ops.aten
MOST_BYTES = 1 << 20
"""The largest value to store: it is read from memory in every call, and stays there between calls."""
CHEAP = frozenset((
    aten.arange.default, aten.arange.start, aten.arange.start_step, aten.full.default, aten.zeros.default,
    aten.ones.default, aten.eye.default, aten.eye.m, aten.scalar_tensor.default, aten.full_like.default,
    aten.zeros_like.default, aten.ones_like.default, aten.new_full.default, aten.new_zeros.default,
    aten.new_ones.default, aten.tril.default, aten.triu.default, aten._to_copy.default, aten.clone.default,
    aten.copy.default, aten.lift_fresh_copy.default, torch.ops.prims.convert_element_type.default,
    torch.ops.prims.iota.default, aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.mul.Tensor,
    aten.mul.Scalar, aten.neg.default, aten.abs.default, aten.where.self, aten.masked_fill.Scalar,
    aten.eq.Tensor, aten.eq.Scalar, aten.ne.Tensor, aten.ne.Scalar, aten.lt.Tensor, aten.lt.Scalar, aten.le.Tensor,
    aten.le.Scalar, aten.gt.Tensor, aten.gt.Scalar, aten.ge.Tensor, aten.ge.Scalar, aten.logical_and.default,
    aten.logical_or.default, aten.logical_not.default, aten.bitwise_and.Tensor, aten.bitwise_or.Tensor,
    aten.bitwise_not.default, aten.minimum.default, aten.maximum.default, aten.clamp.default,
))  # fmt: skip


def compute_constants(module: object, ctx: Services) -> object:
    """The pass: expensive values that depend on constants only become constants of the graph."""
    if not isinstance(module, fx.GraphModule):
        return module
    for node in module.graph.find_nodes(op="call_function", target=aten.fill.Tensor):
        _fill_with_number(node)
    constants = _Constants.of(module.graph)
    known = KnownValues()
    for node in list(constants.stored()):
        try:
            value = known.placed(node)
        except NotKnown:
            continue
        _put(module, node, value)
    return module


def _fill_with_number(node: fx.Node) -> None:
    """`x[0] = 3` fills with a tensor that torch makes from the 3: a number suffices."""
    x, value = node.args
    if isinstance(value, fx.Node) and value.target is aten.lift_fresh_copy.default:
        with suppress(NotKnown):
            number = KnownValues().number(value)
            node.target, node.args = aten.fill.Scalar, (x, number)


def _put(module: fx.GraphModule, node: fx.Node, value: Tensor) -> None:
    """Replace the node by the value, in the node's layout."""
    fake = node.meta["val"]
    if value.shape != fake.shape or value.dtype != fake.dtype or value.stride() != fake.stride():
        return
    number = sum(other.op == "get_attr" for other in module.graph.nodes)
    while hasattr(module, name := f"_computed_constant{number}"):
        number += 1
    module.register_buffer(name, value, persistent=False)
    with module.graph.inserting_before(node):
        made = module.graph.get_attr(name)
    made.meta.update(node.meta)
    node.replace_all_uses_with(made)
    module.graph.erase_node(node)


@attrs.frozen(eq=False)
class _Constants:
    """The nodes of a graph that depend on constants only, and whether computing each is expensive."""

    graph: fx.Graph
    dear: dict[fx.Node, bool]
    returned: set[fx.Node]

    @classmethod
    def of(cls, graph: fx.Graph) -> _Constants:
        """Computed in one walk."""
        dear: dict[fx.Node, bool] = {}
        for node in graph.nodes:
            pure = is_pure(node) and node.target not in UNSET and _is_of_torch(node)
            needed = node.all_input_nodes
            if written_number(node) is not None:
                dear[node] = False
            elif (pure or node.target is operator.getitem) and all(one in dear for one in needed):
                light = node.target in CHEAP or node.target is operator.getitem or is_view(node)
                dear[node] = not light or any(dear[one] for one in needed)
        return cls(graph, dear, returned(graph))

    def stored(self) -> Iterator[fx.Node]:
        """The nodes whose values to store: those read by nodes that depend on more than constants."""
        readers = [node for node in self.graph.nodes if node not in self.dear]
        todo = [needed for reader in readers for needed in reader.all_input_nodes if needed in self.dear]
        seen: set[fx.Node] = set()
        while todo:
            node = todo.pop()
            if node in seen or not self.dear[node]:
                continue
            seen.add(node)
            if not is_view(node) and node not in self.returned and _is_small(node.meta.get("val")):
                yield node
            else:
                todo += node.all_input_nodes


def _is_of_torch(node: fx.Node) -> bool:
    """Whether the operator is torch's own: operators of others may have unknown effects."""
    return getattr(node.target, "namespace", "") in ("aten", "prims")


def _is_small(value: object) -> bool:
    """Whether the value is a tensor of at most MOST_BYTES, with numeric sizes."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_quantized:
        return False
    if any(type(number) is not int for number in (*value.shape, *value.stride())) or value.storage_offset() != 0:
        return False
    return value.untyped_storage().nbytes() <= MOST_BYTES
