"""Splits a captured graph at calls that are not passed to a back end (`plugin_values.py`) or that
switch on gradients of a tensor (`trace/recording/tensor_state.py`). The parts in between are compiled, a piece at a
time, and an outer graph calls the pieces and those calls.

Numbers are not passed from piece to piece: each piece computes those that it needs from the sizes of its inputs.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from types import MethodType
from typing import Any

import attrs
import torch
from torch import fx

from armature.frame.rerun import Leave, leave_contexts
from armature.torch_abi import altering, views
from armature.torch_abi.fake import enable_python_dispatcher, version_of
from armature.torch_abi.functions import Functions
from armature.torch_abi.grad_modes import NESTING, set_grad_enabled
from armature.torch_abi.operators import is_of_library, overloads_of, written_positions
from armature.torch_abi.pytree import tree_leaves, tree_map
from armature.torch_abi.symbols import SYMBOLIC
from armature.torch_abi.wrappers import fake_mode_of
from armature.trace.data import LEAVE, UNCOMPILED, GraphInput, TracedFrame, is_uncompiled
from armature.trace.recording.tensor_state import BETWEEN_PIECES

CONDITION: object = torch.ops.higher_order.cond
CompilePiece = Callable[[TracedFrame], Callable[..., Any]]
# Takes a call of an operator that takes graphs: the operator, its arguments, and whether gradients are needed.
CompileCall = Callable[[Any, tuple[Any, ...], bool], Callable[..., Any] | None]
OF_PIECES = (BETWEEN_PIECES,)  # meta keys that a piece's copy of a node does not get
OF_WHOLE = (BETWEEN_PIECES, "counts_writes")


def runs_between_pieces(node: fx.Node) -> bool:
    """Whether a node runs between pieces."""
    return is_uncompiled(node) or BETWEEN_PIECES in node.meta


def written_uncompiled(node: fx.Node) -> list[fx.Node]:
    """The arguments that an uncompiled call may write to, including members of tuples."""
    found: list[fx.Node] = []
    if isinstance(node.target, torch._ops.OpOverload):
        writes = written_positions(node.target)
        given = tuple(arg for position, arg in enumerate(node.args) if position in writes)
        fx.map_arg((given, dict(node.kwargs) if writes else {}), found.append)
        return found
    writes = getattr(node.target, UNCOMPILED)
    given = tuple(arg for position, arg in enumerate(node.args) if writes is None or position in writes)
    fx.map_arg((given, dict(node.kwargs) if writes is None else {}), found.append)
    return found


def runs_between_kernels(node: fx.Node, functions: Functions) -> bool:
    """The same if pieces become kernels. Those call no other graphs, write to no tensors by operators of libraries and
    make no sparse gradients: a branch or a loop, and what does so, is called between them."""
    if runs_between_pieces(node) or calls_graphs(node) or writes_of_library(node):
        return True
    return needs_gradient(node.meta.get("example_value")) and functions.has_sparse_gradient(node)


def writes_of_library(node: fx.Node) -> bool:
    """Whether a node calls an operator that a library or the program has registered and that writes to arguments."""
    return is_of_library(node.target) and any(one._schema.is_mutable for one in overloads_of(node.target))


def written_between(node: fx.Node) -> list[fx.Node]:
    """The arguments that a call between pieces may write to."""
    if is_uncompiled(node) or isinstance(node.target, torch._ops.OpOverload):
        return written_uncompiled(node)
    return node.all_input_nodes


def calls_graphs(node: fx.Node) -> bool:
    """Whether a node's arguments include graphs that it calls: branches, the body of a loop."""
    return node.op == "call_function" and any(map(is_graph, node.all_input_nodes))


def is_graph(node: fx.Node) -> bool:
    """Whether a node is a graph that another one calls."""
    return node.op == "get_attr"


@attrs.frozen(eq=False)
class Piece:
    """Nodes that are compiled together. inputs: nodes outside the piece that it uses. outputs: nodes of the
    piece that are used outside."""

    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]

    @classmethod
    def of(cls, group: Sequence[fx.Node], reached: frozenset[fx.Node] = frozenset()) -> Piece:
        """Make a piece of nodes. reached: nodes whose memory is used outside in ways that the graph does not show."""
        own = set(group)
        given = dict.fromkeys(used for node in group for used in tensors_used(node) if used not in own)
        made = tuple(node for node in group if node in reached or not own.issuperset(node.users))
        return cls(tuple(group), tuple(given), made)

    def module(self, whole: fx.GraphModule, counts_writes: bool) -> fx.GraphModule:
        """The piece as a graph. counts_writes: its callable must bump the versions of inputs that it writes to."""
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in self.inputs:
            copies[node] = graph.placeholder(node.name)
            left_out = OF_PIECES if counts_writes else OF_WHOLE
            copies[node].meta = {key: held for key, held in node.meta.items() if key not in left_out}
        for node in self.nodes:
            copies[node] = graph.node_copy(node, lambda used: copied(graph, used, copies))
        result = graph.output(tuple(copies[node] for node in self.outputs))
        result.meta["example_value"] = tuple(node.meta["example_value"] for node in self.outputs)
        return fx.GraphModule(whole, graph, type(whole).__name__)


@attrs.define(eq=False)
class Outer:
    """The graph that calls the pieces, while it grows. copies, fakes: by node of the whole graph."""

    traced: TracedFrame
    whole: fx.GraphModule
    trains: bool  # whether anything requires gradients
    alters: bool  # whether a call switches on a tensor's gradients: then fakes only show its final state
    # the fake mode of all fakes here; the trace's results have another mode if the inputs' fakes were remade after it
    mode: Any = None
    graph: fx.Graph = attrs.field(factory=fx.Graph)
    copies: dict[fx.Node, fx.Node] = attrs.field(factory=dict)
    inputs: dict[fx.Node, GraphInput] = attrs.field(factory=dict)  # the program's, or results of other pieces
    fakes: dict[fx.Node, Any] = attrs.field(factory=dict)  # results of the calls between pieces
    # memory that backward may read; only tracked if there is a backward
    used: set[int | None] = attrs.field(factory=set)
    count: int = 0
    entered: dict[fx.Node, Any] = attrs.field(factory=dict)  # contexts around the piece that is compiled now

    def open(self) -> None:
        """Add the whole graph's inputs."""
        places = [node for node in self.whole.graph.nodes if node.op == "placeholder"]
        for node, given in zip(places, self.traced.inputs, strict=True):
            self.copies[node], self.inputs[node] = self.graph.node_copy(node), given

    def close(self, output: fx.Node) -> None:
        """Add the whole graph's results."""
        self.graph.node_copy(output, lambda used: copied(self.graph, used, self.copies))

    def copy(self, node: fx.Node) -> None:
        """Add a call that is made between pieces."""
        self.copies[node] = self.graph.node_copy(node, lambda used: copied(self.graph, used, self.copies))
        if node.meta.get("example_value") is None:
            return
        if calls_graphs(node) or node.meta.get(BETWEEN_PIECES, True) is not True:
            self.fakes[node] = tree_map(self.in_this_mode, node.meta["example_value"])
            return
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.fake)
        with self.mode or contextlib.nullcontext(), enable_python_dispatcher():
            if isinstance(node.target, str):
                found = getattr(args[0], node.target)(*args[1:], **kwargs)
            else:
                found = node.target(*args, **kwargs)
        self.fakes[node] = found
        if isinstance(found, torch.Tensor):
            self.inputs[node] = GraphInput(node.name, None, found)

    def enter_or_leave(self, node: fx.Node) -> None:
        """Enter a context, as it will be when the pieces after it run; or leave one."""
        target: Any = node.target
        if LEAVE in node.meta:
            self.entered[node] = target(*node.args)
        for opened in node.all_input_nodes:
            target(self.entered.pop(opened))

    def leave_all(self) -> None:
        """Leave the contexts that are still entered."""
        for node, context in reversed(self.entered.items()):
            node.meta[LEAVE](context)

    def contexts(self) -> tuple[tuple[str, Leave], ...]:
        """The names that the graph gives to the contexts it enters, with the functions that leave them."""
        return tuple((copy.name, node.meta[LEAVE]) for node, copy in self.copies.items() if LEAVE in node.meta)

    def choose(self, node: fx.Node, compile_piece: CompilePiece) -> None:
        """Add a call of one of two graphs, each compiled on its own. With gradients it stays torch's own call, which
        gives zero gradients to inputs that only the untaken branch uses."""
        called: Any = node.args
        predicate, *getters, operands = called[:4]
        given = tuple(self.inputs[operand] for operand in operands)
        branches: list[Any] = [self.whole.get_submodule(getter.target) for getter in getters]
        parts = (attrs.evolve(self.traced, graph=branch, inputs=given, guards=()) for branch in branches)
        run = named(by_condition(*map(compile_piece, parts)), f"choice_{self.count}")
        arguments = (predicate, *operands)
        self.copies[node] = self.graph.call_function(run, tuple(self.copies[used] for used in arguments))
        self.fakes[node] = tree_map(self.in_this_mode, node.meta["example_value"])
        self.count += 1

    def compiled_call(self, node: fx.Node, compile_call: CompileCall) -> bool:
        """Add a call of an operator that takes graphs, if a back end compiles it."""
        graphs: dict[fx.Node, Any] = {
            used: self.whole.get_submodule(str(used.target)) for used in node.all_input_nodes if is_graph(used)
        }
        args: Any = fx.map_arg(node.args, lambda used: graphs[used] if used in graphs else self.fake(used))
        run = None if node.kwargs else compile_call(node.target, args, self.trains and torch.is_grad_enabled())
        if run is None:
            return False
        given = fx.map_arg(node.args, lambda used: copied(self.graph, used, self.copies))
        self.copies[node] = self.graph.call_function(named(run, f"call_{self.count}"), given)
        self.fakes[node] = tree_map(self.in_this_mode, node.meta["example_value"])
        self.count += 1
        return True

    def fake(self, node: fx.Node) -> Any:
        """The current fake of a node's result."""
        known = self.inputs.get(node)
        return known.fake if known is not None else self.fakes.get(node, node.meta.get("example_value"))

    def in_this_mode(self, result: Any) -> Any:
        """A fake like the result of a branch or a loop, made in the mode of the pieces' inputs."""
        if self.mode is None or fake_mode_of([result]) in (None, self.mode):
            return result
        with self.mode, torch.enable_grad():
            leaf = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device=result.device)
            return leaf.requires_grad_().clone() if result.requires_grad else leaf

    def note_used(self, piece: Piece) -> None:
        """Record that backward may recompute from anything that a piece reads, and may save results with a history."""
        for node in piece.nodes:
            own = memory_of(node)
            self.used |= {memory_of(given) for given in node.all_input_nodes} - {own}
            if needs_gradient(node.meta.get("example_value")):
                self.used.add(own)
        self.used.discard(None)

    def leaves_intact(self, written: Sequence[fx.Node]) -> bool:
        """Whether the values that backward needs are still intact after the given writes."""
        return self.used.isdisjoint(map(memory_of, written))

    def call(self, piece: Piece, compile_piece: CompilePiece) -> bool:
        """Add a piece. False if later pieces depend on something about it that fakes can't express."""
        part = self.part(piece)
        after = fakes_after(part, self.mode, keep=self.alters)
        if after is None:
            return False
        results, written = after
        if not self.leaves_intact([piece.inputs[position] for position in written]):
            return False
        if self.trains:
            self.note_used(piece)
        if written and self.trains and part.graph is not None and (len(piece.nodes) == 1 or records(part.graph)):
            # Backward may need the values before the write, which a graph saves by saving its input.
            run = part.graph.forward
        else:
            run = compile_piece(part)
            run = views.counting(run, dict.fromkeys(written, True)) if written else run
        self.place(piece, run, results)
        return True

    def part(self, piece: Piece, counts_writes: bool = False) -> TracedFrame:
        """Build a piece to be compiled."""
        given = tuple(self.inputs[node] for node in piece.inputs)
        module = piece.module(self.whole, counts_writes)
        name = f"{self.traced.name}_{self.count}"
        return attrs.evolve(self.traced, name=name, graph=module, inputs=given, guards=())

    def place(self, piece: Piece, run: Callable[..., Any], results: Sequence[Any]) -> None:
        """Add a call of a compiled piece. results: its results, as fakes."""
        target = named(run, f"piece_{self.count}")
        called = self.graph.call_function(target, tuple(self.copies[node] for node in piece.inputs))
        for position, (node, fake) in enumerate(zip(piece.outputs, results, strict=True)):
            self.copies[node] = self.graph.call_function(operator.getitem, (called, position))
            self.inputs[node] = GraphInput(node.name, None, fake)
        self.count += 1


def compiled(
    traced: TracedFrame,
    compile_piece: CompilePiece,
    apart: Callable[[fx.Node], bool],
    compile_call: CompileCall | None = None,
) -> Callable[..., Any] | None:
    """The graph's callable; None if it has to run operator by operator. apart: whether a node runs between pieces.
    compile_call: for calls of operators that take graphs."""
    whole = traced.graph
    steps = None if whole is None else steps_of(whole.graph, apart)
    if whole is None or steps is None:
        return None
    results = [leaf for node in whole.graph.nodes for leaf in tree_leaves(node.meta.get("example_value"))]
    alters = any(BETWEEN_PIECES in node.meta for node in whole.graph.nodes)
    mode = fake_mode_of([*(one.fake for one in traced.inputs), *results])
    outer = Outer(traced, whole, any(map(needs_gradient, results)), alters, mode)
    outer.open()
    grad, switches = torch.is_grad_enabled(), False
    try:
        for step in steps:
            if isinstance(step, Piece):
                if not outer.call(step, compile_piece):
                    return None
                continue
            if "changes_state" in step.meta and step.target is not set_grad_enabled:
                outer.enter_or_leave(step)
            if step.target is CONDITION and not outer.trains:
                outer.choose(step, compile_piece)
            elif compile_call is None or not calls_graphs(step) or not outer.compiled_call(step, compile_call):
                outer.copy(step)
            if step.target is set_grad_enabled:
                set_grad_enabled(*step.args)  # as it will be when the pieces after it run
                switches = True
            elif (is_uncompiled(step) or writes_of_library(step)) and not outer.leaves_intact(written_between(step)):
                return None
    finally:
        set_grad_enabled(grad)
        outer.leave_all()
    outer.close(whole.graph.output_node())
    run: Callable[..., Any] = fx.GraphModule(whole, outer.graph, type(whole).__name__).forward
    if entered := outer.contexts():
        run = leaving(run, entered)
    return setting_back(run) if switches else run


def records(module: fx.GraphModule) -> bool:
    """Whether autograd records anything that a graph computes, according to its nodes' metadata."""
    made = (node.meta.get("example_value") for node in module.graph.nodes if node.op != "placeholder")
    return any(isinstance(leaf, torch.Tensor) and altering.has_history(leaf) for leaf in tree_leaves(list(made)))


def needs_gradient(fake: object) -> bool:
    """Whether a tensor requires gradients: it has an autograd history, or is a leaf that collects them."""
    return isinstance(fake, torch.Tensor) and fake.requires_grad


class FakeRecorder(fx.Interpreter):
    """Runs a graph on fakes and stores each node's result in its metadata."""

    def run_node(self, n: fx.Node) -> Any:
        """The result of a node."""
        found = super().run_node(n)
        if isinstance(found, torch.Tensor) or n.op == "output":
            n.meta["example_value"] = found
            n.meta.pop("traced_value", None)
        return found


def fakes_after(part: TracedFrame, mode: Any, *, keep: bool) -> tuple[tuple[Any, ...], list[int]] | None:
    """A piece's results as fakes, and the positions of inputs that it writes to. None if it changes something that
    its own graph can't express: the memory that a tensor uses, or a layout. mode: of the inputs of all pieces. keep:
    store each node's fake in its metadata."""
    if part.graph is None:
        return None
    given = [one.fake for one in part.inputs]
    tensors = {n: fake for n, fake in enumerate(given) if isinstance(fake, torch.Tensor)}
    before = {n: (fake.shape, fake.stride(), version_of(fake), fake.requires_grad) for n, fake in tensors.items()}
    with mode or contextlib.nullcontext(), enable_python_dispatcher():
        results: tuple[Any, ...] = FakeRecorder(part.graph).run(*given) if keep else part.graph(*given)
    after = {n: (fake.shape, fake.stride(), version_of(fake), fake.requires_grad) for n, fake in tensors.items()}
    written = [n for n in tensors if before[n] != after[n]]
    if any(before[n][:2] != after[n][:2] for n in written):
        return None
    memories = [fake.untyped_storage()._cdata for fake in tensors.values() if fake.layout is torch.strided]
    return None if written and len(set(memories)) < len(memories) else (results, written)


def by_condition(run_true: Callable[..., Any], run_false: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls one of two, depending on its first argument."""

    def call(predicate: torch.Tensor, *operands: Any) -> Any:
        return run_true(*operands) if predicate else run_false(*operands)

    return call


def named(run: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Give a function a name as the target of a node."""

    def call(*args: Any) -> Any:
        return run(*args)

    call.__name__ = call.__qualname__ = name
    return call


def setting_back(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a graph that switches the grad mode, to restore the mode if it raises."""

    def call(*args: Any) -> Any:
        grad = torch.is_grad_enabled()
        try:
            return run(*args)
        except BaseException:
            set_grad_enabled(grad)
            raise

    return call


def leaving(run: Callable[..., Any], entered: tuple[tuple[str, Leave], ...]) -> Callable[..., Any]:
    """Wrap a graph that enters contexts, to leave those that are open if it raises."""
    code = run.__func__.__code__ if isinstance(run, MethodType) else run.__code__

    def call(*args: Any) -> Any:
        try:
            return run(*args)
        except BaseException as error:
            leave_contexts(error, code, entered)
            raise

    return call


def steps_of(graph: fx.Graph, stands_apart: Callable[[fx.Node], bool]) -> list[Piece | fx.Node] | None:
    """The pieces and the calls between them, in order; None if some value can't be passed between pieces. A gradient of
    what another piece computes is taken between pieces: a piece only knows the history that it makes."""
    asked = [node for node in graph.nodes if node.target is torch.autograd.grad]
    between: set[fx.Node] = set()
    while True:
        steps = _steps(graph, lambda node: node in between or stands_apart(node))
        places = {node: step for step in steps or () if isinstance(step, Piece) for node in step.nodes}
        crossing = [one for one in asked if one in places and any(places.get(n) != places[one] for n in leads(one))]
        if not crossing:
            return steps
        between.update(crossing)


def leads(gradient: fx.Node) -> set[fx.Node]:
    """The nodes that lead from the inputs of a call of `torch.autograd.grad` to its outputs, with the outputs."""
    named = gradient.kwargs | dict(zip(("outputs", "inputs"), gradient.args, strict=False))
    outputs, inputs = (
        {node for node in tree_leaves(named[name]) if isinstance(node, fx.Node)} for name in ("outputs", "inputs")
    )
    before, after = set(outputs), set(inputs)
    for node in reversed(gradient.graph.nodes):
        if node in before:
            before.update(node.all_input_nodes)
    for node in gradient.graph.nodes:
        if not after.isdisjoint(node.all_input_nodes):
            after.add(node)
    return (before & after) - inputs


def _steps(graph: fx.Graph, stands_apart: Callable[[fx.Node], bool]) -> list[Piece | fx.Node] | None:
    """The same for calls that are known to stand apart."""
    groups: list[list[fx.Node]] = [[]]
    apart: list[fx.Node] = []
    first = new_parameters(graph)
    depth = 0  # of transforms
    for node in graph.nodes:
        if node in first or node.op in ("placeholder", "output", "get_attr") or is_number(node):
            continue
        linked = LEAVE in node.meta or any(LEAVE in used.meta for used in node.all_input_nodes)
        nests = NESTING.get(node.target, 0)
        if "changes_state" in node.meta and node.target is not set_grad_enabled and not linked and not nests:
            return None  # linked nodes must be in one piece, and can't be separated
        depth += nests
        taken = node.target is operator.getitem and node.args[0] in apart
        if stands_apart(node) or taken or node.target is set_grad_enabled:
            if depth:
                return None  # so must what enters a transform and what leaves it
            apart.append(node)
            groups.append([])
        else:
            groups[-1].append(node)
    owners = _owners(graph)
    memories = (memory for node in apart for memory in map(memory_of, node.all_input_nodes))
    reached = frozenset(owners[memory] for memory in memories if memory in owners)
    pieces = [Piece.of(group, reached) for group in groups]
    crossing = {node for piece in pieces for node in (*piece.inputs, *piece.outputs) if node.op != "placeholder"}
    if not all(isinstance(node.meta.get("example_value"), torch.Tensor) for node in crossing):
        return None
    steps: list[Piece | fx.Node] = [*first]
    for position, piece in enumerate(pieces):
        steps += [piece] if piece.nodes else []
        steps += apart[position : position + 1]
    return steps


def new_parameters(graph: fx.Graph) -> dict[fx.Node, None]:
    """The calls that make parameters of new memory, with those that make the memory. They depend on nothing else
    (unless a context is entered), so all of them can be made before the first piece, and do not separate pieces."""
    found: dict[fx.Node, None] = {}
    if any("changes_state" in node.meta and node.target is not set_grad_enabled for node in graph.nodes):
        return found
    for node in graph.nodes:
        if node.target is torch.nn.Parameter and BETWEEN_PIECES in node.meta and len(node.all_input_nodes) == 1:
            made = node.all_input_nodes[0]
            if made.target is torch.empty and not made.all_input_nodes:
                found |= {made: None, node: None}
    return found


def tensors_used(node: fx.Node) -> Iterator[fx.Node]:
    """The tensors that a node uses; a number is replaced by the tensors that it is computed from."""
    for used in node.all_input_nodes:
        if is_number(used) and used.op != "placeholder":
            yield from tensors_used(used)
        elif used.op != "get_attr":
            yield used


def is_number(node: fx.Node) -> bool:
    """Whether a node's result is a number."""
    leaves = tree_leaves(node.meta.get("example_value"))
    return bool(leaves) and all(isinstance(leaf, (int, float, *SYMBOLIC)) for leaf in leaves)


def memory_of(node: fx.Node) -> int | None:
    """The memory of a node's result."""
    fake = node.meta.get("example_value")
    if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
        return None
    return int(altering.memory_of(fake)._cdata)


def _owners(graph: fx.Graph) -> dict[int | None, fx.Node]:
    """Maps each memory to the node that makes it."""
    owners: dict[int | None, fx.Node] = {}
    for node in graph.nodes:
        owners.setdefault(memory_of(node), node)
    owners.pop(None, None)
    return owners


def copied(graph: fx.Graph, node: fx.Node, copies: dict[fx.Node, fx.Node]) -> fx.Node:
    """The copy of a node in another graph; a number is computed there."""
    if node not in copies:
        copies[node] = graph.node_copy(node, lambda used: copied(graph, used, copies))
    return copies[node]
