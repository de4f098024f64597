"""The symbolic numbers of one trace: which inputs become symbols, their nodes in the graph, their guards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

import attrs
import torch
from torch import fx

from armature.frame import dynamic
from armature.frame.guards.guard import Guard, Quantity
from armature.frame.guards.kinds import ShapeGuard
from armature.frame.sources import Source
from armature.torch_abi import symbols
from armature.torch_abi.fake import DATA_DEPENDENT, FakeWorld
from armature.torch_abi.jagged import is_jagged, ragged_axis
from armature.torch_abi.symbols import SYMBOLIC, Symbols, is_unbacked
from armature.trace.stack import Breaks
from armature.trace.values.floats import FloatValue, float_of_program
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.context import CompileContext
    from armature.frame.data import FrameRequest
    from armature.trace.base import FramesNow, Recorder, Tracing, Value


def new_world(ctx: CompileContext) -> FakeWorld:
    """Make the fake-tensor environment of a trace; the settings say what may depend on numbers."""
    settings = ctx.config
    return FakeWorld(
        Symbols(
            scalar_outputs=settings.capture_scalar_outputs, output_shapes=settings.capture_dynamic_output_shape_ops
        ),
        ctx.tables.fake_rules,
    )


@attrs.define(eq=False)
class Sizes:
    """What is known about symbols: the source from which compiled code reads each, and the value that introduced it.

    lift: makes a tensor or int of the program an input of the graph. floats: of the program, by their sources. Guards
    are made after the trace has ended.
    """

    request: FrameRequest
    fakes: FakeWorld
    recorder: Recorder
    stack: FramesNow
    breaks: Breaks
    lift: Callable[[TensorValue | SymbolicValue], fx.Node]
    floats: dict[Source, FloatValue] = attrs.field(factory=dict)
    quantities: dict[Any, Quantity] = attrs.field(factory=dict)
    owners: dict[Any, TensorValue | SymbolicValue] = attrs.field(factory=dict)
    contents: dict[Source, None] = attrs.field(factory=dict)  # numbers in tensors that the graph may write to
    derived: list[tuple[Quantity, Any]] = attrs.field(factory=list)  # sizes and strides computed from symbols
    _ints: dict[Source, SymbolicValue] = attrs.field(factory=dict)
    _nodes: dict[Any, fx.Node] = attrs.field(factory=dict)
    # unbacked symbols, by the node and axis that compute them
    _computed: dict[Any, tuple[fx.Node, int]] = attrs.field(factory=dict)
    _asserted: set[Any] = attrs.field(factory=set)

    @property
    def symbols(self) -> Symbols:
        """torch's symbolic-shape environment."""
        return self.fakes.symbols

    def of_int(self, number: int, source: Source) -> SymbolicValue:
        """The symbolic value of an int of the program."""
        known = self._ints.get(source)
        if known is None:
            known = self._ints[source] = SymbolicValue(self.symbols.number(number, source.expr), source=source)
            self._bind(known.fake, Quantity(source), known)
        return known

    def changes(self, number: float, source: Source) -> bool:
        """Whether an int or float of the program varies from call to call, so that it is no constant."""
        if isinstance(number, int):
            return dynamic.number_changes(self.request, number, source)
        return dynamic.float_changes(self.request, number, source)

    def of_program(self, tracer: Tracing, number: float, source: Source) -> Value:
        """The value of such a number."""
        if isinstance(number, int):
            return self.of_int(number, source)
        return float_of_program(tracer, number, source)

    def bind_tensor(self, value: TensorValue, source: Source) -> None:
        """Note which symbols are read from an input tensor."""
        if is_jagged(value.fake):
            axis = ragged_axis(value.fake)
            self._bind_ragged(value.fake.shape[axis], Quantity(source, axis), value)
            return
        for stride, numbers in ((False, value.fake.shape), (True, value.fake.stride())):
            for axis, number in enumerate(numbers):
                if isinstance(number, torch.SymInt):
                    self._bind(number, Quantity(source, axis, stride), value)

    def _bind_ragged(self, number: Any, quantity: Quantity, owner: TensorValue) -> None:
        symbol = symbols.single_symbol(number)
        self.quantities.setdefault(symbol, quantity)
        self.owners.setdefault(symbol, owner)

    def _bind(self, number: torch.SymInt, quantity: Quantity, owner: TensorValue | SymbolicValue) -> None:
        symbol = symbols.single_symbol(number)
        if symbol is None or self.quantities.get(symbol, quantity) != quantity:  # computed from others, or known
            self.derived.append((quantity, symbols.expression(number)))
            return
        self.quantities[symbol], self.owners[symbol] = quantity, owner

    def bind_result(self, result: Any, node: fx.Node) -> None:
        """Note which symbols a graph node's result introduces, and add checks of what was assumed about them."""
        if isinstance(result, torch.Tensor):
            for axis, size in enumerate(result.shape):
                if (symbol := symbols.single_symbol(size)) is not None and symbol not in self.quantities:
                    self._computed.setdefault(symbol, (node, axis))
        elif isinstance(result, SYMBOLIC) and is_unbacked(result):
            for symbol in symbols.symbols_of(result):
                self._computed.setdefault(symbol, (node, -1))
        if any(symbol not in self._computed for symbol in self.symbols.pending_fresh_unbacked_symbols):
            node.meta[symbols.TAKES_NUMBERS] = True
        self.symbols.pending_fresh_unbacked_symbols.clear()
        self.assert_assumptions()

    def assert_assumptions(self) -> None:
        """Add checks to the graph of what is assumed about unbacked symbols."""
        for condition, message in self.symbols.assumptions():
            known = all(symbol in self._computed or symbol in self.owners for symbol in symbols.symbols_of(condition))
            if known and condition not in self._asserted:
                self._asserted.add(condition)
                holds = self.symbols.condition(condition)
                node = self.recorder.graph.call_function(symbols.ASSERT, (self.argument(holds), message))
                summary, trace, _ = self.stack.origin()
                node.meta.update(origin=summary, stack_trace=trace, example_value=None)

    def assume(self, condition: SymbolicValue, message: str) -> bool:
        """Assume a condition that the program requires: guarded, or checked when the graph runs."""
        if not is_unbacked(condition.fake):
            return self.decide(condition.fake)
        symbols.assume(condition.fake, message)
        self.assert_assumptions()
        return True

    def computed(self, symbol: Any) -> fx.Node | None:
        """The node that computes an unbacked symbol; None for a symbol that is read from inputs."""
        if symbol not in self._computed:
            return None
        last = self.recorder.last
        found = self._leaf(symbol)
        for made in symbols.fill(self.recorder.graph, last, "example_value"):
            whose = self._computed[symbol][0].meta  # the frame has ended: use the node's line
            made.meta.update(origin=whose["origin"], stack_trace=whose["stack_trace"])
        return found

    def computes(self, nodes: Collection[fx.Node]) -> bool:
        """Whether one of the nodes computes an unbacked symbol."""
        return any(node in nodes for node, _ in self._computed.values())

    def forget(self, nodes: Collection[fx.Node]) -> None:
        """Forget the symbols of nodes that leave the graph."""
        self._nodes = {key: node for key, node in self._nodes.items() if node not in nodes}
        self._computed = {symbol: place for symbol, place in self._computed.items() if place[0] not in nodes}

    def decide(self, condition: Any) -> bool:
        """Whether a condition over symbolic numbers holds; guarded. Breaks the graph if a symbol is unbacked."""
        try:
            return bool(condition)
        except DATA_DEPENDENT:
            raise self.breaks.break_at(None, "branch-on-unknown-size", test=self.stack.expression()) from None

    def argument(self, number: Any) -> Any:
        """The representation of a symbolic number among a node's arguments: a node, or the number if it is known."""
        last = self.recorder.last
        found = symbols.as_node(number, self.recorder.graph, self._leaf, self._nodes)
        self._describe(last)
        return found

    def _leaf(self, symbol: Any) -> fx.Node:
        read = torch.ops.aten.sym_size.int
        if symbol in self._computed:
            node, axis = self._computed[symbol]
        else:
            node, axis = self.lift(self.owners[symbol]), self.quantities[symbol].axis
            read = torch.ops.aten.sym_stride.int if self.quantities[symbol].stride else read
        if axis < 0:
            return node
        if symbol not in self._nodes:
            self._nodes[symbol] = self.recorder.graph.call_function(read, (node, axis))
        return self._nodes[symbol]

    def _describe(self, last: fx.Node | None) -> None:
        """Add the user's line and example values to nodes made after `last`."""
        fresh = symbols.fill(self.recorder.graph, last, "example_value")
        if fresh:
            summary, trace, _ = self.stack.origin()
            for node in fresh:
                node.meta.update(origin=summary, stack_trace=trace)

    def guards(self) -> tuple[Guard, ...]:
        """Guards on the symbols: ranges, decisions made while tracing and later, strides. No decision may follow."""
        self.symbols.close()
        return self.conditions()

    def conditions(self) -> tuple[Guard, ...]:
        """The guards on decisions made so far."""
        return tuple(self._conditions())

    def _conditions(self) -> Iterator[Guard]:
        found = self.symbols
        for symbol, quantity in self.quantities.items():
            if quantity.axis >= 0 and symbol not in found.ragged:
                yield ShapeGuard(f"{symbol} >= {symbols.SMALLEST_SIZE}", ((str(symbol), quantity),))
        for condition, line in found.conditions():
            if not self.fakes.given_up.isdisjoint(symbols.symbols_of(condition)):
                continue
            yield ShapeGuard(symbols.text(condition), self._names(condition), line)
        for number, (quantity, expr) in enumerate(self.derived):
            name = f"derived{number}"
            yield ShapeGuard(f"{name} == {symbols.text(expr)}", ((name, quantity), *self._names(expr)))

    def _names(self, expr: Any) -> tuple[tuple[str, Quantity], ...]:
        return tuple((str(symbol), self.quantities[symbol]) for symbol in symbols.symbols_of(expr))
