"""Compiles a captured graph into a callable: by this package's stages, a plugin's back end, or a user's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import torch
from torch import fx

from armature.codegen.backend import CompilesCalls, Prepares
from armature.context import CompileContext
from armature.errors import DeviceBackendUnready, InvariantError, NoDeviceBackend, invariant
from armature.graph import grad_enabled, inference, numbers, pieces, segments
from armature.graph.as_captured import only_as_captured, runs_as_captured
from armature.graph.data import AtenGraph, GraphCall, GraphKind
from armature.graph.functional import compile_graph
from armature.lower.data import Node
from armature.pipeline.kernels import KernelCompiler
from armature.pipeline.notices import warn_once
from armature.pipeline.session import Compilation
from armature.pipeline.users_backend import UsersBackend
from armature.plugins.tables import Tables
from armature.schedule.expression import Expression, expression
from armature.torch_abi import symbols
from armature.torch_abi.memory import HOST
from armature.torch_abi.numbers import graph_of_numbers
from armature.torch_abi.operators import is_of_library
from armature.torch_abi.pytree import tree_leaves
from armature.trace.data import GraphInput, TracedFrame

NATIVE = ("auto", "armature")  # backends implemented by this package's stages

GraphCallable = Callable[..., Any]
GraphBackend = Callable[[TracedFrame, CompileContext, Compilation], GraphCallable]


def native_backend(traced: TracedFrame, ctx: CompileContext, record: Compilation) -> GraphCallable:
    """Compile the captured graph by this package's stages."""
    module = traced.graph
    if module is not None and grad_enabled.records_gradients_inside(module):
        whole = grad_enabled.enabling_gradients(module)
        with torch.enable_grad():
            run = native_backend(attrs.evolve(traced, graph=whole), ctx, record)
        return module.forward if run == whole.forward else grad_enabled.with_gradients(run)
    prepare_devices(traced, ctx, record)
    if module is None or not inference.enters(module):
        return as_kernels(traced, ctx, record)
    inner = inference.without(module)
    if inner is None:
        return module.forward
    with torch.inference_mode():
        run = as_kernels(attrs.evolve(traced, graph=inner), ctx, record)
    return module.forward if run == inner.forward else inference.inside(run)


def as_kernels(traced: TracedFrame, ctx: CompileContext, record: Compilation) -> GraphCallable:
    """Compile the graph for the current grad mode; return it uncompiled if it has to run operator by operator."""
    module = traced.graph
    if module is not None and runs_as_captured(traced, module, ctx.functions):
        return module.forward
    between = partial(pieces.runs_between_kernels, functions=ctx.functions)
    if module is not None and any(map(between, module.graph.nodes)):
        run = pieces.compiled(traced, lambda piece: as_kernels(piece, ctx, record), between, partial(compile_call, ctx))
        return module.forward if run is None else run
    # The backward graph is compiled later, from data that it holds until then; guards would keep example tensors alive.
    free = attrs.evolve(traced, guards=(), size_guards=tuple)
    try:
        run = segments.compiled(free, ctx, lambda piece: compile_graph(piece, ctx, KernelCompiler(record)))
        if run is None:
            run = compile_graph(free, ctx, KernelCompiler(record))
    except numbers.STAYS_AS_CAPTURED:
        around = split_at_opaque_derivatives(traced, ctx, record)
        if around is None and module is not None and symbols.depends_on_numbers(module.graph):
            return module.forward
        if around is None:
            raise
        run = around
    # wait for the kernels now: if one can't be built, the frame can still run in eager mode
    for graph in record.graphs:
        if graph.aten.kind is not GraphKind.BACKWARD:
            graph.ready()
    return run


def compile_call(ctx: CompileContext, op: object, args: tuple[Any, ...], gradients: bool) -> GraphCallable | None:
    """A call of an operator that takes graphs, compiled by the back end of its device; None: torch's own is called."""
    device = next((leaf.device.type for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)), "")
    backend = ctx.tables.device_backend(device)
    if backend is None or op not in backend.features.graph_calls or not isinstance(backend, CompilesCalls):
        return None
    return backend.compile_call(GraphCall(op, args, gradients, partial(expression_of, ctx)), ctx)


def expression_of(
    ctx: CompileContext,
    module: fx.GraphModule,
    examples: Sequence[torch.Tensor],
    given: Mapping[int, Node],
    derivative: bool = False,
) -> Expression | None:
    """See `GraphCall.expression`."""
    rows = {op: row.fn for op, row in ctx.tables.decompositions.items()}
    made, fakes = graph_of_numbers(module, examples, rows, derivative)
    aten = AtenGraph("numbers", GraphKind.INFERENCE, made, fakes)
    return expression(aten, given, ctx)


def split_at_opaque_derivatives(traced: TracedFrame, ctx: CompileContext, record: Compilation) -> GraphCallable | None:
    """If operators have derivatives that read tensors' values, compile the graph around them; None if none do.

    Such a derivative, a function of a library, can't be part of a graph. It runs as in eager mode.
    """
    if traced.graph is None or not any(is_of_library(node.target) for node in traced.graph.graph.nodes):
        return None
    return pieces.compiled(
        traced,
        lambda piece: as_kernels(piece, ctx, record),
        lambda node: pieces.runs_between_kernels(node, ctx.functions) or is_of_library(node.target),
    )


@attrs.frozen
class ForeignBackend:
    """A backend that takes captured graphs with their inputs."""

    compile_graph: Callable[[fx.GraphModule, tuple[GraphInput, ...]], GraphCallable]

    def __call__(self, traced: TracedFrame, ctx: CompileContext, record: Compilation) -> GraphCallable:
        """The backend's callable for the graph, or for each piece of one that has to be cut."""
        module = traced.graph
        if module is None:
            raise InvariantError(what="a backend is given a graph", details=traced.name)
        if only_as_captured(module.graph, ctx.functions):
            return module.forward
        if any(map(pieces.runs_between_pieces, module.graph.nodes)):
            around = pieces.compiled(traced, lambda piece: self(piece, ctx, record), pieces.runs_between_pieces)
            return module.forward if around is None else around
        return segments.compiled(traced, ctx, self.compile_piece) or self.compile_piece(traced)

    def compile_piece(self, traced: TracedFrame) -> GraphCallable:
        """The backend's callable for a whole graph or a piece."""
        if traced.graph is None:
            raise InvariantError(what="a backend is given a graph", details=traced.name)
        return self.compile_graph(traced.graph, traced.inputs)


def plugins_backend(fn: Callable[..., Any]) -> Callable[[fx.GraphModule, tuple[GraphInput, ...]], GraphCallable]:
    """A graph compiler for a plugin's backend, `fn(graph_module, fakes) -> callable`."""

    def compile_graph(module: fx.GraphModule, inputs: tuple[GraphInput, ...]) -> GraphCallable:
        result: GraphCallable = fn(module, [given.fake for given in inputs])
        invariant(callable(result), "a backend returns a callable", backend=fn, returned=result)
        return result

    return compile_graph


def backend_for(backend: str | Callable[..., Any], tables: Tables, record: Compilation) -> GraphBackend:
    """The backend of this name or function, for one compilation. KeyError: no such name."""
    if callable(backend):
        return ForeignBackend(UsersBackend(backend, record))
    return native_backend if backend in NATIVE else ForeignBackend(plugins_backend(tables.graph_backends[backend]))


def prepare_devices(traced: TracedFrame, ctx: CompileContext, record: Compilation) -> None:
    """Let back ends start what they need, and warn about devices that no plugin makes kernels for. Raises
    DeviceBackendUnready if a back end can't work."""
    tensors = [given.fake for given in traced.inputs if isinstance(given.fake, torch.Tensor)]
    for device in sorted({tensor.device.type for tensor in tensors} or {HOST.type}):
        found = ctx.tables.device_backend(device)
        if found is None:
            warn_once(record, ("device", device), str(NoDeviceBackend(device=device)))
        elif (missing := found.missing()) is not None:
            raise DeviceBackendUnready(backend=found.name, missing=missing)
        elif isinstance(found, Prepares):
            found.prepare(ctx)
