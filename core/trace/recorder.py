"""Records the graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

import attrs
from torch import fx

from armature.torch_abi.symbols import SYMBOLIC

V = TypeVar("V")
N = TypeVar("N")
L = TypeVar("L")
CallArguments: TypeAlias = tuple[Sequence[V], Mapping[str, V]]


@attrs.define(eq=False)
class GraphRecorder(Generic[V, N, L]):
    """The FX graph of a trace so far, and what is known of it as a whole.

    inputs N: the tensors and numbers of the program that it takes. modules: subgraphs that nodes call. rewrites: change
    the arguments of a call that enters the graph, by the name of the function. mutates: whether the graph has an
    in-place operator. keeps_floats: whether float arguments of the program stay graph inputs. subgraph_depth: nesting
    depth of calls whose nodes go in a subgraph; subgraph_tensors: tensors made in such a call, and where.
    """

    graph: fx.Graph = attrs.field(factory=fx.Graph)
    inputs: list[N] = attrs.field(factory=list)
    modules: dict[str, fx.GraphModule] = attrs.field(factory=dict)
    rewrites: dict[Callable[[str, Sequence[V], Mapping[str, V]], CallArguments[V]], None] = attrs.field(factory=dict)
    mutates: bool = False
    keeps_floats: bool = False
    subgraph_depth: int = 0
    subgraph_tensors: dict[N, L] = attrs.field(factory=dict)

    @property
    def last(self) -> fx.Node | None:
        """The last node, None in an empty graph."""
        return next(iter(reversed(self.graph.nodes)), None)

    @property
    def computes(self) -> bool:
        """Whether the graph does more than change torch's state back and forth."""
        return any("changes_state" not in node.meta for node in self.calls())

    @property
    def computes_more_than_sizes(self) -> bool:
        """Whether any call in the graph has a result other than a symbolic number."""
        found = (node.meta for node in self.calls() if "changes_state" not in node.meta)
        return any(not isinstance(meta.get("example_value"), SYMBOLIC) for meta in found)

    def calls(self) -> Iterator[fx.Node]:
        """The nodes that are calls."""
        return (node for node in self.graph.nodes if node.op.startswith("call_"))

    def after(self, last: fx.Node | None) -> tuple[fx.Node, ...]:
        """The nodes after `last`, without inputs of the graph."""
        found = itertools.takewhile(lambda node: node is not last, reversed(self.graph.nodes))
        return tuple(node for node in found if node.op != "placeholder")[::-1]
