"""Calls of the program that become graphs within the graph: branches of `torch.cond`, and the like.

Such a call is traced normally, at the end of the graph. Its nodes are then moved to a graph of their own, whose inputs
are all values that it uses from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import getitem

import attrs
import torch
from torch import fx

from armature.plugin_api import (
    Args,
    FrameView,
    GeneratorValue,
    GraphBreak,
    Kwargs,
    Location,
    SymbolicNumber,
    TracedTensor,
    TraceSignal,
    Tracing,
    UserRaised,
    Value,
    VaryingNumber,
    in_transform,
    locations_of,
    reachable_values,
    record_node,
    value_of_node,
    version_of,
)

OF_PROGRAM = ("real", "obj", "namespace")  # fields of values that hold the program's own objects


class NotSeparable(TraceSignal):
    """A call can't have a graph of its own. `reason`: what prevents it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@attrs.define(eq=False)
class Watch:
    """A context that records side effects of calls. Watches may be nested."""

    tracer: Tracing
    before: object = None
    touched: dict[Value, None] = attrs.field(factory=dict)
    outer: dict[Value, None] | None = None

    def __enter__(self) -> Watch:
        effects = self.tracer.effects
        self.before, self.outer, effects.watched = self._state(), effects.watched, self.touched
        return self

    def __exit__(self, *error: object) -> None:
        self.tracer.effects.watched = self.outer
        if self.outer is not None:
            self.outer.update(self.touched)

    def outlives(self) -> bool:
        """Whether something that outlives the frame, or a torch mode, was changed."""
        return self._state() != self.before

    def changed(self, *roots: object) -> bool:
        """The same; or an object made in the frame that is reachable from the frames being traced, or from some roots
        (values, and nests of them)."""
        wanted = set(map(id, self.touched))
        held = (*roots, *map(_held_by_frame, self.tracer.stack.frames))
        found = bool(wanted) and any(id(value) in wanted for value in reachable_values(held, _fields))
        return found or self.outlives()

    def _state(self) -> object:
        tracer = self.tracer
        return (
            tracer.effects.count,
            tracer.effects.chosen_dtype,
            torch.is_grad_enabled(),
            [*tracer.overrides.modes],
            [*tracer.ending.undo],
        )


@attrs.frozen(eq=False)
class Subgraph:
    """The part of the graph that a call has added.

    nodes: in order. captured: nodes outside that these use. writes: whether some are in-place
    operators; written: tensors from before the call that were written to.
    """

    tracer: Tracing
    nodes: tuple[fx.Node, ...]
    result: Value
    captured: tuple[fx.Node, ...]
    writes: bool
    written: tuple[TracedTensor, ...]
    locations: tuple[Location, ...]

    def module(self, inputs: Sequence[fx.Node | None], outputs: fx.node.Argument, name: str) -> fx.GraphModule:
        """The nodes as a graph.

        inputs: the nodes used from outside, in the order of the graph's parameters; None: an unused parameter. For a
        node that occurs twice, the first parameter is read. outputs: a nest of tuples of nodes and None.
        """
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for position, node in enumerate(inputs):
            if node is None or node in copies:
                graph.placeholder(f"_unused_{position}")
            else:
                copies[node] = graph.placeholder(node.name)
                copies[node].meta = dict(node.meta)
        for node in self.nodes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        result = graph.output(fx.map_arg(outputs, copies.__getitem__))
        result.meta["example_value"] = fx.map_arg(outputs, lambda node: node.meta.get("example_value"))
        return fx.GraphModule(dict(self.tracer.recorder.modules), graph, name)

    def remove(self) -> None:
        """Remove the nodes from the graph. If the program still holds a tensor that they made, and uses it, the graph
        breaks at the call."""
        remove(self.tracer, self.nodes, self.locations)

    def giving(self, values: Sequence[Value]) -> Subgraph:
        """The part, extended by the nodes of some values, including numbers. It must still be the end of the graph."""
        last = self.tracer.recorder.last
        found = [value.as_argument(self.tracer) for value in values if not value.is_constant]
        made = self.tracer.recorder.after(last)
        nodes = (*self.nodes, *made)
        own = set(nodes)
        given = [*(node for one in made for node in one.all_input_nodes), *found]
        used = (node for node in given if isinstance(node, fx.Node) and node not in own)
        return attrs.evolve(self, nodes=nodes, captured=tuple(dict.fromkeys((*self.captured, *used))))


def trace_subgraph(tracer: Tracing, function: Value | Callable[..., object], args: Args, kwargs: Kwargs) -> Subgraph:
    """Trace a call in torch's current modes. A break in it is reported at the call being traced.

    Errors: NotSeparable, and as for any call GraphBreak and UserRaised. Then no new nodes remain in the graph.
    """
    last = tracer.recorder.last
    known, mutates = list(tracer.objects.by_fake.values()), tracer.recorder.mutates
    versions = [version_of(value.fake) for value in known]
    tracer.recorder.mutates = False
    tracer.recorder.subgraph_depth += 1
    watch = Watch(tracer)
    try:
        with watch:
            result = tracer.calls.call_whole(function, args, kwargs)
        if watch.outlives():
            raise NotSeparable("changes something outside of it")
        nodes = tracer.recorder.after(last)
        own = set(nodes)
        if tracer.sizes.computes(own):
            raise NotSeparable("computes numbers or sizes from what tensors hold")
    except (GraphBreak, UserRaised, NotSeparable) as stop:
        remove(tracer, tracer.recorder.after(last), ())
        if isinstance(stop, UserRaised) and [version_of(value.fake) for value in known] != versions:
            raise NotSeparable("writes to a tensor, and raises") from None
        raise
    finally:
        tracer.recorder.subgraph_depth -= 1
        writes, tracer.recorder.mutates = tracer.recorder.mutates, mutates
    written = tuple(value for value, version in zip(known, versions) if version_of(value.fake) != version)
    used = (given for node in nodes for given in node.all_input_nodes if given not in own)
    locations = locations_of(tracer.stack.frames)
    return Subgraph(tracer, nodes, result, tuple(dict.fromkeys(used)), writes, written, locations)


@contextmanager
def graph_inputs(
    tracer: Tracing, fakes: Sequence[torch.Tensor | None]
) -> Iterator[list[TracedTensor | SymbolicNumber]]:
    """Inputs of a subgraph, which exist while a function is traced on them. None represents any int.

    Errors: NotSeparable.
    """
    if fakes and in_transform():  # its inputs would lack the transform's levels
        raise NotSeparable("is called inside a transform of torch.func")
    locations = locations_of(tracer.stack.frames)
    values = [_input(tracer, fake) for fake in fakes]
    try:
        yield values
    finally:
        remove(tracer, tuple(value.node for value in values if value.node is not None), locations)


def _input(tracer: Tracing, fake: torch.Tensor | None) -> TracedTensor | SymbolicNumber:
    node = record_node(tracer, "placeholder", "given", (), {})
    if fake is None:
        number = tracer.sizes.symbols.create_unbacked_symint()
        node.meta["example_value"] = number
        tracer.sizes.bind_result(number, node)
        return SymbolicNumber(number, node)
    node.meta["example_value"] = fake
    value = tracer.objects.by_fake[id(fake)] = TracedTensor(fake, node)
    return value


def call_graphs(
    tracer: Tracing,
    function: Callable[..., object],
    graphs: Sequence[fx.GraphModule],
    arguments: Callable[..., tuple[object, ...]],
    results: Sequence[torch.Tensor | None] | None,
) -> list[Value]:
    """A node that calls a function with graphs as arguments, and the values of its results.

    arguments: makes the call's arguments from a node for each graph. results: fakes of the returned tuple's items, None
    for an int only known at run time; None: it returns nothing.
    """
    getters = [record_node(tracer, "get_attr", _add_module(tracer, graph), (), {}) for graph in graphs]
    numbers = tracer.sizes.symbols.create_unbacked_symint
    given = None if results is None else tuple([numbers() if fake is None else fake for fake in results])
    node = record_node(tracer, "call_function", function, arguments(*getters), {})
    node.meta["example_value"] = given
    made = []
    for position, fake in enumerate(given or ()):
        getter = record_node(tracer, "call_function", getitem, (node, position), {})
        made.append(value_of_node(tracer, fake, getter))
    return made


def _add_module(tracer: Tracing, module: fx.GraphModule) -> str:
    """The name under which nodes refer to a subgraph."""
    name = f"{type(module).__name__}_{len(tracer.recorder.modules)}"
    tracer.recorder.modules[name] = module
    return name


def remove(tracer: Tracing, nodes: tuple[fx.Node, ...], locations: tuple[Location, ...]) -> None:
    """Remove nodes from the graph, including all their users. If the program uses a tensor that they made, the graph
    breaks at the given locations."""
    own = set(nodes)
    for value in tracer.objects.by_fake.values():
        if value.node in own:
            value.node = None
            tracer.recorder.subgraph_tensors[value] = locations
    for number in tracer.sizes.floats.values():
        _forget_item(number, own)
    tracer.sizes.forget(own)
    for node in reversed(nodes):
        tracer.recorder.graph.erase_node(node)


def _forget_item(number: VaryingNumber, own: set[fx.Node]) -> None:
    node = getattr(number.item, "node", None)
    if node in own:
        number.item = None


def _held_by_frame(frame: FrameView) -> tuple[object, ...]:
    return (frame.variables, frame.cells, frame.own_cells, frame.stack, frame.handling)


def _fields(value: Value) -> Iterable[object]:
    """All that a value refers to, but the program's own objects."""
    if isinstance(value, GeneratorValue):
        yield from _held_by_frame(value.frame)
    yield from (getattr(value, field.name) for field in attrs.fields(type(value)) if field.name not in OF_PROGRAM)
