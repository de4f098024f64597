"""A captured graph with calls that no back end is given (`trace/recording/uncompiled_calls.py`), or that make a tensor
one that collects gradients (`trace/recording/tensor_state.py`): what stands between them is compiled, a piece at a
time, and another graph calls the pieces and them.

Numbers do not go from piece to piece: each computes those that it needs from the sizes of what it is given.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import torch
from torch import fx

from armature.torch_abi import views
from armature.torch_abi.fake import enable_python_dispatcher, version_of
from armature.torch_abi.grad_modes import set_grad_enabled
from armature.torch_abi.pytree import tree_leaves
from armature.torch_abi.symbols import SYMBOLIC
from armature.torch_abi.wrappers import fake_mode_of
from armature.trace.data import LEAVE, GraphInput, TracedFrame, is_uncompiled, written_uncompiled
from armature.trace.recording.tensor_state import APART

CONDITION: object = torch.ops.higher_order.cond
CompilePiece = Callable[[TracedFrame], Callable[..., Any]]
OF_PIECES = (APART,)  # in the meta of a node, and not of what stands for it in a piece
OF_WHOLE = (APART, "counts_writes")


def is_apart(node: fx.Node) -> bool:
    """Whether a node is done between pieces."""
    return is_uncompiled(node) or APART in node.meta


def is_apart_for_kernels(node: fx.Node) -> bool:
    """The same where pieces become kernels, which call no other graphs: a branch or a loop is called between them."""
    return is_apart(node) or calls_graphs(node)


def calls_graphs(node: fx.Node) -> bool:
    """Whether a node is given graphs of their own, to call them: branches, the body of a loop."""
    return node.op == "call_function" and any(used.op == "get_attr" for used in node.all_input_nodes)


@attrs.frozen(eq=False)
class Piece:
    """Nodes that are compiled together. given: what they use of the rest of the graph; made: what that uses of them."""

    nodes: tuple[fx.Node, ...]
    given: tuple[fx.Node, ...]
    made: tuple[fx.Node, ...]

    @classmethod
    def of(cls, group: Sequence[fx.Node], reached: frozenset[fx.Node] = frozenset()) -> Piece:
        """reached: nodes of which more is used than one sees, the whole memory of a tensor."""
        own = set(group)
        given = dict.fromkeys(used for node in group for used in tensors_used(node) if used not in own)
        made = tuple(node for node in group if node in reached or not own.issuperset(node.users))
        return cls(tuple(group), tuple(given), made)

    def module(self, whole: fx.GraphModule, counts_writes: bool) -> fx.GraphModule:
        """The piece as a graph. counts_writes: its callable has to count what is written to inputs."""
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in self.given:
            copies[node] = graph.placeholder(node.name)
            left_out = OF_PIECES if counts_writes else OF_WHOLE
            copies[node].meta = {key: held for key, held in node.meta.items() if key not in left_out}
        for node in self.nodes:
            copies[node] = graph.node_copy(node, lambda used: copied(graph, used, copies))
        result = graph.output(tuple(copies[node] for node in self.made))
        result.meta["example_value"] = tuple(node.meta["example_value"] for node in self.made)
        return fx.GraphModule(whole, graph, type(whole).__name__)


@attrs.define(eq=False)
class Outer:
    """The graph that calls the pieces, while it grows. copies, fakes: for nodes of the whole."""

    traced: TracedFrame
    whole: fx.GraphModule
    learns: bool  # whether there is something with a gradient
    alters: bool  # whether a call makes a tensor one that collects gradients: fakes tell only what it is in the end
    graph: fx.Graph = attrs.field(factory=fx.Graph)
    copies: dict[fx.Node, fx.Node] = attrs.field(factory=dict)
    inputs: dict[fx.Node, GraphInput] = attrs.field(factory=dict)  # or what other pieces have made
    fakes: dict[fx.Node, Any] = attrs.field(factory=dict)  # of what calls between pieces give
    used: set[int | None] = attrs.field(factory=set)  # memory that a way back may read; only where there is one
    count: int = 0

    def open(self) -> None:
        """The inputs of the whole."""
        places = [node for node in self.whole.graph.nodes if node.op == "placeholder"]
        for node, given in zip(places, self.traced.inputs, strict=True):
            self.copies[node], self.inputs[node] = self.graph.node_copy(node), given

    def close(self, output: fx.Node) -> None:
        """The results of the whole."""
        self.graph.node_copy(output, lambda used: copied(self.graph, used, self.copies))

    def copy(self, node: fx.Node) -> None:
        """A call that is made between pieces."""
        self.copies[node] = self.graph.node_copy(node, lambda used: copied(self.graph, used, self.copies))
        if node.meta.get("example_value") is None:
            return
        if calls_graphs(node):
            self.fakes[node] = node.meta["example_value"]
            return
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.fake)
        mode = fake_mode_of(tree_leaves((args, node.meta["example_value"])))
        with mode or contextlib.nullcontext(), enable_python_dispatcher():
            if isinstance(node.target, str):
                found = getattr(args[0], node.target)(*args[1:], **kwargs)
            else:
                found = node.target(*args, **kwargs)
        self.fakes[node] = found
        if isinstance(found, torch.Tensor):
            self.inputs[node] = GraphInput(node.name, None, found)

    def choose(self, node: fx.Node, compile_piece: CompilePiece) -> None:
        """A call of one of two graphs, each compiled by itself. With gradients it is torch's own call: that gives zeros
        where the branch not taken would have given some."""
        called: Any = node.args
        predicate, *getters, operands = called[:4]
        given = tuple(self.inputs[operand] for operand in operands)
        branches: list[Any] = [self.whole.get_submodule(getter.target) for getter in getters]
        parts = (attrs.evolve(self.traced, graph=branch, inputs=given, guards=()) for branch in branches)
        run = named(one_of(*map(compile_piece, parts)), f"choice_{self.count}")
        arguments = (predicate, *operands)
        self.copies[node] = self.graph.call_function(run, tuple(self.copies[used] for used in arguments))
        self.fakes[node] = node.meta["example_value"]
        self.count += 1

    def fake(self, node: fx.Node) -> Any:
        """What stands for a node's result by now."""
        known = self.inputs.get(node)
        return known.fake if known is not None else self.fakes.get(node, node.meta.get("example_value"))

    def note_used(self, piece: Piece) -> None:
        """A way back may compute again from all that a piece reads, and may keep what has a history."""
        for node in piece.nodes:
            own = memory_of(node)
            self.used |= {memory_of(given) for given in node.all_input_nodes} - {own}
            if needs_gradient(node.meta.get("example_value")):
                self.used.add(own)
        self.used.discard(None)

    def keeps(self, written: Sequence[fx.Node]) -> bool:
        """Whether a way back finds what it needs, though some tensors are written to now."""
        return self.used.isdisjoint(map(memory_of, written))

    def call(self, piece: Piece, compile_piece: CompilePiece) -> bool:
        """A piece. False: something about it has to be known that the next ones can't be told."""
        part = self.part(piece)
        after = fakes_after(part, keep=self.alters)
        if after is None:
            return False
        results, written = after
        if not self.keeps([piece.given[position] for position in written]):
            return False
        if self.learns:
            self.note_used(piece)
        if written and self.learns and part.graph is not None:
            # derivatives may need what was there, which a graph keeps by keeping its input
            run = part.graph.forward
        else:
            run = compile_piece(part)
            run = views.counting(run, dict.fromkeys(written, True)) if written else run
        self.place(piece, run, results)
        return True

    def part(self, piece: Piece, counts_writes: bool = False) -> TracedFrame:
        """A piece, to be compiled."""
        given = tuple(self.inputs[node] for node in piece.given)
        module = piece.module(self.whole, counts_writes)
        name = f"{self.traced.name}_{self.count}"
        return attrs.evolve(self.traced, name=name, graph=module, inputs=given, guards=())

    def place(self, piece: Piece, run: Callable[..., Any], results: Sequence[Any]) -> None:
        """A call of a compiled piece. results: what it makes, as fakes."""
        target = named(run, f"piece_{self.count}")
        called = self.graph.call_function(target, tuple(self.copies[node] for node in piece.given))
        for position, (node, fake) in enumerate(zip(piece.made, results, strict=True)):
            self.copies[node] = self.graph.call_function(operator.getitem, (called, position))
            self.inputs[node] = GraphInput(node.name, None, fake)
        self.count += 1


def compiled(
    traced: TracedFrame, compile_piece: CompilePiece, apart: Callable[[fx.Node], bool]
) -> Callable[..., Any] | None:
    """The graph's callable; None where it has to run operator by operator. apart: whether a node is in no piece."""
    whole = traced.graph
    steps = None if whole is None else steps_of(whole.graph, apart)
    if whole is None or steps is None:
        return None
    learns = any(needs_gradient(leaf) for n in whole.graph.nodes for leaf in tree_leaves(n.meta.get("example_value")))
    outer = Outer(traced, whole, learns, any(APART in node.meta for node in whole.graph.nodes))
    outer.open()
    grad, switches = torch.is_grad_enabled(), False
    try:
        for step in steps:
            if isinstance(step, Piece):
                if not outer.call(step, compile_piece):
                    return None
                continue
            if step.target is CONDITION and not learns:
                outer.choose(step, compile_piece)
            else:
                outer.copy(step)
            if step.target is set_grad_enabled:
                set_grad_enabled(*step.args)  # as it is when the pieces after it run
                switches = True
            elif is_uncompiled(step) and not outer.keeps(written_uncompiled(step)):
                return None
    finally:
        set_grad_enabled(grad)
    outer.close(whole.graph.output_node())
    run: Callable[..., Any] = fx.GraphModule(whole, outer.graph, type(whole).__name__).forward
    return setting_back(run) if switches else run


def needs_gradient(fake: object) -> bool:
    """Whether a tensor has a history, or collects gradients."""
    return isinstance(fake, torch.Tensor) and fake.requires_grad


class Keeping(fx.Interpreter):
    """Runs a graph on fakes and keeps with each node the one that it gives."""

    def run_node(self, n: fx.Node) -> Any:
        """The result of a node."""
        found = super().run_node(n)
        if isinstance(found, torch.Tensor) or n.op == "output":
            n.meta["example_value"] = found
            n.meta.pop("traced_value", None)
        return found


def fakes_after(part: TracedFrame, *, keep: bool) -> tuple[tuple[Any, ...], list[int]] | None:
    """What a piece gives, as fakes, and positions of those it writes to, as it would to tensors. None where that
    changes what its own graph can't know: another tensor over the same memory, or a layout. keep: nodes of the piece
    get the fakes that they have there."""
    if part.graph is None:
        return None
    given = [one.fake for one in part.inputs]
    tensors = {n: fake for n, fake in enumerate(given) if isinstance(fake, torch.Tensor)}
    mode = fake_mode_of([*given, *(node.meta.get("example_value") for node in part.graph.graph.nodes)])
    before = {n: (fake.shape, fake.stride(), version_of(fake), fake.requires_grad) for n, fake in tensors.items()}
    with mode if mode is not None else contextlib.nullcontext(), enable_python_dispatcher():
        results: tuple[Any, ...] = Keeping(part.graph).run(*given) if keep else part.graph(*given)
    after = {n: (fake.shape, fake.stride(), version_of(fake), fake.requires_grad) for n, fake in tensors.items()}
    written = [n for n in tensors if before[n] != after[n]]
    if any(before[n][:2] != after[n][:2] for n in written):
        return None
    memories = [fake.untyped_storage()._cdata for fake in tensors.values() if fake.layout is torch.strided]
    return None if written and len(set(memories)) < len(memories) else (results, written)


def one_of(run_true: Callable[..., Any], run_false: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls one of two, by the truth of its first argument."""

    def call(predicate: torch.Tensor, *operands: Any) -> Any:
        return run_true(*operands) if predicate else run_false(*operands)

    return call


def named(run: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function as the target of a node."""

    def call(*args: Any) -> Any:
        return run(*args)

    call.__name__ = call.__qualname__ = name
    return call


def setting_back(run: Callable[..., Any]) -> Callable[..., Any]:
    """For a graph that switches the grad mode: it is what it was, should something raise."""

    def call(*args: Any) -> Any:
        grad = torch.is_grad_enabled()
        try:
            return run(*args)
        except BaseException:
            set_grad_enabled(grad)
            raise

    return call


def steps_of(graph: fx.Graph, stands_apart: Callable[[fx.Node], bool]) -> list[Piece | fx.Node] | None:
    """The pieces and the calls between them, in order; None where something can't go from piece to piece."""
    groups: list[list[fx.Node]] = [[]]
    apart: list[fx.Node] = []
    for node in graph.nodes:
        if node.op in ("placeholder", "output", "get_attr") or is_number(node):
            continue
        linked = LEAVE in node.meta or any(LEAVE in used.meta for used in node.all_input_nodes)
        if "changes_state" in node.meta and node.target is not set_grad_enabled and not linked:
            return None  # what is linked may stand in one piece, and can't cross
        taken = node.target is operator.getitem and node.args[0] in apart
        if stands_apart(node) or taken or node.target is set_grad_enabled:
            apart.append(node)
            groups.append([])
        else:
            groups[-1].append(node)
    owners = _owners(graph)
    memories = (memory for node in apart for memory in map(memory_of, node.all_input_nodes))
    reached = frozenset(owners[memory] for memory in memories if memory in owners)
    pieces = [Piece.of(group, reached) for group in groups]
    crossing = {node for piece in pieces for node in (*piece.given, *piece.made) if node.op != "placeholder"}
    if not all(isinstance(node.meta.get("example_value"), torch.Tensor) for node in crossing):
        return None
    steps: list[Piece | fx.Node] = []
    for position, piece in enumerate(pieces):
        steps += [piece] if piece.nodes else []
        steps += apart[position : position + 1]
    return steps


def tensors_used(node: fx.Node) -> Iterator[fx.Node]:
    """What a node takes, in place of numbers what those are computed from."""
    for used in node.all_input_nodes:
        if is_number(used) and used.op != "placeholder":
            yield from tensors_used(used)
        elif used.op != "get_attr":
            yield used


def is_number(node: fx.Node) -> bool:
    """Whether a node gives numbers."""
    leaves = tree_leaves(node.meta.get("example_value"))
    return bool(leaves) and all(isinstance(leaf, (int, float, *SYMBOLIC)) for leaf in leaves)


def memory_of(node: fx.Node) -> int | None:
    """In which memory the result of a node is."""
    fake = node.meta.get("example_value")
    if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
        return None
    return int(fake.untyped_storage()._cdata)


def _owners(graph: fx.Graph) -> dict[int | None, fx.Node]:
    """Of each memory the node that makes it."""
    owners: dict[int | None, fx.Node] = {}
    for node in graph.nodes:
        owners.setdefault(memory_of(node), node)
    owners.pop(None, None)
    return owners


def copied(graph: fx.Graph, node: fx.Node, copies: dict[fx.Node, fx.Node]) -> fx.Node:
    """What stands for a node in another graph: a number is computed there."""
    if node not in copies:
        copies[node] = graph.node_copy(node, lambda used: copied(graph, used, copies))
    return copies[node]
