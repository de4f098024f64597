"""Splits a training graph into several consecutive pieces, so that backward produces gradients in stages: those of the
last piece first. Passes of the stage "split" decide where to cut.

A cut moves towards the start of the graph if something would cross it that only a single graph can handle: a value that
is not a tensor, memory that is written to after the cut, or a torch context that is entered before it and left after
it.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch import fx

from armature.events import CompileEvent, EventKind
from armature.graph.data import Split
from armature.graph.passes import run_passes
from armature.graph.pieces import CompilePiece, Outer, Piece, is_number, tensors_used
from armature.torch_abi.fake import FakeTensor, enable_python_dispatcher, version_of
from armature.torch_abi.grad_modes import set_grad_enabled
from armature.torch_abi.pytree import tree_leaves
from armature.torch_abi.wrappers import fake_mode_of
from armature.trace.data import LEAVE, GraphInput, TracedFrame

if TYPE_CHECKING:
    from armature.context import CompileContext

NOT_STEPS = ("placeholder", "output", "get_attr")


def compiled(traced: TracedFrame, ctx: CompileContext, compile_piece: CompilePiece) -> Callable[..., Any] | None:
    """The callable of a training graph that is cut; None if no pass asks for cuts or there is no place for one."""
    module = traced.graph
    if module is None or not torch.is_grad_enabled() or not any(map(_collects, traced.inputs)):
        return None
    wanted = run_passes("split", Split(module, _parameters(traced)), ctx).cuts
    if not wanted:
        return None
    steps = _Steps.of(traced, module)
    cuts = steps.places_for(wanted)
    summary = f"split into {len(cuts) + 1} pieces, of {len(wanted) + 1} that were requested"
    ctx.emit(CompileEvent(EventKind.STAGE, ctx.compile_id, traced.name, "", 0, summary))
    if not cuts:
        return None
    outer = Outer(traced, module, trains=True, alters=False)
    outer.open()
    for nodes in steps.between(cuts):
        piece = Piece.of(nodes)
        run = compile_piece(outer.part(piece, counts_writes=True))
        outer.place(piece, run, [node.meta["example_value"] for node in piece.outputs])
    outer.close(module.graph.output_node())
    whole: Callable[..., Any] = fx.GraphModule(module, outer.graph, type(module).__name__).forward
    return whole


def _collects(given: GraphInput) -> bool:
    return isinstance(given.fake, torch.Tensor) and given.fake.requires_grad


def _parameters(traced: TracedFrame) -> dict[fx.Node, torch.nn.Parameter]:
    """The program's parameters among the graph's inputs."""
    places = [node for node in traced.graph.graph.nodes if node.op == "placeholder"] if traced.graph else []
    reals = {node: given.real() for node, given in zip(places, traced.inputs, strict=True) if given.real is not None}
    return {node: real for node, real in reals.items() if isinstance(real, torch.nn.Parameter)}


@attrs.frozen(eq=False)
class _Steps:
    """The steps of a graph in order, without numbers, which each piece computes itself. A cut at k is before nodes[k].
    closed: positions where no cut is possible."""

    nodes: tuple[fx.Node, ...]
    closed: frozenset[int]

    @classmethod
    def of(cls, traced: TracedFrame, module: fx.GraphModule) -> _Steps:
        nodes = tuple(node for node in module.graph.nodes if node.op not in NOT_STEPS and not is_number(node))
        spans = (*_contexts(nodes), *_values(nodes, module.graph), *_memories(nodes, traced, module))
        return cls(nodes, frozenset(k for first, last in spans for k in range(first + 1, last + 1)))

    def places_for(self, wanted: frozenset[fx.Node]) -> tuple[int, ...]:
        """The nearest possible cuts at or before the wanted ones."""
        found: set[int] = set()
        for k, node in enumerate(self.nodes):
            if node in wanted:
                found.add(next((j for j in range(k, 0, -1) if j not in self.closed), 0))
        return tuple(sorted(found - {0}))

    def between(self, cuts: Sequence[int]) -> Iterator[tuple[fx.Node, ...]]:
        """The nodes of each piece."""
        for first, last in zip((0, *cuts), (*cuts, len(self.nodes)), strict=True):
            yield self.nodes[first:last]


Span = tuple[int, int]  # from a node to a later one, with no cut between them


def _contexts(nodes: Sequence[fx.Node]) -> Iterator[Span]:
    """Spans in which torch's state differs from that at the call of the graph."""
    entered: dict[fx.Node, int] = {}
    off: int | None = None
    for k, node in enumerate(nodes):
        if "changes_state" not in node.meta:
            continue
        left = [used for used in node.all_input_nodes if used in entered]
        if left:
            yield entered[left[0]], k
        elif LEAVE in node.meta:
            entered[node] = k
        elif node.target is set_grad_enabled:
            if off is not None:
                yield off, k
            off = None if node.args[0] else k
        else:
            yield k, len(nodes)
    if off is not None:
        yield off, len(nodes)


def _values(nodes: Sequence[fx.Node], graph: fx.Graph) -> Iterator[Span]:
    """Spans in which a value is live that is not a tensor."""
    last = _last_uses(nodes, graph)
    for k, node in enumerate(nodes):
        if type(node.meta.get("example_value")) is not FakeTensor and node in last:
            yield k, last[node]


def _last_uses(nodes: Sequence[fx.Node], graph: fx.Graph) -> dict[fx.Node, int]:
    """The last step that uses each node's result; for results of the graph, the end."""
    last: dict[fx.Node, int] = {}
    for k, node in enumerate((*nodes, graph.output_node())):
        last.update(dict.fromkeys(tensors_used(node), k))
    return last


def _memories(nodes: Sequence[fx.Node], traced: TracedFrame, module: fx.GraphModule) -> Iterator[Span]:
    """Spans in which memory is in use that a later step writes to. All uses of an input that is written to must be in
    one piece, because only that piece knows which old values backward needs."""
    run = _Rerun.of(traced, module)
    uses: dict[int, list[int]] = {}
    for k, node in enumerate((*nodes, module.graph.output_node())):
        for memory in {run.memories[one] for one in (node, *tensors_used(node)) if one in run.memories}:
            uses.setdefault(memory, []).append(k)
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    given = {run.memories.get(node) for node in places}
    written = {run.memories[node] for node in places if "counts_writes" in node.meta and node in run.memories}
    position = {node: k for k, node in enumerate(nodes)}
    writes = [(memory, position.get(node, len(nodes))) for node, memory in run.writes]
    for memory, k in (*((memory, 0) for memory in written), *writes):
        if memory in uses:
            yield uses[memory][0], uses[memory][-1] if memory in given else k


@attrs.frozen(eq=False)
class _Rerun:
    """A run of the graph on other fakes over the same memory: the memory of each result, and the writes in order. The
    fakes used for compiling are unaffected."""

    values: dict[fx.Node, Any] = attrs.field(factory=dict)
    memories: dict[fx.Node, int] = attrs.field(factory=dict)
    writes: list[tuple[fx.Node, int]] = attrs.field(factory=list)

    @classmethod
    def of(cls, traced: TracedFrame, module: fx.GraphModule) -> _Rerun:
        run, given = cls(), iter(traced.inputs)
        mode = fake_mode_of([one.fake for one in traced.inputs])
        entered: dict[fx.Node, Callable[[Any], Any]] = {}
        with mode or contextlib.nullcontext(), enable_python_dispatcher(), torch.no_grad():
            try:
                for node in module.graph.nodes:
                    if node.op == "placeholder":
                        fake = next(given).fake
                        run.keep(node, fake.data if isinstance(fake, torch.Tensor) else fake)
                    elif node.op != "output" and node.target is not set_grad_enabled:
                        run.step(node, module)
                        if LEAVE in node.meta:
                            entered[node] = node.meta[LEAVE]
                        for used in node.all_input_nodes if "changes_state" in node.meta else ():
                            entered.pop(used, None)
            finally:
                for node, leave in reversed(entered.items()):
                    leave(run.values[node])
        return run

    def step(self, node: fx.Node, module: fx.GraphModule) -> None:
        """Run one node, and record its writes."""
        if node.op == "get_attr":
            self.keep(node, operator.attrgetter(str(node.target))(module))
            return
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.values.__getitem__)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        before = [version_of(tensor) for tensor in tensors]
        if callable(node.target):
            result = node.target(*args, **kwargs)
        else:
            result = getattr(args[0], node.target)(*args[1:], **kwargs)
        changed = [tensor for tensor, version in zip(tensors, before, strict=True) if version_of(tensor) != version]
        self.writes.extend((node, memory) for memory in map(_memory, changed) if memory is not None)
        self.keep(node, result)

    def keep(self, node: fx.Node, result: Any) -> None:
        """Store a node's result."""
        self.values[node] = result
        memory = _memory(result)
        if memory is not None:
            self.memories[node] = memory


def _memory(fake: object) -> int | None:
    if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
        return None
    return int(fake.untyped_storage()._cdata)
