"""From a captured graph of torch functions to a compiled callable, by way of functional ATen graphs.

Inference: one graph. Training: a forward and a backward graph behind an autograd function. The backward graph is
compiled when it is first needed, or while the forward graph's kernels are being built, where that takes long; if it
fails, the graph runs operator by operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import attrs
import torch
from torch import fx

from armature import interrupts
from armature.events import CompileEvent, EventKind
from armature.garbage import no_collection
from armature.graph import frozen, numbers, origins
from armature.graph.data import AtenGraph, GraphKind
from armature.graph.fake_runs import state_set_back
from armature.graph.output_views import output_views_of, reads_data_alias
from armature.graph.passes import run_passes
from armature.graph.saved import save_inputs_of_numbers, save_inputs_of_views, save_no_sums_of_saved, save_sizes
from armature.graph.verify import verify
from armature.torch_abi import aot, casts, partition, recorder, training, views
from armature.torch_abi.decomps import keeping_layout
from armature.torch_abi.functions import Functions
from armature.torch_abi.wrappers import is_wrapper
from armature.trace.data import GraphInput, TracedFrame

if TYPE_CHECKING:
    from armature.context import CompileContext

T = TypeVar("T")
CompileAten = Callable[[AtenGraph, "CompileContext"], Any]


def compile_graph(
    traced: TracedFrame, ctx: CompileContext, compile_aten: CompileAten
) -> Callable[..., tuple[Any, ...]]:
    """Compile the captured graph into a callable that takes `traced.inputs` flat and returns a tuple.

    `compile_aten` compiles a functional graph into something with `call(list) -> tuple`, or returns such a function.
    """
    if traced.graph is None:
        raise ValueError("a frame without a graph has nothing to compile")
    if reads_data_alias(traced.graph):
        return traced.graph.forward
    ending = output_views_of(traced.graph)
    if ending is not None:
        run = compile_graph(attrs.evolve(traced, graph=ending.inner), ctx, compile_aten)
        return traced.graph.forward if run == ending.inner.forward else ending.after(run)
    run = _Compilation(traced, ctx, compile_aten).run()
    places = [node for node in traced.graph.graph.nodes if node.op == "placeholder"]
    kinds = views.output_aliases(_input_fakes(traced.graph), _results(traced.graph))
    counts = {k: place.meta["counts_writes"] for k, place in enumerate(places) if "counts_writes" in place.meta}
    if counts:
        run = views.counting(run, counts)
    if not kinds:
        return run
    return lambda *args: views.with_aliases(kinds, args, run(*args))


def returns_other_dtypes(graph: fx.GraphModule) -> bool:
    """Whether results are views of inputs or other results under another dtype."""
    return views.in_other_forms(_input_fakes(graph), _results(graph))


def _input_fakes(graph: fx.GraphModule) -> list[object]:
    """The input fakes that the results were computed from. The inputs' current fakes may have gained an autograd
    history since."""
    places = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return [place.meta.get("traced_value", place.meta.get("example_value")) for place in places]


def _results(graph: fx.GraphModule) -> list[object]:
    """The fakes that the captured graph returns; None for a result that is not a tensor."""
    returned = cast(Any, graph.graph.output_node().args[0])
    return [node.meta.get("example_value") if isinstance(node, fx.Node) else None for node in returned]


@attrs.frozen(eq=False)
class _Compilation:
    """The compilation of one captured graph."""

    traced: TracedFrame
    ctx: CompileContext
    compile_aten: CompileAten

    def run(self) -> Callable[..., tuple[Any, ...]]:
        module = run_passes("pre_grad", cast(fx.GraphModule, self.traced.graph), self.ctx)
        fakes = [given.fake for given in self.traced.inputs]
        tables = self.ctx.tables
        rows = tables.decompositions.items()
        table = {op: interrupts.checking(keeping_layout(tables.fake_rules, op, row.fn)) for op, row in rows}
        asking = _asking(module, self.ctx.functions)
        plain = None if _wants_gradients(fakes) else self.recorded(asking, fakes, table)
        if plain is not None:
            with aot.autocast_off():
                compiled = self.compile(plain, GraphKind.INFERENCE)
            return aot.as_compiled(compiled, len(fakes))
        origins.mark(asking)
        compilers = aot.Compilers(self.forward, self.backward, self.inference, self.partition, self.ahead)
        with state_set_back(asking):
            return aot.compile_functional(module, fakes, compilers, table, asking)

    @property
    def ahead(self) -> bool:
        """Whether the backward graph is compiled with the forward graph: where a back end builds kernels apart from
        this process, unless it measures them, which no other build may disturb."""
        devices = {given.fake.device.type for given in self.traced.inputs if isinstance(given.fake, torch.Tensor)}
        backends = map(self.ctx.tables.device_backend, sorted(devices))
        apart = any(backend is not None and backend.features.builds_apart for backend in backends)
        return apart and not self.ctx.config.autotune

    def recorded(
        self, module: fx.GraphModule, fakes: Sequence[object], table: Mapping[Any, Callable[..., Any]]
    ) -> fx.GraphModule | None:
        """The functional graph, recorded by running the module once; None if that needs AOTAutograd."""
        try:
            with state_set_back(module):
                graph = recorder.record(module, fakes, table)
        except recorder.NotPlain:
            return None
        origins.name_operators(graph)
        return graph

    def partition(self, joint: fx.GraphModule, inputs: Any, **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        origins.restore(joint)
        forward, backward = partition.min_cut(run_passes("joint", joint, self.ctx), inputs, **options)
        for save in (save_no_sums_of_saved, save_inputs_of_numbers, save_inputs_of_views):
            forward, backward = save(forward, backward, options["num_fwd_outputs"])
        return save_sizes(forward, backward)

    def forward(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        return self.compile(graph, GraphKind.FORWARD)

    def inference(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        return self.compile(graph, GraphKind.INFERENCE)

    def backward(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> LazyBackward:
        return LazyBackward(partial(self.compiled, graph, GraphKind.BACKWARD), graph, self.ctx, self.traced.name)

    def compile(self, graph: fx.GraphModule, kind: GraphKind) -> Callable[[list[Any]], Any]:
        """Compile one functional graph."""
        return self.compiled(graph, kind).call

    @no_collection()  # of a backward graph too, which is compiled later than the frame
    def compiled(self, graph: fx.GraphModule, kind: GraphKind, ahead: bool = False) -> Started:
        """Compile one functional graph. ahead: whether a backward graph is compiled before its first call."""
        if any("origin" not in node.meta for node in graph.graph.nodes if node.op == "call_function"):
            origins.restore(graph)
        aot.give_memory(graph)
        graph.meta["kind"] = kind
        freezes = self.ctx.config.frozen and kind is GraphKind.INFERENCE
        if freezes:
            frozen.mark(graph, self.traced.inputs)
        graph = run_passes("post_grad", graph, self.ctx)
        numbers.check(graph.graph)
        preparation = frozen.take_out(graph, self.ctx.operators) if freezes else None
        places = [node for node in graph.graph.nodes if node.op == "placeholder"]
        prepared = range(len(self.traced.inputs), len(places)) if preparation is not None else range(0)
        fixed = frozenset(k for k, given in enumerate(self.traced.inputs) if given.is_parameter).union(prepared)
        # AOTAutograd merged inputs that share memory, or replaced a wrapper subclass by its inner tensors.
        if len(places) != len(self.traced.inputs) + len(prepared) or any(map(_is_wrapper, self.traced.inputs)):
            fixed = frozenset()
        aten = AtenGraph(
            name=f"{_identifier(self.traced.name)}_{kind.value}",
            kind=kind,
            module=graph,
            fake_inputs=tuple(node.meta.get("val") for node in places),
            static_inputs=fixed if kind is not GraphKind.BACKWARD else frozenset(),
            spare_inputs=frozenset(k for k, node in enumerate(places) if node.meta.get(training.SPARE)),
            shared_inputs=_memory_shared(places),
            ahead=ahead,
        )
        if self.ctx.config.strict:
            verify(aten)
        compiled = self.compile_aten(aten, self.ctx)
        call = cast(Callable[[list[Any]], Any], getattr(compiled, "call", compiled))
        ready = getattr(compiled, "ready", _nothing)
        return Started(call if preparation is None else frozen.Prepared(call, preparation), ready)


def _memory_shared(places: Sequence[fx.Node]) -> tuple[frozenset[int], ...]:
    """The positions of inputs that are in one memory, which nobody else holds."""
    found: dict[int, set[int]] = {}
    for k, node in enumerate(places):
        if training.ONE_MEMORY in node.meta:
            found.setdefault(node.meta[training.ONE_MEMORY], set()).add(k)
    return tuple(map(frozenset, found.values()))


def _nothing() -> None:
    """What a graph waits for that a user's function has compiled."""


@attrs.frozen(eq=False)
class Started:
    """A compiled graph, and what waits until its kernels are built."""

    call: Callable[[list[Any]], Any]
    ready: Callable[[], None]


def _asking(module: fx.GraphModule, functions: Functions) -> fx.GraphModule:
    """A copy of the graph in which each call first checks for Ctrl-C. AOTAutograd spends most of its time running the
    graph on fakes, several times, and torch's own loops never check."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        copies[node] = copy = graph.node_copy(node, copies.__getitem__)
        if (found := numbers.differentiable(node, functions)) is not None:
            copy.op, copy.target = "call_function", interrupts.checking(found)
        elif node.op == "call_function" and not isinstance(node.target, torch._ops.OperatorBase):
            copy.target = interrupts.checking(node.target)
    return casts.showing(fx.GraphModule(module, graph))


def _wants_gradients(fakes: Sequence[object]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(f, torch.Tensor) and f.requires_grad for f in fakes)


def _is_wrapper(given: GraphInput) -> bool:
    return is_wrapper(type(given.fake))


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


class LazyBackward:
    """Compiles the backward graph on its first call or when told to; falls back to running it operator by operator."""

    def __init__(self, build: Callable[..., Started], graph: fx.GraphModule, ctx: CompileContext, name: str) -> None:
        self.build = build
        self.graph = graph
        self.ctx = ctx
        self.name = name
        self.started: Started | None = None
        self.compiled: Callable[[list[Any]], Any] | None = None

    def __call__(self, args: list[Any]) -> Any:
        if self.compiled is None:
            self.compiled = self._attempt(self._build)
        return self.compiled(args)

    def begin(self) -> None:
        """Compile now; the first call waits for the kernels."""

        def build() -> None:
            self.started = self.build(ahead=True)

        self.compiled = self._attempt(build)

    def _build(self) -> Callable[[list[Any]], Any]:
        started = self.started or self.build()
        started.ready()
        return started.call

    def _attempt(self, work: Callable[[], T]) -> T | Callable[[list[Any]], Any]:
        """The result of the work, or what runs the graph operator by operator if that fails."""
        try:
            with torch.enable_grad():
                return work()
        except Exception as error:
            if self.ctx.config.strict:
                raise
            detail = f"backward: {type(error).__name__}: {error}"
            self.ctx.emit(CompileEvent(EventKind.FALLBACK, self.ctx.compile_id, self.name, "", 0, detail))
            return self._operator_by_operator

    def _operator_by_operator(self, args: list[Any]) -> Any:
        given = list(args)
        args.clear()
        return self.graph(*given)
