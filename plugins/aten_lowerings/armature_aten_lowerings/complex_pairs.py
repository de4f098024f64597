"""Turns operators of complex numbers into operators of their real and imaginary parts, which back ends know.

Values enter through `view_as_real`, and those that other operators or the caller want leave through `view_as_complex`.
Both are calls that cost about as much as a small operator, so a few operators between two transforms stay calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import attrs
import torch
from torch import Tensor, fx
from torch.fx.node import Argument

from armature.plugin_api import Services
from armature_aten_lowerings.common import add_call, is_random
from armature_aten_lowerings.complex_parts import NotWritten, Pair, Real, plain
from armature_aten_lowerings.complex_rows import FREE, PART_DTYPES, WORK, Call, first_of

aten = torch.ops.aten
SUMS = frozenset((aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim))
SLOW = frozenset((aten.exp.default, aten.div.Tensor, aten.div.Scalar, aten.reciprocal.default, aten.polar.default))
"""Operators whose kernels go through complex numbers one by one."""
LARGE, SLOW_SAVES = 1024, 3


def write_as_parts(module: object, ctx: Services) -> object:
    """The pass."""
    if not isinstance(module, fx.GraphModule):
        return module
    _negate_values(module.graph)
    chosen = {node for group in _groups(module.graph) if group.pays() for node in group.work}
    if chosen:
        with getattr(next(iter(chosen)).meta["val"], "fake_mode", contextlib.nullcontext()):
            _Writer(module.graph, chosen).run()
    return module


def is_complex(node: fx.Node) -> bool:
    """Whether the node is a complex tensor, or several."""
    value = node.meta.get("val")
    several = value if isinstance(value, (list, tuple)) else (value,)
    return bool(several) and all(map(_is_complex, several))


def _is_complex(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_complex() and value.layout is torch.strided


def _negate_values(graph: fx.Graph) -> None:
    """Negate real tensors that are marked as negated, as the imaginary part of a conjugate is: kernels read memory."""
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if node.target is aten._neg_view.default and not _is_complex(value):
            with graph.inserting_before(node):
                node.replace_all_uses_with(add_call(node, aten.neg.default, node.args[0]))
            graph.erase_node(node)
        elif node.op == "placeholder" and isinstance(value, Tensor) and value.is_neg():
            with graph.inserting_before(next(one for one in graph.nodes if one.op != "placeholder")):
                plain_value = add_call(node, aten.resolve_neg.default, node)
            readers = [user for user in node.users if user is not plain_value and _reads(user, node)]
            for user in readers:
                user.replace_input_with(node, plain_value)


def _reads(user: fx.Node, node: fx.Node) -> bool:
    """Whether the node's values are read: it is neither returned nor written to."""
    return user.op != "output" and not (user.target is aten.copy_.default and user.args[0] is node)


# Which operators are written as parts.


@attrs.frozen(eq=False)
class _Group:
    """Operators that pass complex values to each other. enter, leave: those that do so otherwise."""

    work: set[fx.Node] = attrs.field(factory=set)
    enter: set[fx.Node] = attrs.field(factory=set)
    leave: set[fx.Node] = attrs.field(factory=set)

    def pays(self) -> bool:
        """Whether loops take no longer than calls: a conversion takes as long as the call of a small operator."""
        large = any(_numel(node) >= LARGE for node in self.work)
        return large + sum(map(_saved, self.work)) >= len(self.enter) + len(self.leave)


def _saved(node: fx.Node) -> int:
    """What a loop in a call's place saves, in calls of small operators."""
    return 0 if node.target in SUMS else SLOW_SAVES if node.target in SLOW and _numel(node) >= LARGE else 1


def _numel(node: fx.Node) -> int:
    """The number of elements that an operator reads or makes; 0 if it is symbolic."""
    sizes = [first_of(one.meta["val"]).numel() for one in (node, *node.all_input_nodes) if is_complex(one)]
    return max((size for size in sizes if type(size) is int), default=0)


def _groups(graph: fx.Graph) -> Sequence[_Group]:
    groups: dict[fx.Node, _Group] = {}
    for node in graph.nodes:
        if not _is_work(node):
            continue
        group = _Group({node})
        for given in filter(is_complex, node.all_input_nodes):
            source = _source(given)
            if source in groups:
                group = _merged(group, groups[source], groups)
            elif source is not None:
                group.enter.add(source)
        if is_complex(node) and any(_leaves(node)):
            group.leave.add(node)
        groups[node] = group
    return list({id(group): group for group in groups.values()}.values())


def _merged(group: _Group, other: _Group, groups: dict[fx.Node, _Group]) -> _Group:
    if group is other:
        return group
    for mine, others in ((group.work, other.work), (group.enter, other.enter), (group.leave, other.leave)):
        others |= mine
    for node in group.work & groups.keys():
        groups[node] = other
    return other


def _is_work(node: fx.Node) -> bool:
    if node.target not in WORK:
        return False
    dtypes = [one.meta["val"].dtype for one in (node, *node.all_input_nodes) if _is_complex(one.meta.get("val"))]
    return bool(dtypes) and all(dtype in PART_DTYPES for dtype in dtypes)


def _source(node: fx.Node) -> fx.Node | None:
    """Where a complex value comes from, past what costs nothing; None if that is real, or a constant."""
    while node.target in FREE:
        given = list(filter(is_complex, node.all_input_nodes))
        if not given:
            return None
        node = given[0]
    return node


def _leaves(node: fx.Node) -> Iterator[bool]:
    """For each reader of a complex value whether it wants it as it is."""
    for user in node.users:
        if user.target in FREE and is_complex(user):
            yield from _leaves(user)
        else:
            yield not _is_work(user) and user.target is not aten.view_as_real.default


# How they are written.


@attrs.frozen(eq=False)
class _Writer:
    """One walk over a graph. `pairs`: what is known of complex nodes; `stacks`: views of these as real numbers."""

    graph: fx.Graph
    chosen: set[fx.Node]
    pairs: dict[fx.Node, Pair] = attrs.field(factory=dict)
    stacks: dict[fx.Node, Pair] = attrs.field(factory=dict)

    def run(self) -> None:
        for node in list(self.graph.nodes):
            with self.graph.inserting_before(node):
                if node in self.chosen:
                    self.work(node)
                elif node.target is aten.view_as_real.default:
                    self.as_real(node)
                elif node.target is aten.select.int and node.args[0] in self.stacks:
                    self.part(node)
        for node in reversed(list(self.graph.nodes)):
            if node.op == "call_function" and not node.users and not node.is_impure() and not is_random(node):
                if _returns(node):
                    self.graph.erase_node(node)
            elif node in self.chosen and node in self.pairs:
                self.leave(node)

    def work(self, node: fx.Node) -> None:
        """Write an operator as parts. Its complex node stays, until it is known whether anyone wants it."""
        try:
            found = self.row(WORK[cast("Callable[..., object]", node.target)], node)
            if isinstance(found, Pair):
                self.pairs[node] = Pair(*(self.broadcast(part, node) for part in found.tensors()))
                return
        except NotWritten:
            self.chosen.remove(node)
            return
        found.node.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(found.node)

    def row(self, row: Callable[..., Pair | Real], node: fx.Node) -> Pair | Real:
        """What a row makes of a node."""
        values = [one.meta["val"] for one in (node, *node.all_input_nodes) if is_complex(one)]
        dtype = first_of(values[0]).dtype
        for value in values[1:] if not is_complex(node) else ():
            dtype = torch.promote_types(dtype, first_of(value).dtype)
        known = cast("Callable[[fx.Node], Argument]", lambda given: self.operand(given, node))
        args, kwargs = fx.map_arg(node.args, known), fx.map_arg(node.kwargs, known)
        return row(Call(node, PART_DTYPES[dtype]), *cast("Sequence[object]", args), **cast("dict[str, object]", kwargs))

    def operand(self, node: fx.Node, reader: fx.Node) -> object:
        """A node as rows know it."""
        if is_complex(node):
            return self.pair(node, reader).map(lambda part: Real(part.node, reader))
        return Real(node, reader) if isinstance(node.meta.get("val"), Tensor) else node

    def pair(self, node: fx.Node, reader: fx.Node) -> Pair:
        """The parts of a complex node."""
        found = self.pairs.get(node)
        if found is None and node.target in FREE:
            with contextlib.suppress(NotWritten):
                found = cast(Pair, self.row(FREE[cast("Callable[..., object]", node.target)], node))
        if found is None:
            found = self.enter(node, reader)
        self.pairs[node] = found
        return found

    def enter(self, node: fx.Node, reader: fx.Node) -> Pair:
        """The parts of a value that is complex in memory."""
        value = node.meta["val"]
        if not isinstance(value, Tensor) or value.is_neg():
            raise NotWritten
        stored = Real(node, reader)
        if value.is_conj():  # that of a gradient may be another one when the graph runs
            stored = stored.call(aten.resolve_conj.default)
        stored = stored.call(aten.view_as_real.default)
        return Pair(*(stored.call(aten.select.int, value.dim(), place) for place in range(2)))

    def broadcast(self, part: Real, node: fx.Node) -> Real:
        """A part with the shape of the result. Errors: NotWritten, if sizes are symbolic."""
        shape = node.meta["val"].shape
        if part.value.shape == shape:
            return part
        if not all(type(size) is int for size in shape):
            raise NotWritten
        return part.call(aten.expand.default, list(shape))

    def as_real(self, node: fx.Node) -> None:
        """Join the parts for a reader of real numbers."""
        given = cast(fx.Node, node.args[0])
        if _source(given) not in self.pairs:
            return
        with contextlib.suppress(NotWritten):
            pair = self.pair(given, node)
            made = _stacked(pair, node, node.meta["val"])
            self.stacks[made] = pair
            node.replace_all_uses_with(made)

    def part(self, node: fx.Node) -> None:
        """Read one part alone, if the parts lie as they would in memory."""
        pair, axis = self.stacks[cast(fx.Node, node.args[0])], cast(int, node.args[1])
        axes = node.meta["val"].dim()
        if axis not in (-1, axes) or node.args[2] not in (0, 1):
            return
        part = pair.tensors()[cast(int, node.args[2])]
        if not any(user.op == "output" for user in node.users):
            node.replace_all_uses_with(part.node)

    def leave(self, node: fx.Node) -> None:
        """Make the complex value of a node from its parts, with the strides of eager mode."""
        value = node.meta["val"]
        with self.graph.inserting_before(node):
            steps = (*(2 * step for step in value.stride()), 1)
            lying = value.new_empty_strided((*value.shape, 2), steps, dtype=PART_DTYPES[value.dtype])
            made = add_call(node, aten.view_as_complex.default, _stacked(self.pairs[node], node, lying))
        made.meta["val"] = value
        node.replace_all_uses_with(made)
        self.graph.erase_node(node)


def _stacked(pair: Pair, like: fx.Node, value: Tensor) -> fx.Node:
    """The parts side by side, laid out as `value`."""
    made = add_call(like, aten.stack.default, [plain(part) for part in pair.tensors()], value.dim() - 1)
    made.meta["val"] = value
    return made


def _returns(node: fx.Node) -> bool:
    return not isinstance(node.target, torch._ops.OpOverload) or bool(node.target._schema.returns)
