"""Common subexpression elimination, from equal arguments, or from views with the same layout in one memory."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import attrs
import torch
from torch import Tensor, fx
from torch.fx.node import Argument

from armature.plugin_api import Services
from armature_aten_lowerings.layouts import is_view
from armature_aten_lowerings.operators import COMMUTING

aten = torch.ops.aten
RESOLVING = frozenset((aten.resolve_conj.default, aten.resolve_neg.default))
"""Views in name, which copy what is marked as conjugated or negated."""
RANDOM = torch.Tag.nondeterministic_seeded


def share_common_values(module: object, ctx: Services) -> object:
    """Compute values once that are computed several times from the same arguments."""
    if isinstance(module, fx.GraphModule):
        _Sharing(returned(module.graph)).run(module.graph)
    return module


@attrs.frozen(eq=False)
class _Sharing:
    """One walk over a graph. `first`: the first node for each computation. `roots`: the bases of views."""

    returned: set[fx.Node]
    first: dict[Hashable, fx.Node] = attrs.field(factory=dict)
    roots: dict[fx.Node, fx.Node] = attrs.field(factory=dict)

    def run(self, graph: fx.Graph) -> None:
        for node in list(graph.nodes):
            key = self.key(node)
            if node.op != "output" and not _is_view(node) and (place := self.place(node)) is not None:
                self.first.setdefault(place, node)  # for views of all of it
            first = node if key is None else self.first.setdefault(key, node)
            # In eager mode two results never share memory, so each returned node keeps its own computation.
            if first is node or (node in self.returned and first in self.returned):
                continue
            if node in self.returned:
                self.returned.add(first)
            node.replace_all_uses_with(first)
            graph.erase_node(node)

    def key(self, node: fx.Node) -> Hashable | None:
        """Equal for nodes that compute the same; None for nodes that can't be shared."""
        if _is_view(node) and (place := self.place(node)) is not None:
            return place
        return _key(node) if is_pure(node) else None

    def place(self, node: fx.Node) -> Hashable | None:
        """A tensor's base and layout, in numbers; None if these are symbolic."""
        if _is_view(node) and node.all_input_nodes:
            source = node.all_input_nodes[0]
            self.roots[node] = self.roots.get(source, source)
        root = self.roots.get(node, node)
        value, whole = node.meta.get("val"), root.meta.get("val")
        if not isinstance(value, Tensor) or not isinstance(whole, Tensor):
            return None
        if value.layout is not torch.strided or value.is_quantized:
            return None
        numbers = (*value.shape, *value.stride(), value.storage_offset() - whole.storage_offset())
        if any(type(number) is not int for number in numbers):
            return None
        return root, value.dtype, value.dim(), numbers, value.is_conj(), value.is_neg()


def _is_view(node: fx.Node) -> bool:
    """Whether the node is a view operator that writes nothing."""
    schema = getattr(node.target, "_schema", None)
    return node.target not in RESOLVING and is_view(node) and not (schema is not None and schema.is_mutable)


def is_random(node: fx.Node) -> bool:
    """Whether the node draws random numbers."""
    return isinstance(node.target, torch._ops.OpOverload) and RANDOM in node.target.tags


def is_pure(node: fx.Node) -> bool:
    """Whether the node calls a deterministic operator that writes nothing."""
    operator = node.target
    return isinstance(operator, torch._ops.OpOverload) and not operator._schema.is_mutable and not is_random(node)


def add_call(like: fx.Node, target: Callable[..., object], *args: Argument, **kwargs: Argument) -> fx.Node:
    """A call in the graph of `like`, with its own value and the origin of `like`."""
    made = like.graph.call_function(target, args, kwargs)
    made.meta.update(like.meta)
    values = fx.map_arg((args, kwargs), lambda n: n.meta["val"])
    made.meta["val"] = target(*values[0], **values[1])
    return made


def returned(graph: fx.Graph) -> set[fx.Node]:
    """Nodes whose memory the outputs may share: returned nodes, and their possible bases."""
    out: set[fx.Node] = set()
    todo = [n for output in graph.nodes if output.op == "output" for n in output.all_input_nodes]
    while todo:
        node = todo.pop()
        if node in out:
            continue
        out.add(node)
        schema = getattr(node.target, "_schema", None)
        makes_views = schema is None or any(r.alias_info for r in schema.returns) or "view" in str(node.target)
        if makes_views:
            todo.extend(node.all_input_nodes)
    return out


def _key(node: fx.Node) -> Hashable | None:
    """The operator and its arguments; None if arguments can't be compared."""
    args: Hashable = _frozen(node.args)
    if node.target in COMMUTING and not node.kwargs and all(isinstance(one, fx.Node) for one in node.args):
        # The result's layout also depends on the order.
        args = (frozenset(node.args), node.meta["val"].stride())
    try:
        key = (node.target, args, _frozen(tuple(sorted(node.kwargs.items()))))
        hash(key)
    except TypeError:
        return None
    return key


def _frozen(value: object) -> Hashable:
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(v) for v in value)
    if isinstance(value, (bool, int, float)):
        return (type(value), value, str(value))  # 1, 1.0 and True differ, and so do 0.0 and -0.0
    return value
