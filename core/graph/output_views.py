"""Takes views at the end of a training graph from the compiled graph's results, by the program's own calls.

Autograd tracks a view's base, which changes are allowed to the results of a call with several outputs, and which
tensors share a version counter. A compiled graph that returned the views itself would lose all that.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import attrs
import torch
from torch import fx

from armature.graph.pieces import copied, is_number, memory_of, named, setting_back, tensors_used
from armature.torch_abi.grad_modes import set_grad_enabled
from armature.torch_abi.pytree import tree_leaves
from armature.torch_abi.views import creation_of
from armature.torch_abi.wrappers import is_wrapper


@attrs.frozen(eq=False)
class OutputViews:
    """The calls at the end of a graph that make views, in order, and the graph without them.

    results: the nodes that the graph without them returns. views: the nodes that make views. switched: the nodes of
    `views` that run in another grad mode.
    """

    whole: fx.GraphModule
    inner: fx.GraphModule
    results: tuple[fx.Node, ...]
    views: tuple[fx.Node, ...]
    switched: frozenset[fx.Node]

    def after(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The whole graph's callable. run: the callable of the graph without them."""
        graph = fx.Graph()
        places = [node for node in self.whole.graph.nodes if node.op == "placeholder"]
        copies = {node: graph.node_copy(node) for node in places}
        called = graph.call_function(named(run, "compiled"), tuple(copies[node] for node in places))
        for position, node in enumerate(self.results):
            copies[node] = graph.call_function(operator.getitem, (called, position))
        for node in [*copies]:
            self.name_all(node, copies)
        mode = before = torch.is_grad_enabled()
        for node in self.views:
            if (node in self.switched) is (mode is before):
                mode = not mode
                graph.call_function(set_grad_enabled, (mode,))
            copies[node] = graph.node_copy(node, lambda used: copied(graph, used, copies))
            self.name_all(node, copies)
        if mode is not before:
            graph.call_function(set_grad_enabled, (before,))
        graph.node_copy(self.whole.graph.output_node(), lambda used: copied(graph, used, copies))
        whole: Callable[..., Any] = fx.GraphModule(self.whole, graph, type(self.whole).__name__).forward
        return setting_back(whole) if self.switched else whole

    def name_all(self, node: fx.Node, copies: dict[fx.Node, fx.Node]) -> None:
        """Set the copy of all nodes that represent the same tensor; the result of an in-place call is the same tensor
        as its argument."""
        if _is_strided(fake := _fake(node)):
            for other in self.whole.graph.nodes:
                if other is not node and _fake(other) is fake:
                    copies.setdefault(other, copies[node])


def output_views_of(whole: fx.GraphModule) -> OutputViews | None:
    """The views that a graph ends with, if other results share their memory or autograd knows more about them than
    their elements. None if there are none, or they have to be compiled."""
    modes = _grad_modes(whole.graph)
    returned = cast(Any, whole.graph.output_node().args[0])
    results = [node for node in returned if isinstance(node, fx.Node)]
    if modes is None or not torch.is_grad_enabled() or not any(_requires_grad(node) for node in whole.graph.nodes):
        return None
    graph = _Nodes(whole.graph)
    made: set[fx.Node] = set()
    bases: dict[fx.Node, None] = {}
    for result in graph.with_aliases(results):
        path, base = graph.path(result)
        made.update(path)
        bases[base] = None
    if not made:
        return None
    places = set(whole.graph.find_nodes(op="placeholder"))
    rest = [node for node in results if graph.first(node) not in made and node not in places]
    there = {graph.first(node) for node in rest} | places
    given = tuple(dict.fromkeys([*rest, *(base for base in bases if base not in there)]))
    order = tuple(node for node in whole.graph.nodes if node in made)
    known = {graph.first(node) for node in given} | places | made
    if not all(graph.is_known(used, known) for node in order for used in node.all_input_nodes):
        return None
    switched = frozenset(node for node in order if modes[node] is not torch.is_grad_enabled())
    return OutputViews(whole, _giving(whole, given), given, order, switched)


def reads_data_alias(whole: fx.GraphModule) -> bool:
    """Whether a training graph returns `x.data` or a view of it, and also reads it: backward may need it, but saves
    `x`, whose version counter is a different one."""
    graph = _Nodes(whole.graph)
    if not torch.is_grad_enabled() or not any(_requires_grad(node) for node in whole.graph.nodes):
        return False
    paths = [graph.path(graph.first(node))[0] for node in whole.graph.output_node().all_input_nodes]
    steps = {step for path in paths for step in path}
    apart = (path[: path.index(step) + 1] for path in paths for step in path if _is_data(step))
    read = (user for path in apart for step in path for user in step.users)
    return any(user not in steps and user.op != "output" for user in read)


def _is_data(node: fx.Node) -> bool:
    return node.target is getattr and node.args[1] == "data"


def _grad_modes(graph: fx.Graph) -> Mapping[fx.Node, bool] | None:
    """Whether gradients are recorded at each node; None if other torch state changes, or the grad mode at the end
    differs."""
    mode = before = torch.is_grad_enabled()
    modes = {}
    for node in graph.nodes:
        modes[node] = mode
        if node.target is set_grad_enabled:
            mode = bool(node.args[0])
        elif "changes_state" in node.meta:
            return None
    return modes if mode is before else None


def _fake(node: fx.Node) -> Any:
    return node.meta.get("traced_value", node.meta.get("example_value"))


def _is_strided(fake: object) -> bool:
    return isinstance(fake, torch.Tensor) and not is_wrapper(type(fake)) and fake.layout is torch.strided


def _requires_grad(node: fx.Node) -> bool:
    fake = _fake(node)
    return isinstance(fake, torch.Tensor) and fake.requires_grad


@attrs.define(eq=False)
class _Nodes:
    """The nodes of a graph grouped by tensor: the first one makes it, in-place calls follow."""

    graph: fx.Graph
    firsts: dict[int, fx.Node] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for node in self.graph.nodes:
            if isinstance(_fake(node), torch.Tensor):
                self.firsts.setdefault(id(_fake(node)), node)

    def first(self, node: fx.Node) -> fx.Node:
        """The first node that represents the same tensor as a node."""
        return self.firsts.get(id(_fake(node)), node)

    def with_aliases(self, results: list[fx.Node]) -> Iterator[fx.Node]:
        """Results that share memory with others, and views that autograd restricts."""
        places = self.graph.find_nodes(op="placeholder")
        nodes = {self.first(node): None for node in (*places, *results) if _is_strided(_fake(node))}
        sharing = Counter(map(memory_of, nodes))
        for node in nodes:
            fake = _fake(node)
            if node.op == "placeholder" or fake.is_inference():
                continue
            limited = fake._is_view() and creation_of(fake) is not None
            if limited or sharing[memory_of(node)] > 1 or self.is_apart(node):
                yield node

    def is_apart(self, node: fx.Node) -> bool:
        """Whether a node's result has a version counter of its own, so that writes to it do not count for its base."""
        return any(map(_is_data, self.path(node)[0]))

    def path(self, node: fx.Node) -> tuple[list[fx.Node], fx.Node]:
        """The chain of view calls that leads to a node, and the tensor at its start."""
        path: list[fx.Node] = []
        while (source := self.viewed(node)) is not None:
            path.append(node)
            node = source
        while not isinstance(_fake(node), torch.Tensor):
            node = path.pop()
        return path, node

    def viewed(self, node: fx.Node) -> fx.Node | None:
        """The tensor that a call returns a view of (or several, or a part of one); None for other calls."""
        if not _only_reads(node):
            return None
        memory = _memories(node)
        sources = [used for used in node.all_input_nodes if memory and _memories(used) == memory]
        return self.first(sources[0]) if len(sources) == 1 else None

    def is_known(self, node: fx.Node, known: set[fx.Node]) -> bool:
        """Whether a node's result is available after the graph, or is a number computed from available ones."""
        if is_number(node):
            return all(self.first(used) in known for used in tensors_used(node))
        return node.op == "get_attr" or self.first(node) in known


def _memories(node: fx.Node) -> set[int]:
    leaves = tree_leaves(_fake(node))
    if not all(_is_strided(leaf) for leaf in leaves):
        return set()
    found = {int(leaf.untyped_storage()._cdata) for leaf in leaves}
    return found if len(found) == 1 else set()


def _only_reads(node: fx.Node) -> bool:
    """Whether a call that shares memory with its argument is a view operation of torch."""
    target = node.target
    if node.op == "call_method":
        return not str(target).endswith("_")
    if node.op != "call_function" or "out" in node.kwargs:
        return False
    name = getattr(target, "__name__", "")
    if target in (operator.getitem, getattr):
        return True
    return not name.endswith("_") and getattr(torch, name, None) is target


def _giving(whole: fx.GraphModule, given: tuple[fx.Node, ...]) -> fx.GraphModule:
    """A copy of the graph that returns the given nodes."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in whole.graph.nodes:
        if node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    result = graph.output(tuple(copies[node] for node in given))
    result.meta["example_value"] = tuple(node.meta.get("example_value") for node in given)
    return fx.GraphModule(whole, graph, type(whole).__name__)
