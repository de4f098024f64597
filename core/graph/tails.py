"""Views at the end of a training graph: they are taken of what the compiled graph gives, by the calls of the program.

Autograd knows of which tensor a view is one, what a call that gives several allows to be done to them, and which of
them count writes together. A compiled graph that gave the views themselves would lose all that.
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
class Tail:
    """Calls at the end of a graph that give views, in order, and the graph without these results.

    given: results of that graph; made: nodes that give views; switched: those for which the grad mode is another one.
    """

    whole: fx.GraphModule
    inner: fx.GraphModule
    given: tuple[fx.Node, ...]
    made: tuple[fx.Node, ...]
    switched: frozenset[fx.Node]

    def after(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The whole graph's callable. run: that of the graph without the calls."""
        graph = fx.Graph()
        places = [node for node in self.whole.graph.nodes if node.op == "placeholder"]
        copies = {node: graph.node_copy(node) for node in places}
        called = graph.call_function(named(run, "compiled"), tuple(copies[node] for node in places))
        for position, node in enumerate(self.given):
            copies[node] = graph.call_function(operator.getitem, (called, position))
        for node in [*copies]:
            self.name_all(node, copies)
        mode = before = torch.is_grad_enabled()
        for node in self.made:
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
        """One tensor may have several nodes, those of calls in place."""
        if _is_strided(fake := _fake(node)):
            for other in self.whole.graph.nodes:
                if other is not node and _fake(other) is fake:
                    copies.setdefault(other, copies[node])


def tail_of(whole: fx.GraphModule) -> Tail | None:
    """The views that a graph ends with, if others see their memory or autograd knows more of them than their numbers;
    None: there are none, or they have to be compiled."""
    modes = _grad_modes(whole.graph)
    returned = cast(Any, whole.graph.output_node().args[0])
    results = [node for node in returned if isinstance(node, fx.Node)]
    if modes is None or not torch.is_grad_enabled() or not any(_learns(node) for node in whole.graph.nodes):
        return None
    graph = _Nodes(whole.graph)
    made: set[fx.Node] = set()
    bases: dict[fx.Node, None] = {}
    for result in graph.related(results):
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
    return Tail(whole, _giving(whole, given), given, order, switched)


def reads_apart(whole: fx.GraphModule) -> bool:
    """Whether a training graph gives `x.data`, or a view of it, and reads it too: backward may need it, and keeps `x`,
    whose writes are counted by themselves."""
    graph = _Nodes(whole.graph)
    if not torch.is_grad_enabled() or not any(_learns(node) for node in whole.graph.nodes):
        return False
    paths = [graph.path(graph.first(node))[0] for node in whole.graph.output_node().all_input_nodes]
    steps = {step for path in paths for step in path}
    apart = (path[: path.index(step) + 1] for path in paths for step in path if _is_data(step))
    read = (user for path in apart for step in path for user in step.users)
    return any(user not in steps and user.op != "output" for user in read)


def _is_data(node: fx.Node) -> bool:
    return node.target is getattr and node.args[1] == "data"


def _grad_modes(graph: fx.Graph) -> Mapping[fx.Node, bool] | None:
    """Whether gradients are recorded at each node; None where other state of torch changes, or this one stays so."""
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


def _learns(node: fx.Node) -> bool:
    fake = _fake(node)
    return isinstance(fake, torch.Tensor) and fake.requires_grad


@attrs.define(eq=False)
class _Nodes:
    """The nodes of a graph by what they give: the first is that of a tensor, and those of calls in place follow."""

    graph: fx.Graph
    firsts: dict[int, fx.Node] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for node in self.graph.nodes:
            if isinstance(_fake(node), torch.Tensor):
                self.firsts.setdefault(id(_fake(node)), node)

    def first(self, node: fx.Node) -> fx.Node:
        """The node that makes what a node gives."""
        return self.firsts.get(id(_fake(node)), node)

    def related(self, results: list[fx.Node]) -> Iterator[fx.Node]:
        """Results that others share the memory of, and those to which autograd does not allow everything."""
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
        """Whether writes to what a node gives are not counted for what it is a view of."""
        return any(map(_is_data, self.path(node)[0]))

    def path(self, node: fx.Node) -> tuple[list[fx.Node], fx.Node]:
        """The calls that make views one of another up to a node, and the tensor that the first is a view of."""
        path: list[fx.Node] = []
        while (source := self.viewed(node)) is not None:
            path.append(node)
            node = source
        while not isinstance(_fake(node), torch.Tensor):
            node = path.pop()
        return path, node

    def viewed(self, node: fx.Node) -> fx.Node | None:
        """What a call gives a view of, or views, or a part of them; None: it does something else."""
        if not _only_reads(node):
            return None
        memory = _memories(node)
        sources = [used for used in node.all_input_nodes if memory and _memories(used) == memory]
        return self.first(sources[0]) if len(sources) == 1 else None

    def is_known(self, node: fx.Node, known: set[fx.Node]) -> bool:
        """Whether what a node gives is at hand after the graph, or is a number computed from what is."""
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
    """Whether a call that shares memory with what it takes is one of torch that gives a view."""
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
    """The graph with other results."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in whole.graph.nodes:
        if node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    result = graph.output(tuple(copies[node] for node in given))
    result.meta["example_value"] = tuple(node.meta.get("example_value") for node in given)
    return fx.GraphModule(whole, graph, type(whole).__name__)
