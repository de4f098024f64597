"""Seam to AOTAutograd: a graph of torch functions in, functional ATen graphs for forward and backward out."""

from __future__ import annotations

import contextlib
import functools
import logging
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import attrs
import torch
from torch import fx
from torch.fx import _lazy_graph_module as lazy_graph_module
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from armature.torch_abi import altering, casts, training, undefined
from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.overrides import QuietSubclasses
from armature.torch_abi.partition import draws_kept, functorch, storage_of
from armature.torch_abi.second_order import replay_of
from armature.torch_abi.symbols import Symbols
from armature.torch_abi.views import may_overlap_itself
from armature.torch_abi.wrappers import fake_mode_of, is_part_placeholder, is_wrapper

GraphCompiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


@runtime_checkable
class Deferred(Protocol):
    """A graph that is compiled on its first call."""

    def __call__(self, args: list[Any]) -> Any: ...

    def begin(self) -> None:
        """Compile it now, without waiting for its kernels."""


@attrs.frozen(eq=False)
class Compilers:
    """Compilers for functional graphs, called with the graph and its fake inputs; each returns a callable that takes
    one list. ahead: backward graphs are compiled with those of forward, where they are called directly and `backward`
    returns a `Deferred`."""

    forward: GraphCompiler
    backward: GraphCompiler
    inference: GraphCompiler
    partition: Partition
    ahead: bool = False


# part of autograd's error about a saved tensor that was changed before backward
REFUSED = "modified by an inplace operation"


class _AsCaptured(Exception):
    """The graph has to run as captured, operator by operator."""


@attrs.define(eq=False)
class _Watch:
    """Intercepts AOTAutograd's calls of the compilers, and stores its findings and the compiled graphs."""

    compilers: Compilers
    context: Any
    module: fx.GraphModule  # of torch functions
    inputs: int
    merged: bool  # the inputs differ from the graph's: some share memory, or are wrapper subclasses
    inner: Callable[..., Any] | None = None  # the compiled inference graph
    metadata: Any = None
    split: tuple[fx.GraphModule, fx.GraphModule] | None = None
    lean: Callable[..., Any] | None = None  # the compiled training graphs, connected without AOTAutograd's wrapper
    later: _CompiledOnFirstCall | None = None  # the backward graph of these
    # if they can't be: which inputs each output depends on
    feeds: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def inference(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        write_code(graph)
        if has_stand_in_constants(graph):
            raise _AsCaptured
        without_tokens(graph)
        self.merged |= len(inputs) != self.inputs
        self.inner = self.compilers.inference(graph, inputs)
        self.metadata = self.context.fw_metadata
        return boxed(self.inner)

    def partition(self, joint: fx.GraphModule, inputs: Any, **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        self.split = self.compilers.partition(joint, inputs, **options)
        for graph in self.split:
            write_code(graph)
        return self.split

    def forward(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile the forward graph. Raises _AsCaptured if the graph has to run operator by operator."""
        write_code(graph)
        metadata = self.context.fw_metadata
        if self.split is not None and (
            any(map(has_stand_in_constants, self.split))
            or reads_what_is_written(self.split[0], metadata)  # backward would read what the call writes at its end
            or self.keeps_new_values(self.split[0], metadata)
        ):
            raise _AsCaptured
        # Compiled graphs look themselves whether they can use the memory of saved tensors (`training.mark_spare`). If
        # AOTAutograd knows of donated inputs, it refuses retain_graph=True.
        metadata.bw_donated_idxs = []
        wires = None
        if self.split is not None and not self.merged:
            wires = training.wiring(metadata, *self.split, self.inputs)
        if self.split is not None and wires is None:
            self.metadata, self.feeds = metadata, undefined.feeds_of_wrapper(metadata, *self.split)
        without_tokens(graph)
        compiled = self.compilers.forward(graph, inputs)
        if wires is None and not self.merged:
            compiled = training.sharing_counters(metadata, graph, compiled)
        if wires is not None and self.split is not None:
            training.mark_spare(wires, *self.split)
            self.later = later = _CompiledOnFirstCall(self.compilers.backward, self.split[1], self.context)
            replay = None if wires.written else replay_of(self.module, self.split[0], wires.learning)
            self.lean = training.connect(wires, flat(compiled, self.inputs), later, replay)
        self.split = None
        return compiled

    def keeps_new_values(self, forward: fx.GraphModule, metadata: Any) -> bool:
        """Whether the values that inputs get after the call are saved for backward, which would read them from the
        inputs. Eager mode saves the inputs, and refuses to run backward when they are written to again."""
        changed = new_values(forward, metadata)
        results: Any = forward.graph.output_node().args[0]
        kept = {storage_of(node) for node in results[metadata.num_forward :] if isinstance(node, fx.Node)}
        return not changed.isdisjoint(kept) and (self.merged or reads_inputs_written(self.module))

    def backward(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        write_code(graph)
        without_tokens(graph)
        return boxed(self.compilers.backward(graph, inputs))


def has_stand_in_constants(graph: fx.GraphModule) -> bool:
    """Whether a constant is a non-tensor part of a wrapper that no longer exists: a mesh from torch's caches that
    equals the mesh of a destroyed process group."""
    return any(is_part_placeholder(getattr(graph, str(node.target))) for node in graph.graph.find_nodes(op="get_attr"))


def give_memory(graph: fx.GraphModule) -> None:
    """Give memory to the graph's constants that are forward mode's zeros, which have none."""
    for node in graph.graph.find_nodes(op="get_attr"):
        held = getattr(graph, str(node.target), None)
        if isinstance(held, torch.Tensor) and altering.is_zero_tensor(held):
            with _disable_current_modes():
                setattr(graph, str(node.target), altering.with_memory(held))


def reads_what_is_written(forward: fx.GraphModule, metadata: Any) -> bool:
    """Whether an input's memory that is written to after the graph has run is saved for backward. Eager mode saves a
    copy, or refuses to run backward."""
    inputs = [node for node in forward.graph.nodes if node.op == "placeholder" and node.name.startswith("primals_")]
    changed = [inputs[position] for position in metadata.mutated_inp_runtime_indices]
    written = {storage for node in changed if (storage := storage_of(node)) is not None}
    results: Any = forward.graph.output_node().args[0]
    kept = results[metadata.num_forward :] if written else ()
    return any(storage_of(node) in written for node in kept if isinstance(node, fx.Node))


def new_values(forward: fx.GraphModule, metadata: Any) -> set[int]:
    """The storages that inputs get after the call."""
    copies = (node for node in forward.graph.nodes if node.target is torch.ops.aten.copy_.default)
    within = (node.args[1] for node in copies if node.args[0].op == "placeholder")
    results: Any = forward.graph.output_node().args[0]
    later = results[: metadata.num_mutated_inp_runtime_indices]
    nodes = (node for node in (*within, *later) if isinstance(node, fx.Node))
    return {storage for node in nodes if (storage := storage_of(node)) is not None}


def reads_inputs_written(module: fx.GraphModule) -> bool:
    """Whether a differentiable call uses an input that other calls write to, or a view of it."""
    places = [node for node in module.graph.nodes if node.op == "placeholder" and "counts_writes" in node.meta]
    written = {storage for node in places if (storage := storage_of(node)) is not None}
    return any(
        isinstance(value := node.meta.get("example_value"), torch.Tensor)
        and value.requires_grad
        and any(
            storage_of(given) in written and storage_of(given) != storage_of(node) for given in node.all_input_nodes
        )
        for node in module.graph.nodes
    )


def without_tokens(graph: fx.GraphModule) -> None:
    """Unwrap operators that check or print: the order that their tokens preserve is that of the graph's nodes."""
    nodes, effect = graph.graph, torch.ops.higher_order.with_effects
    tokens = (effect, torch.ops.prims._make_token.default, torch.ops.prims._sink_tokens.default)
    for node in [node for node in nodes.nodes if node.target is effect]:
        _, function, *args = node.args
        with nodes.inserting_before(node):
            plain = nodes.call_function(function, tuple(args), node.kwargs)
        values = node.meta["val"][1:]
        plain.meta = node.meta | {"val": values[0] if len(values) == 1 else values}
        for part in [user for user in node.users if user.args[1] != 0]:
            if len(values) == 1:
                part.replace_all_uses_with(plain)
                nodes.erase_node(part)
            else:
                part.args = (plain, part.args[1] - 1)
    for node in reversed(list(nodes.nodes)):
        if node.target in tokens or (node.target is operator.getitem and node.args[0].target in tokens):
            nodes.erase_node(node)


@attrs.define(eq=False)
class _CompiledOnFirstCall:
    """Compiles a graph on its first call, or before, in the tracing context that it came from."""

    compiler: GraphCompiler
    graph: fx.GraphModule | None
    context: Any
    compiled: Any = None  # the callable, after the first call

    def __call__(self, args: list[Any]) -> Any:
        if self.graph is not None:
            return self.first(self.graph, args)
        return self.compiled(args)

    def deferred(self, graph: fx.GraphModule) -> Callable[..., Any]:
        without_tokens(graph)
        return self.compiler(graph, [node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")])

    def begin(self) -> None:
        """Compile the graph now, without waiting for its kernels."""
        if self.graph is not None and self.compiled is None:
            with torch._guards.tracing(self.context):
                self.compiled = self.deferred(self.graph)
                if isinstance(self.compiled, Deferred):
                    self.compiled.begin()

    def first(self, graph: fx.GraphModule, args: list[Any]) -> Any:
        with torch._guards.tracing(self.context):
            if self.compiled is None:
                self.compiled = self.deferred(graph)
            results = self.compiled(args)
        self.graph = self.context = None
        return results


def boxed(fn: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Mark a function as taking a single list, which it may empty. It runs with the frame hook off: the first call may
    compile a backward graph, and torch makes that call from the program's frames."""

    def call(args: list[Any]) -> Any:
        return fn(args)

    vars(call)["_boxed_call"] = True
    skip_code(call.__code__, below=True)
    return call


@contextlib.contextmanager
def standing_for(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Iterator[None]:
    """In this context AOTAutograd uses the given fakes when a back end passes tensors of the program.

    So a symbolic size stays symbolic; the tensor alone would make it a constant. pairs: a tensor and its fake, all of
    one fake mode.
    """
    mode = fake_mode_of([fake for _, fake in pairs])
    if mode is None:
        yield
        return
    if isinstance(mode.shape_env, Symbols):
        mode.shape_env.decomposed = True
    for tensor, fake in pairs:
        mode.fake_tensor_converter.set_tensor_memo(tensor, fake)
    guards = torch._guards
    with guards.tracing(guards.TracingContext(mode)):
        yield


def compile_functional(
    module: fx.GraphModule,
    fakes: Sequence[Any],
    compilers: Compilers,
    decompositions: Mapping[torch._ops.OpOverload, Callable[..., Any]],
    run: fx.GraphModule | None = None,
) -> Callable[..., Any]:
    """Compile the graph; returns a function that is called flat. `fakes`: one fake tensor or int per placeholder, all
    of one fake mode. `run`: a copy of the graph that is run in its place while compiling, and shows its casts.

    If the graph needs no runtime wrapper (it writes to no input and returns no views), the compiled graphs are called
    as directly as possible. The graph is returned uncompiled if its backward graph would have to guess the class of
    gradients, or would read inputs that the graph writes to.
    """
    if torch.is_grad_enabled() and returns_differentiable_wrappers(module):
        return module.forward
    guards = torch._guards
    fake_mode = fake_mode_of(fakes)
    if fake_mode is not None and isinstance(fake_mode.shape_env, Symbols):
        fake_mode.shape_env.decomposed = True
        fake_mode.shape_env.pending_fresh_unbacked_symbols.clear()  # of an earlier run
    context = guards.TracingContext(fake_mode)
    watch = _Watch(compilers, context, module, len(fakes), meets_wrappers(module, fakes))
    # Without wrapper subclasses, torch's own graph passes ask proxies (up to torch 2.12).
    asks = QuietSubclasses() if watch.merged else contextlib.nullcontext()
    quiet = without_elements_in_log() if watch.merged else contextlib.nullcontext()
    options = functorch("config").patch(
        unlift_effect_tokens=True, guess_tangent_strides_as_outputs=not returns_overlapping(module)
    )
    numbers = _reading_numbers(fake_mode, module)
    try:
        with guards.tracing(context), asks, quiet, options, numbers, code_when_called(), draws_kept():
            whole: Callable[..., Any] = functorch("aot_autograd").aot_module_simplified(
                casts.showing(module) if run is None else run,
                list(fakes),
                fw_compiler=lambda graph, inputs: boxed(watch.forward(graph, inputs)),
                bw_compiler=watch.backward,
                inference_compiler=watch.inference,
                partition_fn=watch.partition,
                decompositions=dict(decompositions),
                keep_inference_input_mutations=True,
            )
    except _AsCaptured:
        return module.forward
    except RuntimeError as error:  # raised by autograd, for a write inside the graph
        if REFUSED not in str(error):
            raise
        return module.forward
    if watch.lean is not None and torch.is_grad_enabled():
        if compilers.ahead and watch.later is not None:
            watch.later.begin()
        return watch.lean
    if watch.feeds is not None:
        undefined.leave_undefined(watch.metadata, *watch.feeds)
    if watch.inner is not None and not watch.merged and _needs_no_wrapper(watch.metadata):
        needs_grad = torch.is_grad_enabled() and any(isinstance(f, torch.Tensor) and f.requires_grad for f in fakes)
        direct = as_compiled(watch.inner, len(fakes))
        return without_gradients(direct) if needs_grad else direct
    return whole


def code_when_called() -> contextlib.AbstractContextManager[None]:
    """In this context, torch writes a graph module's Python code when it is first called or read: AOTAutograd makes a
    module after each of its steps, and of most only the graph is used."""
    lazily: contextlib.AbstractContextManager[None] = lazy_graph_module._use_lazy_graph_module(True)
    return lazily


def write_code(graph: fx.GraphModule) -> None:
    """Write the code of a graph that is to be compiled now, and again whenever it is asked for: passes change the
    graph, and who runs the module later wants what it was."""
    if isinstance(graph, lazy_graph_module._LazyGraphModule):
        graph.real_recompile()
        own: Any = type(graph)  # each module has a class of its own
        own.recompile = fx.GraphModule.recompile


class _Unprinted(TorchFunctionMode):
    """A mode in which tensors print without their elements."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__repr__:
            return f"{type(args[0]).__name__}(...)"
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def without_elements_in_log() -> Iterator[None]:
    """In this context no elements of wrappers are read to print them in torch's structured log (2.11 also formats texts
    nobody reads)."""
    log = logging.getLogger("torch.__trace")
    handlers, log.handlers = log.handlers, []
    try:
        with _Unprinted():
            yield
    finally:
        log.handlers = handlers


@contextlib.contextmanager
def _reading_numbers(fake_mode: Any, module: fx.GraphModule) -> Iterator[None]:
    """A context for a graph that may read numbers from tensors. Each run of it reads them anew, as other symbols;
    AOTAutograd would look for them among the results. The warning about a derivative that reads a number is off,
    because an error follows."""
    if fake_mode is None or not any(node.target == "item" for node in module.graph.nodes):
        yield
        return
    graphs: Any = functorch("_aot_autograd.graph_compile")
    if not hasattr(graphs.tensorify_python_scalars, "__wrapped__"):
        graphs.tensorify_python_scalars = _unless_ours(graphs.tensorify_python_scalars)
    with fake_mode.shape_env.ignore_fresh_unbacked_symbols(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Error detected in")
        yield


def _unless_ours(run: Callable[..., None]) -> Callable[..., None]:
    """torch's pass that replaces numbers read from tensors by the tensors; it skips graphs that are compiled here."""

    @functools.wraps(run)
    def replace(module: fx.GraphModule, shape_env: Any, *rest: Any) -> None:
        if not isinstance(shape_env, Symbols):
            run(module, shape_env, *rest)

    return replace


def returns_overlapping(module: fx.GraphModule) -> bool:
    """Whether several elements of an output may overlap in memory: a gradient would not fit its layout."""
    outputs = [node.meta.get("val", node.meta.get("example_value")) for node in _returned_nodes(module)]
    return any(isinstance(value, torch.Tensor) and may_overlap_itself(value) for value in outputs)


def _returned_nodes(module: fx.GraphModule) -> list[fx.Node]:
    return module.graph.output_node().all_input_nodes


def returns_differentiable_wrappers(module: fx.GraphModule) -> bool:
    """Whether an output is a wrapper subclass that needs a gradient: the gradient may be of its class, plain, or
    missing."""
    given = (node.meta.get("example_value") for node in _returned_nodes(module))
    return any(isinstance(value, torch.Tensor) and value.requires_grad and is_wrapper(type(value)) for value in given)


def meets_wrappers(module: fx.GraphModule, fakes: Sequence[Any]) -> bool:
    """Whether wrapper subclasses are inputs or are made, so that they have to be taken apart or assembled."""
    made = [node.meta.get("example_value", node.target) for node in module.graph.nodes]
    kinds = (value if isinstance(value, type) else type(value) for value in (*fakes, *made))
    return any(map(is_wrapper, kinds))


def without_gradients(inner: Callable[..., Any]) -> Callable[..., Any]:
    """For a graph whose results need no gradients though its inputs do: disable the recording by its operators."""

    def call(*args: Any) -> Any:
        torch._C._set_grad_enabled(False)
        try:
            return inner(*args)
        finally:
            torch._C._set_grad_enabled(True)

    return call


autocast_off: Callable[[], contextlib.AbstractContextManager[None]] = torch._C._DisableAutocast
"""In this context no operator casts, as in the one in which AOTAutograd compiles and runs the graphs that it makes."""


def as_compiled(inner: Callable[[list[Any]], Any], count: int) -> Callable[..., Any]:
    """A graph for inference, to be called with `count` inputs in the state of autocast that there is now (guarded)."""
    direct = flat(inner, count)
    return without_autocast(direct) if torch._C._is_any_autocast_enabled() else direct


def without_autocast(inner: Callable[..., Any]) -> Callable[..., Any]:
    """For a graph that is called with autocast on: its casts were traced, and its operators must not add any."""

    def call(*args: Any) -> Any:
        with autocast_off():
            return inner(*args)

    return call


@attrs.frozen(eq=False)
class Unboxed:
    """A compiled graph that takes its inputs one by one, called with a list of them. `flat` returns the graph itself,
    because a Python function between it and its caller takes as long as a small kernel."""

    run: Callable[..., Any]

    def __call__(self, args: list[Any]) -> Any:
        return self.run(*args)


def flat(inner: Callable[[list[Any]], Any], count: int) -> Callable[..., Any]:
    """Wrap a callable that takes a list to take `count` inputs one by one."""
    return inner.run if isinstance(inner, Unboxed) else _flat(count)(inner)


@functools.cache
def _flat(count: int) -> Callable[[Callable[[list[Any]], Any]], Callable[..., Any]]:
    """Makes such functions. They have a parameter per input: with `*args`, Python would pack a tuple in each call."""
    names = ", ".join(f"a{position}" for position in range(count))
    text = f"lambda inner: lambda {names}: inner([{names}])"
    made: Callable[..., Any] = eval(compile(text, __file__, "eval"))  # of this file, so that it is never traced
    return made


def _needs_no_wrapper(metadata: Any) -> bool:
    if metadata is None:
        return False
    return not (
        metadata.num_mutated_inp_runtime_indices
        or metadata.num_outputs_aliased
        or metadata.num_intermediate_bases
        or metadata.tokens
        or metadata.grad_enabled_mutation is not None
        or any(type(m).__name__ != "PlainTensorMeta" for m in metadata.subclass_inp_meta)
        or any(type(m).__name__ != "PlainTensorMeta" for m in metadata.subclass_fw_graph_out_meta)
    )
