"""Simplifies joins of parts that are already adjacent, parts of joins, and copies that change nothing.

A join copies each of its parts. Adjacent parts of one tensor are that tensor, or a part of it; nested joins are merged;
and a reader that takes a part out of a join can read the original.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import attrs
import torch
from torch import Tensor, fx
from torch.fx.node import Argument

from armature.plugin_api import Services
from armature_aten_lowerings.common import returned
from armature_aten_lowerings.layouts import called_by, is_view, value_of

aten = torch.ops.aten
SPLITS = frozenset((
    aten.split.Tensor, aten.split.sizes, aten.split_with_sizes.default, aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default, aten.chunk.default, aten.unsafe_chunk.default, aten.tensor_split.sections,
))  # fmt: skip


@attrs.frozen
class Part:
    """Entries `start` to `stop` of a tensor along an axis. single: a single entry, without the axis."""

    source: fx.Node
    axis: int
    start: int
    stop: int
    single: bool = False


def simplify(module: object, ctx: Services) -> object:
    """The pass: remove unnecessary joins and copies."""
    if not isinstance(module, fx.GraphModule) or any(_writes_before_last_read(node) for node in module.graph.nodes):
        return module
    work = _Simplifier(module.graph, returned(module.graph))
    for node in list(module.graph.nodes):
        change = CHANGES.get(node.target)
        if change is not None and _in_numbers(node):
            change(work, node)
    return module


@attrs.frozen(eq=False)
class _Simplifier:
    """One walk over a graph. `returned`: nodes whose memory the outputs may share."""

    graph: fx.Graph
    returned: set[fx.Node]

    def join(self, node: fx.Node) -> None:
        """`cat`: merge nested joins, and combine adjacent parts of one tensor."""
        axis = _axis(node, 1)
        given = cast("Sequence[fx.Node]", node.args[0])
        merged: list[fx.Node | Part] = []
        for piece in (piece for part in given for piece in self.pieces(part, axis, node)):
            before = merged[-1] if merged else None
            if isinstance(before, Part) and isinstance(piece, Part) and _is_adjacent(before, piece):
                merged[-1] = attrs.evolve(before, stop=piece.stop)
            else:
                merged.append(piece)
        flat = any(one.target is aten.cat.default and one not in merged for one in given)
        if len(merged) == len(given) > 1 and not flat:
            return
        with self.graph.inserting_before(node):
            parts = [self.node_of_part(node, one) if isinstance(one, Part) else one for one in merged]
        node.args = (parts, axis)
        node.kwargs = {}
        if len(parts) == 1:
            self.replace(node, parts[0])

    def pieces(self, part: fx.Node, axis: int, reader: fx.Node) -> list[fx.Node | Part]:
        """The pieces of a join's part along the axis: if it is itself a join that only `reader` reads, the pieces of
        that."""
        if part.target is aten.cat.default and list(part.users) == [reader] and part not in self.returned:
            given = cast("Sequence[fx.Node]", part.args[0])
            dtypes = {one.meta["val"].dtype for one in given}
            if _in_numbers(part) and _axis(part, 1) == axis and dtypes == {part.meta["val"].dtype}:
                return [piece for one in given for piece in self.pieces(one, axis, part)]
        found = part_of(part)
        return [part if found is None or found.axis != axis or found.single else found]

    def stack(self, node: fx.Node) -> None:
        """`stack` of all entries of one tensor in order."""
        given = cast("Sequence[fx.Node]", node.args[0])
        first = part_of(given[0])
        if first is None or not first.single or first.axis != _axis(node, 1):
            return
        entries = [attrs.evolve(first, start=k, stop=k + 1) for k in range(first.source.meta["val"].shape[first.axis])]
        if [part_of(one) for one in given] == entries:
            self.replace(node, first.source)

    def take(self, node: fx.Node) -> None:
        """A part of a join that lies within one of its operands."""
        part = part_of(node)
        if part is None or part.source.target is not (aten.stack.default if part.single else aten.cat.default):
            return
        if not _in_numbers(part.source) or _axis(part.source, 1) != part.axis:
            return
        given = cast("Sequence[fx.Node]", part.source.args[0])
        if part.single:
            self.replace(node, given[part.start], relaid=True)
            return
        stop = 0
        for one in given:
            shape = one.meta["val"].shape
            start, stop = stop, stop + (shape[part.axis] if len(shape) > part.axis else 0)
            if start <= part.start and part.stop <= stop:
                inside = attrs.evolve(part, source=one, start=part.start - start, stop=part.stop - start)
                with self.graph.inserting_before(node):
                    self.replace(node, self.node_of_part(node, inside), relaid=True)
                return

    def copy(self, node: fx.Node) -> None:
        """A copy with the same layout as its source, or one that is only copied again."""
        self.replace(node, cast(fx.Node, node.args[0]), relaid=_is_only_copied(node))

    def pad(self, node: fx.Node) -> None:
        """Padding of zero width."""
        if not any(cast("Sequence[int]", node.args[1])):
            self.copy(node)

    def node_of_part(self, like: fx.Node, part: Part) -> fx.Node:
        """The node of a part, attributed to the same line of the program as the node `like`."""
        if (part.start, part.stop) == (0, part.source.meta["val"].shape[part.axis]):
            return part.source
        made = self.graph.call_function(aten.slice.Tensor, (part.source, part.axis, part.start, part.stop))
        made.meta.update({key: like.meta[key] for key in ("origin", "stack_trace") if key in like.meta})
        made.meta["val"] = value_of(made)
        return made

    def replace(self, node: fx.Node, other: fx.Node, relaid: bool = False) -> None:
        """Replace the node by `other` if nobody can tell the difference: the node is not returned, and the layouts
        agree. relaid: the layout may differ if all views of it remain possible and no dependent result changes its
        layout."""
        old, new = node.meta["val"], other.meta["val"]
        if node in self.returned or _kind(old) != _kind(new):
            return
        if old.stride() != new.stride():
            views = _relaid_views(node, new) if relaid else None
            if views is None:
                return
            for view, value in views.items():
                view.meta["val"] = value
        node.replace_all_uses_with(other)
        self.graph.erase_node(node)


def part_of(node: fx.Node) -> Part | None:
    """The part of another tensor that a node takes; None if it is something else, or sizes are symbolic."""
    take = TAKES.get(node.target)
    found = take(node) if take is not None and _in_numbers(node) else None
    outer = None if found is None else part_of(found.source)
    if found is None or outer is None or outer.single or outer.axis != found.axis:
        return found
    return attrs.evolve(found, source=outer.source, start=found.start + outer.start, stop=found.stop + outer.start)


def _slice(node: fx.Node) -> Part | None:
    source = cast(fx.Node, node.args[0])
    axis, start, step = _axis(node, 1), _argument(node, 2, "start", None), _argument(node, 4, "step", 1)
    if step != 1 or not isinstance(start, (int, type(None))):
        return None
    size = source.meta["val"].shape[axis]
    first = min(max((start or 0) + size if (start or 0) < 0 else start or 0, 0), size)
    return Part(source, axis, first, first + node.meta["val"].shape[axis])


def _select(node: fx.Node) -> Part | None:
    source, axis, place = cast(fx.Node, node.args[0]), _axis(node, 1), _argument(node, 2, "index", None)
    if not isinstance(place, int):
        return None
    first = place + source.meta["val"].shape[axis] if place < 0 else place
    return Part(source, axis, first, first + 1, single=True)


def _item(node: fx.Node) -> Part | None:
    """One of the results of a split."""
    several, place = cast("tuple[fx.Node, int]", node.args)
    single = several.target is aten.unbind.int
    if not single and several.target not in SPLITS:
        return None
    source, axis = cast(fx.Node, several.args[0]), _axis(several, 1 if single else 2)
    sizes = [1 if single else value.shape[axis] for value in several.meta["val"]]
    return Part(source, axis, sum(sizes[:place]), sum(sizes[: place + 1]), single)


TAKES: Mapping[object, Callable[[fx.Node], Part | None]] = {
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    operator.getitem: _item,
}
CHANGES: Mapping[object, Callable[[_Simplifier, fx.Node], None]] = {
    aten.cat.default: _Simplifier.join,
    aten.stack.default: _Simplifier.stack,
    **dict.fromkeys(TAKES, _Simplifier.take),
    aten.clone.default: _Simplifier.copy,
    aten.constant_pad_nd.default: _Simplifier.pad,
}


def _argument(node: fx.Node, position: int, name: str, default: object) -> object:
    return node.args[position] if position < len(node.args) else node.kwargs.get(name, default)


def _axis(node: fx.Node, position: int) -> int:
    """The axis argument of a call; counted in the result if the call adds an axis, else in its argument."""
    axis = cast(int, _argument(node, position, "dim", 0))
    like = node.meta["val"] if node.target in (aten.cat.default, aten.stack.default) else None
    value = like if like is not None else cast(fx.Node, node.args[0]).meta["val"]
    return axis % max(cast(Tensor, value).dim(), 1)


def _is_adjacent(before: Part, piece: Part) -> bool:
    return (before.source, before.axis, before.stop) == (piece.source, piece.axis, piece.start)


def _kind(value: Tensor) -> object:
    """The properties besides strides that two tensors must share."""
    return value.shape, value.dtype, value.device, value.is_conj(), value.is_neg()


def _in_numbers(node: fx.Node) -> bool:
    """Whether the sizes and strides of the node and its operand are numbers."""
    return all(_sizes_are_numbers(one.meta.get("val")) for one in (node, *node.all_input_nodes))


def _sizes_are_numbers(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_sizes_are_numbers, value))
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_quantized:
        return False
    return all(type(number) is int for number in (*value.shape, *value.stride()))


def _writes_before_last_read(node: fx.Node) -> bool:
    """Whether the node writes to memory while others may still read it, except for the final copy into an input."""
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable and target is not aten.copy_.default


def _is_only_copied(node: fx.Node) -> bool:
    """Whether only copies read a node and its views."""
    readers = [user for user in node.users if user.target is not aten.clone.default]
    return all(is_view(user) and _is_only_copied(user) for user in readers)


def _relaid_views(node: fx.Node, value: Tensor) -> dict[fx.Node, Argument] | None:
    """The values of all views of a node whose layout changes; None if some reader needs the old layout."""
    known: dict[fx.Node, Argument] = {node: value}
    todo = list(node.users)
    while todo:
        user = todo.pop(0)
        found = _result_with(user, known)
        if found is None:
            return None
        if is_view(user):
            known[user] = found
            todo += user.users
        elif _layouts(found) != _layouts(user.meta.get("val")):
            return None
    del known[node]
    return known


def _result_with(user: fx.Node, known: Mapping[fx.Node, Argument]) -> Argument:
    """The result of a node if some operands have another layout; None if it can't read that."""
    args, kwargs = fx.map_arg((user.args, user.kwargs), lambda n: known[n] if n in known else n.meta["val"])
    target: object = user.target
    if not isinstance(target, torch._ops.OpOverload) and target is not operator.getitem:
        return None
    if target is aten.copy_.default:
        unchanged: Argument = user.meta["val"]
        return unchanged
    try:
        return called_by(user)(*args, **kwargs)
    except Exception:  # a view that these strides do not allow
        return None


def _layouts(value: object) -> object:
    several = value if isinstance(value, (list, tuple)) else [value]
    return [one.stride() if isinstance(one, Tensor) else None for one in several]
