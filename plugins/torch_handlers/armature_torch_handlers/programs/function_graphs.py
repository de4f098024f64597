"""Turns an autograd function of the program into one made of graphs: forward's, and one of backward for each way to
call it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Protocol, cast

import attrs
import torch
from torch import fx
from torch.autograd.function import once_differentiable

from armature.plugin_api import (
    Call,
    GraphBreak,
    TracedTensor,
    TupleValue,
    UserRaised,
    Value,
    running_graphs,
)
from armature_torch_handlers.programs.function_context import Context, is_none
from armature_torch_handlers.programs.subgraphs import NotSeparable, Subgraph, Watch, trace_subgraph

BASE = torch.autograd.Function
ONCE = once_differentiable(lambda ctx: None).__code__
MOST_ABSENT = 3  # outputs that may have no gradient; each one doubles the number of backward graphs
Key = tuple[bool, tuple[bool, ...]]  # the grad mode, and for each output whether there is a gradient


@attrs.frozen(eq=False)
class Backward:
    """A graph of backward: `(*gradients, *saved, *residuals) -> gradients of inputs`.

    reads_saved: whether it reads the saved tensors. residuals: positions among all values stored
    for the backward graphs.
    """

    module: fx.GraphModule
    reads_saved: bool
    residuals: tuple[int, ...]


@attrs.frozen(eq=False)
class Graphs:
    """The graphs of an autograd function.

    forward: `(*inputs, *free) -> (outputs, saved, residuals)`; free: tensors and numbers that are not arguments.
    missing: why there is no backward graph for a key. constant: outputs without gradient; dirty: changed inputs.
    """

    name: str
    inputs: int
    single: bool
    forward: fx.GraphModule
    backward: dict[Key, Backward]
    missing: dict[Key, str]
    constant: tuple[int, ...]
    dirty: tuple[int, ...]
    materializes: bool
    once: bool


class Saved(Protocol):
    """What the generated functions use of `ctx`."""

    residuals: Sequence[object]
    strides: tuple[tuple[int, ...] | None, ...]
    saved_tensors: tuple[torch.Tensor, ...]

    def save_for_backward(self, *tensors: torch.Tensor | None) -> None: ...

    def set_materialize_grads(self, value: bool) -> None: ...

    def mark_non_differentiable(self, *tensors: torch.Tensor) -> None: ...

    def mark_dirty(self, *tensors: torch.Tensor) -> None: ...


def made_of(graphs: Graphs) -> Callable[..., object]:
    """The function that a node calls with inputs and free tensors: an autograd function made of the graphs."""
    methods: dict[str, object] = {"forward": staticmethod(forward_by(graphs))}
    run = backward_by(graphs)
    methods["backward"] = staticmethod(once_differentiable(run) if graphs.once else run)
    function = cast(type[torch.autograd.Function], type(graphs.name, (BASE,), methods))
    count = graphs.inputs

    def apply(*args: object) -> object:
        # In a tuple, because torch only looks for gradients of direct arguments.
        return function.apply(args[count:], *args[:count])

    apply.__name__ = f"apply_{graphs.name}"
    modules = (graphs.forward, *(found.module for found in graphs.backward.values()))
    return running_graphs(apply, modules, writes=bool(graphs.dirty))


def forward_by(graphs: Graphs) -> Callable[..., object]:
    """`forward` of the generated function."""
    forward, constant, dirty = graphs.forward, graphs.constant, graphs.dirty

    def run(ctx: Saved, free: tuple[object, ...], *inputs: object) -> object:
        outputs, saved, ctx.residuals = forward(*inputs, *free)
        ctx.save_for_backward(*saved)
        ctx.strides = tuple(None if one is None else strides_of_gradient(one) for one in outputs)
        ctx.set_materialize_grads(graphs.materializes)
        if constant:
            ctx.mark_non_differentiable(*[outputs[k] for k in constant])
        if dirty:
            ctx.mark_dirty(*[outputs[k] for k in dirty])
        return outputs[0] if graphs.single else outputs

    return run


def strides_of_gradient(output: torch.Tensor) -> tuple[int, ...]:
    """The strides with which backward was traced."""
    return (output if output.is_contiguous() else torch.empty_like(output, device="meta")).stride()


def backward_by(graphs: Graphs) -> Callable[..., object]:
    """`backward` of the generated function."""

    def run(ctx: Saved, *gradients: torch.Tensor | None) -> object:
        key = (torch.is_grad_enabled(), tuple(gradient is not None for gradient in gradients))
        found = graphs.backward.get(key)
        if found is None:
            why = graphs.missing.get(key, "a gradient was passed for an output that has none")
            raise RuntimeError(f"the backward of {graphs.name} could not be traced for this call: {why}")
        given = [
            laid_out(one, strides)
            for one, strides in zip(gradients, ctx.strides)
            if not (one is None or strides is None)
        ]
        saved = ctx.saved_tensors if found.reads_saved else ()
        return None, *found.module(*given, *saved, *[ctx.residuals[k] for k in found.residuals])

    return run


def laid_out(gradient: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The gradient in the layout with which backward was traced."""
    if gradient.stride() == strides:
        return gradient
    made = torch.empty_strided(gradient.shape, strides, dtype=gradient.dtype, device=gradient.device)
    return made.copy_(gradient)


def with_gradients(
    call: Call,
    cls: Value,
    context: Context,
    args: Sequence[Value],
    steps: tuple[Value | Callable[..., object], list[Value]],
    apart: bool,
) -> Value:
    """Make the call a node of the graph. Errors: NotSeparable, GraphBreak, UserRaised."""
    return _Tracing(call, cls, context, tuple(args)).run(steps, apart)


@attrs.define(eq=False)
class _Tracing:
    """The tracing of one call. residuals: nodes that backward uses, besides gradients and saved tensors."""

    call: Call
    cls: Value
    context: Context
    args: tuple[Value, ...]
    saved: list[Value] = attrs.field(factory=list)
    residuals: dict[fx.Node, int] = attrs.field(factory=dict)
    backward: dict[Key, Backward] = attrs.field(factory=dict)
    missing: dict[Key, str] = attrs.field(factory=dict)
    once: bool = False

    def run(self, steps: tuple[Value | Callable[..., object], list[Value]], apart: bool) -> Value:
        """Trace forward in the frame's graph, and backward where it is needed; returns the call's value."""
        tracer = self.call.tracing
        inputs = [arg for arg in self.args if isinstance(arg, TracedTensor)]
        nodes = [node_of(self.call, value) for value in inputs]
        with Watch(tracer), torch.no_grad():
            part = trace_subgraph(tracer, steps[0], steps[1], {})
        result = part.result
        nest = issubclass(result.python_type(), tuple)
        outputs = tracer.unpack(result) if nest else [result]
        self.check_forward(part, outputs, apart)
        tensors = [value for value in outputs if isinstance(value, TracedTensor)]
        if not tensors:
            part.remove()
            return TupleValue(outputs) if nest else result
        self.saved = self.context.saved(tracer)
        self.context.attributes["saved_tensors"] = TupleValue(self.saved)
        self.trace_backward(outputs)
        given = tuple(self.node_or_none(value) for value in outputs)
        saved = tuple(self.node_or_none(value) for value in self.saved)
        own = {*part.nodes, *nodes}
        used = dict.fromkeys((*part.captured, *saved, *self.residuals))
        free = [node for node in used if node is not None and node not in own]
        forward = part.module([*nodes, *free], (given, saved, tuple(self.residuals)), "forward")
        part.remove()
        apply = made_of(self.graphs(forward, len(inputs), outputs, not nest))
        found = self.call.graph_call(apply, *inputs, *[value_of(self.call, node) for node in free])
        if not nest:
            return found
        made = zip(outputs, tracer.unpack(found))
        return TupleValue([new if isinstance(old, TracedTensor) else old for old, new in made])

    def graphs(self, forward: fx.GraphModule, inputs: int, outputs: list[Value], single: bool) -> Graphs:
        """Assemble all graphs."""
        tracer, context = self.call.tracing, self.context
        constant, dirty = context.constant_outputs(tracer), context.dirty(tracer)
        return Graphs(
            name=self.cls.as_object().__name__,
            inputs=inputs,
            single=single,
            forward=forward,
            backward=self.backward,
            missing=self.missing,
            constant=tuple(k for k, value in enumerate(outputs) if value in constant),
            dirty=tuple(k for k, value in enumerate(outputs) if value in dirty),
            materializes=context.materializes(tracer),
            once=self.once,
        )

    def node_or_none(self, value: Value) -> fx.Node | None:
        return node_of(self.call, value) if isinstance(value, TracedTensor) else None

    def check_forward(self, part: Subgraph, outputs: list[Value], apart: bool) -> None:
        """Check that the results of forward can be outputs of a node."""
        tracer = self.call.tracing
        dirty, own = self.context.dirty(tracer), set(part.nodes)
        if not all(value in dirty for value in part.written):
            raise NotSeparable("forward writes to a tensor that is not marked as dirty")
        for value in outputs:
            if not isinstance(value, TracedTensor):
                if not value.is_constant and not value.is_symbolic:
                    raise NotSeparable(f"forward gives {value.describe()}")
            elif value not in self.args and (value.node not in own or value.kind is not None):
                raise NotSeparable("forward returns a tensor that it did not create")
        self.context.check(tracer, outputs, self.args, apart)

    # Backward.

    def trace_backward(self, outputs: list[Value]) -> None:
        """Trace a backward graph for each way to call it; the one for first derivatives is required."""
        tracer = self.call.tracing
        function = self.method()
        first = True
        for given in self.ways(outputs):
            for mode in (False,) if self.once else (False, True):
                with Watch(tracer) as watch:
                    try:
                        self.backward[mode, given] = self.trace_way(function, outputs, mode, given)
                    except (GraphBreak, UserRaised, NotSeparable) as stop:
                        self.missing[mode, given] = break_reason(stop)
                        if first and isinstance(stop, UserRaised):
                            raise NotSeparable(self.missing[mode, given]) from None
                        if first or watch.outlives():
                            raise
                if watch.changed(self.context, *self.args):
                    raise NotSeparable("backward changes its context, or something outside of it")
                first = False

    def ways(self, outputs: list[Value]) -> Iterator[tuple[bool, ...]]:
        """The outputs that may have gradients: all tensors, unless the function distinguishes missing gradients."""
        tracer = self.call.tracing
        tensors = [isinstance(value, TracedTensor) for value in outputs]
        if self.context.materializes(tracer):
            return iter([tuple(tensors)])
        constant = self.context.constant_outputs(tracer)
        open_ = [
            isinstance(value, TracedTensor)
            and value not in constant
            and (value.dtype.is_floating_point or value.dtype.is_complex)
            for value in outputs
        ]
        if sum(open_) > MOST_ABSENT:
            raise NotSeparable(f"gradients of more than {MOST_ABSENT} outputs may be None")
        return product(*[(True, False) if may else (False,) for may in open_])

    def method(self) -> Value:
        """`backward`, without torch's wrapper for once-differentiable functions."""
        tracer, function = self.call.tracing, self.cls.as_object()
        both = {name: self.cls.get_attribute(tracer, name) for name in ("backward", "vjp")}  # guards both
        names = [name for name in both if getattr(function, name) is not getattr(BASE, name)]
        if len(names) != 1:
            raise NotSeparable("it has no backward, or two")
        found = both[names[0]]
        if getattr(getattr(function, names[0]), "__code__", None) is ONCE:
            self.once = True
            return found.get_attribute(tracer, "__wrapped__")
        return found

    def trace_way(self, function: Value, outputs: list[Value], mode: bool, given: tuple[bool, ...]) -> Backward:
        """Trace backward in a grad mode, with some of the gradients."""
        tracer, call = self.call.tracing, self.call
        wanted = [value for value, there in zip(outputs, given) if there]
        with torch.no_grad():
            start = trace_subgraph(tracer, like, wanted, {})
        gradients = tracer.unpack(start.result)
        rest = iter(gradients)
        passed = [next(rest) if there else call.constant(None) for there in given]
        part = None
        self.context.reads_saved = False
        try:
            with without_autocast(), torch.set_grad_enabled(mode):
                part = trace_subgraph(tracer, function, [self.context, *passed], {})
            return self.as_backward(part, gradients)
        finally:
            if part is not None:
                part.remove()
            start.remove()

    def as_backward(self, part: Subgraph, gradients: list[Value]) -> Backward:
        """The backward graph of a traced call."""
        if not all(value in gradients for value in part.written):
            raise NotSeparable("backward writes to a tensor that is not a gradient")
        results = tuple(self.node_or_none(value) for value in self.results(part.result))
        places = [node_of(self.call, value) for value in gradients]
        reads_saved = self.context.reads_saved
        saved = [self.node_or_none(value) for value in self.saved] if reads_saved else []
        known = {*part.nodes, *places, *saved}
        needed = [node for node in dict.fromkeys((*part.captured, *results)) if node is not None and node not in known]
        residuals = tuple(self.residuals.setdefault(node, len(self.residuals)) for node in needed)
        module = part.module([*places, *saved, *needed], results, "backward")
        return Backward(module, reads_saved, residuals)

    def results(self, result: Value) -> list[Value]:
        """The gradients of the arguments that are tensors; None for unneeded ones."""
        tracer = self.call.tracing
        found = tracer.unpack(result) if issubclass(result.python_type(), tuple) else [result]
        if len(found) < len(self.args) or not all(map(is_none, found[len(self.args) :])):
            raise NotSeparable("the number of gradients differs from the number of arguments")
        for arg, gradient in zip(self.args, found):
            if is_none(gradient):
                continue
            if not isinstance(arg, TracedTensor) or not isinstance(gradient, TracedTensor) or gradient.kind is not None:
                raise NotSeparable(f"backward gives {gradient.describe()} as the gradient of {arg.describe()}")
            if arg.fake.requires_grad and not sums_to(gradient.shape, arg.shape):
                raise NotSeparable("backward returns a gradient whose shape differs from the argument's")
        none = self.call.constant(None)
        pairs = [(arg, gradient) for arg, gradient in zip(self.args, found) if isinstance(arg, TracedTensor)]
        return [gradient if arg.fake.requires_grad else none for arg, gradient in pairs]


def like(*outputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Gradients of outputs. Traced."""
    return tuple(torch.empty_like(output) for output in outputs)


@contextmanager
def without_autocast() -> Iterator[None]:
    """Backward runs after the contexts of forward were left."""
    with ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def sums_to(gradient: Sequence[object], shape: Sequence[object]) -> bool:
    """Whether torch accepts a gradient of one shape for a tensor of another: it sums over broadcast axes."""
    last = list(gradient)[len(gradient) - len(shape) :]
    return len(gradient) >= len(shape) and all(size == 1 or size == other for size, other in zip(shape, last))


def break_reason(stop: GraphBreak | UserRaised | NotSeparable) -> str:
    """Why it was not traced."""
    if isinstance(stop, GraphBreak):
        return stop.event.type.explanation.format(**stop.event.facts)
    return stop.reason if isinstance(stop, NotSeparable) else f"it raises {stop.value.describe()}"


def node_of(call: Call, value: Value) -> fx.Node:
    """The node of a tensor."""
    node = value.as_argument(call.tracing)
    if not isinstance(node, fx.Node):
        raise NotSeparable(f"{value.describe()} is not in the graph")
    return node


def value_of(call: Call, node: fx.Node) -> Value:
    """The value of a node: a tensor or a number."""
    tracer = call.tracing
    held = next((value for value in tracer.objects.by_fake.values() if value.node is node), None)
    return held if held is not None else tracer.as_value(node.meta["example_value"])
