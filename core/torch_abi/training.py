"""A compiled forward and backward graph behind a short autograd function, for graphs that need no more.

AOTAutograd's own wrapper handles everything, at tens of microseconds a call. `wiring` decides whether a graph needs any
of it: no write to an input that has to be repeated outside the graph, no output that shares memory with an input or
another output, no subclass, no token, no random generator state. `connect` then makes the function.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, TypeVar

import attrs
import torch
from torch import Tensor, fx

from armature.torch_abi import second_order
from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.undefined import feeds

T = TypeVar("T")
Boxed = Callable[[list[Any]], Any]

_C: Any = torch._C
_autocast_enabled: Callable[[], bool] = _C._is_any_autocast_enabled
_TAKES_LIST = hasattr(torch.autograd.Function, "boxed_grads_call")
"""Whether a backward method can be given a list, from which it removes gradients to free them (torch 2.13)."""
_unsafe_view: Callable[..., Tensor] = torch.ops.aten._unsafe_view.default
SPARE, ONE_MEMORY = "spare", "one_memory"
"""Keys in `meta` of placeholders of a backward graph (`mark_spare`): whether the graph may use the memory, and a number
that those have in common which are in the same memory, if nobody else holds it."""
_FREE_OUTPUTS = ("non_alias", "unsafe_view_alias")
_NOT_DIFFERENTIABLE = (
    "this gradient came from a compiled graph, and can't be differentiated: the graph draws random numbers, writes to "
    "tensors or calls operators of other libraries, or an input of it was written to, or dropped, before backward"
)
_TRANSFORMED = "the backward of a compiled graph can't run under vmap, grad or vjp; compile the function around them"


@attrs.frozen(eq=False)
class Tangent:
    """A gradient that the backward graph takes. It was traced with `strides`, or dense in `memory_format`."""

    output: int
    strides: tuple[int, ...] | None
    memory_format: torch.memory_format | None

    def laid_out(self, gradient: Tensor) -> Tensor:
        """The gradient in the layout that was traced. Raises TypeError for a tensor subclass."""
        if type(gradient) not in (Tensor, torch.nn.Parameter):
            raise TypeError(f"a graph compiled for plain tensors got a gradient of type {type(gradient).__name__}")
        if self.strides is None:
            return gradient.contiguous(memory_format=self.memory_format or torch.contiguous_format)
        if gradient.stride() == self.strides:
            return gradient
        made = torch.empty_strided(gradient.shape, self.strides, dtype=gradient.dtype, device=gradient.device)
        return made.copy_(gradient)


@attrs.frozen(eq=False)
class Shared:
    """A saved tensor that is an output, or shares memory with an input or output; it is saved with that owner's version
    counter."""

    saved: int
    of_output: bool
    owner: int
    same_layout: bool  # of the same shape and strides as the owner: then the owner itself is saved


@attrs.frozen(eq=False)
class Wiring:
    """How a forward graph `(*inputs) -> (*outputs, *saved, *sizes)` and its backward graph `(*sizes, *saved, *tangents)
    -> (*grads)` are connected. Numbers are positions among inputs or outputs."""

    outputs: int
    tangents: tuple[Tangent, ...]
    constant: tuple[int, ...]  # outputs without gradient
    unsafe_views: tuple[int, ...]  # outputs that are views of tensors that nobody else sees
    cut: tuple[int, ...]  # inputs whose history no gradient reaches
    learning: tuple[int, ...]  # inputs that require a gradient and may get one
    written: tuple[int, ...]  # inputs that the graph writes to visibly for autograd
    shared: tuple[Shared, ...] = ()
    numbers: frozenset[int] = frozenset()  # inputs that are not tensors
    sizes: int = 0  # the number of sizes saved for the backward graph
    # per input, the tangents that its gradient depends on, as bits; empty if there is one tangent
    feeds: tuple[int, ...] = ()


def wiring(metadata: Any, forward: fx.GraphModule, backward: fx.GraphModule, inputs: int) -> Wiring | None:
    """How the graphs are connected; None if AOTAutograd's wrapper is needed. `metadata`: its findings."""
    if not _is_simple(metadata) or len(metadata.input_info) != inputs:
        return None
    infos = metadata.output_info
    results, gradients = _returned(forward), _returned(backward)
    places = [node for node in backward.graph.nodes if node.op == "placeholder"]
    tensors = [k for k, info in enumerate(infos) if issubclass(info.raw_type, Tensor)]
    # Before torch 2.12 one flag of an output meant both that it requires grad and that backward receives a gradient for
    # it.
    expected = [k for k in tensors if getattr(infos[k], "requires_grad_for_backward", infos[k].requires_grad)]
    tangents = [_tangent(k, meta) for k, meta in zip(expected, metadata.subclass_tangent_meta, strict=False)]
    sizes = metadata.num_symints_saved_for_bw
    results, kept = results[: len(results) - sizes], len(results) - len(infos)
    saved = results[len(infos) :]
    given = [results[k] for k in tensors]
    complete = (
        len(expected) == len(metadata.subclass_tangent_meta)
        and len(places) == kept + len(expected)
        and len(gradients) == inputs
        and len(set(given)) == len(given)
        and all(isinstance(node, fx.Node) and node.op != "placeholder" for node in given)
        and all(isinstance(node, fx.Node) and isinstance(node.meta.get("val"), Tensor) for node in saved)
    )
    if not complete or None in tangents:
        return None
    learning = [k for k, info in enumerate(metadata.input_info) if info.requires_grad]
    cut = tuple(k for k in learning if gradients[k] is None)
    if len(cut) == len(learning) and any(infos[k].requires_grad for k in tensors):
        return None  # a result requires a gradient although none reaches an input
    return Wiring(
        outputs=len(infos),
        tangents=tuple(t for t in tangents if t is not None),
        constant=tuple(k for k in tensors if not infos[k].requires_grad),
        unsafe_views=tuple(k for k in tensors if infos[k].output_type.name == "unsafe_view_alias"),
        cut=cut,
        learning=tuple(k for k in learning if k not in cut),
        written=tuple(metadata.mutated_graph_handled_indices_seen_by_autograd),
        shared=tuple(_shared(forward, results, len(infos))),
        numbers=frozenset(_numbers(forward)),
        sizes=sizes,
        feeds=feeds(forward, backward, expected) if len(expected) > 1 else (),
    )


def mark_spare(wires: Wiring, forward: fx.GraphModule, backward: fx.GraphModule) -> None:
    """Mark the tensors whose memory nobody else is likely to hold when the backward graph runs: those that were saved
    only for it, and the gradients that it takes. `alloc.overlaid` looks whether that is so. Saved tensors that are
    views of one are marked as such."""
    if not hasattr(_C._FunctionBase, "maybe_clear_saved_tensors"):
        return  # the saved tensors live until backward has ended
    owned = {each.saved for each in wires.shared}
    saved = _returned(forward)[wires.outputs :]
    kept = saved[: len(saved) - wires.sizes]
    storages = [node.meta["val"].untyped_storage()._cdata for node in kept]
    places = backward.graph.find_nodes(op="placeholder")[wires.sizes :]
    held = {storages[k] for k, node in enumerate(kept) if node.op == "placeholder" or k in owned}
    for place, storage in zip(places, storages, strict=False):
        if storage not in held:
            place.meta |= {SPARE: True} if storages.count(storage) == 1 else {ONE_MEMORY: storages.index(storage)}
    for place in places[len(kept) :] if _TAKES_LIST else ():
        place.meta[SPARE] = True


def _numbers(forward: fx.GraphModule) -> Iterator[int]:
    places = forward.graph.find_nodes(op="placeholder")
    return (k for k, place in enumerate(places) if not isinstance(place.meta.get("val"), Tensor))


def _is_simple(metadata: Any) -> bool:
    """Whether AOTAutograd's wrapper would do nothing but call a graph with this metadata."""
    # A field that a torch version lacks has none of the expected values, so its wrapper is used.
    missing = object()
    nothing = (
        "num_mutated_inp_runtime_indices",
        "num_outputs_aliased",
        "num_intermediate_bases",
        "num_tensors_saved_with_no_vc_check",
        "num_opaque_objects_saved_for_bw",
        "num_backward_tokens",
        "num_graphsafe_rng_states",
        "is_rng_op_functionalized",
        "tokens",
        "indices_of_inputs_that_requires_grad_with_mutations_in_bw",
    )
    metas = (*metadata.subclass_inp_meta, *metadata.subclass_fw_graph_out_meta, *metadata.subclass_tangent_meta)
    return (
        not any(getattr(metadata, name, missing) for name in nothing)
        and metadata.grad_enabled_mutation is None
        and hasattr(metadata, "mutated_graph_handled_indices_seen_by_autograd")
        and all(type(meta).__name__ == "PlainTensorMeta" for meta in metas)
        and all(info.output_type.name in _FREE_OUTPUTS for info in metadata.output_info)
        and not any(info.mutates_metadata or info.mutates_storage_metadata for info in metadata.input_info)
        and not _hooks_are_graphs()
    )


def _shared(
    forward: fx.GraphModule, results: tuple[Any, ...], outputs: int, apart: Container[int] = ()
) -> Iterator[Shared]:
    """Saved tensors that are outputs, or views of inputs or outputs. apart: outputs that the caller does not get.

    A saved node need not be one tensor: views of a kernel's memory are made anew for each use.
    """
    inputs = [node for node in forward.graph.nodes if node.op == "placeholder"]
    given = {node: k for k, node in enumerate(results[:outputs]) if isinstance(node, fx.Node) and k not in apart}
    owned = [(node, False, k) for k, node in enumerate(inputs)]
    owned += [(node, True, k) for node, k in given.items()]
    owners: dict[int, tuple[fx.Node, bool, int]] = {}
    for node, of_output, k in owned:
        if _plain(value := node.meta.get("val")):
            owners.setdefault(value.untyped_storage()._cdata, (node, of_output, k))
    for k, node in enumerate(results[outputs:]):
        if node in given and node.op != "placeholder":
            yield Shared(k, True, given[node], same_layout=True)
        elif isinstance(node, fx.Node) and node.op != "placeholder" and _plain(node.meta.get("val")):
            found = owners.get(node.meta["val"].untyped_storage()._cdata)
            if found is not None:
                owner, of_output, position = found
                yield Shared(k, of_output, position, _layout(node) == _layout(owner) is not None)


def _plain(value: Any) -> bool:
    # Views that conjugate or negate share their base's memory, but not its values.
    return isinstance(value, Tensor) and not value.is_conj() and not value.is_neg()


def _layout(node: fx.Node) -> tuple[Any, ...] | None:
    """Dtype, shape, strides and offset; None if they depend on symbols."""
    value = node.meta["val"]
    numbers = (*value.shape, *value.stride(), value.storage_offset())
    return (value.dtype, value.dim(), *numbers) if all(type(n) is int for n in numbers) else None


def _hooks_are_graphs() -> bool:
    # Such hooks on saved tensors become part of the two graphs.
    hooks = _C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None and any(isinstance(hook, fx.GraphModule) for hook in hooks)


def _returned(module: fx.GraphModule) -> tuple[Any, ...]:
    results: Any = module.graph.output_node().args[0]
    return tuple(results)


def _tangent(output: int, meta: Any) -> Tangent | None:
    layout = getattr(meta, "memory_format", None)
    if layout is None:
        return None
    if layout.memory_format is not None:
        return Tangent(output, None, layout.memory_format)
    strides = tuple(layout.stride)
    return Tangent(output, strides, None) if all(type(n) is int for n in strides) else None


class _NotDifferentiableTwice(torch.autograd.Function):
    """Passes on gradients under create_graph=True that can't be differentiated, so that differentiating them, by any of
    their inputs, is an error instead of silently zero."""

    @staticmethod
    def forward(ctx: Any, made: Sequence[Tensor | None], *causes: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(None if g is None else g.detach() for g in made)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        raise RuntimeError(_NOT_DIFFERENTIABLE)


def _history(tensors: list[Tensor]) -> Tensor:
    """An empty tensor with the combined history of all of these, without sharing their memory."""
    with torch.enable_grad():
        made = _C._functions.DelayedError(_NOT_DIFFERENTIABLE, len(tensors))(*tensors)
    token: Tensor = made if isinstance(made, Tensor) else made[0]
    token.data = torch.empty(0)
    return token


def _causes(ctx: Any, gradients: Sequence[Any]) -> Iterator[Tensor]:
    """The tensors that the gradients depend on: the inputs (those with a history may be gone) and the incoming
    gradients."""
    yield from (node.variable for node, _ in ctx.next_functions if hasattr(node, "variable"))
    if ctx.history is not None:
        yield ctx.history
    yield from (each for each in gradients if isinstance(each, Tensor))


def connect(
    wires: Wiring, forward: Callable[..., Any], backward: Boxed, replay: second_order.Replay | None = None
) -> Callable[..., tuple[Any, ...]]:
    """Join the two compiled graphs into one differentiable function, called flat, as `forward` is. replay: reruns the
    captured graph."""
    methods = {
        "forward": staticmethod(_forward(wires, forward, replay is not None)),
        "backward": staticmethod(_backward(wires, _without_autocast(backward), replay)),
    }
    function: Any = type("Compiled", (torch.autograd.Function,), methods | {"boxed_grads_call": _TAKES_LIST})
    function._backward_cls.history, function._backward_cls.sizes = None, ()
    for method in methods.values():
        skip_code(method.__wrapped__.__code__, below=True)
    # Function.apply checks for transforms and stale wrappers, in Python and for each input.
    apply = super(torch.autograd.Function, function).apply
    transforms_active: Callable[[], bool] = _C._are_functorch_transforms_active
    cut, written = wires.cut, wires.written
    increment_version = torch.autograd.graph.increment_version

    def call(*args: Any) -> Any:
        if transforms_active():
            return function.apply(*args)  # raises torch's error, which explains why
        return apply(*args)

    def call_prepared(*args: Any) -> Any:
        if written:
            increment_version([args[k] for k in written])
        return call(*[a.detach() if k in cut else a for k, a in enumerate(args)])

    return call_prepared if cut or written else call


def _without_autocast(inner: Callable[..., T]) -> Callable[..., T]:
    """Wrap a graph to run with autocast off: its casts were traced, and its operators must not add any."""

    def run(*args: Any) -> T:
        if _autocast_enabled():
            with _C._DisableAutocast():
                return inner(*args)
        return inner(*args)

    return run


def _forward(wires: Wiring, inner: Callable[..., Any], twice: bool) -> Callable[..., tuple[Any, ...]]:
    """The forward method of the autograd function. twice: its gradients may be differentiated."""
    autocast_enabled, without_autocast = _autocast_enabled, _without_autocast(inner)
    count, constant, unsafe_views = wires.outputs, wires.constant, wires.unsafe_views
    shared, learning = wires.shared, wires.learning
    asked = tuple(tangent.output for tangent in wires.tangents) if wires.feeds else ()
    end = -wires.sizes or None
    remember = second_order.remembering(wires.numbers, wires.cut) if twice else lambda args: None

    def forward(ctx: Any, *args: Any) -> tuple[Any, ...]:
        """Run the graph, and save for backward. It uses loops, not comprehensions: Python 3.11 runs those as functions,
        whose call takes longer than the work here."""
        for k in learning:
            if args[k].grad_fn is not None:
                ctx.history = _history([args[k] for k in learning if args[k].grad_fn is not None])
                break
        ctx.inputs = remember(args)
        results = inner(*args) if not autocast_enabled() else without_autocast(*args)
        outputs: tuple[Any, ...] = tuple(results[:count])
        saved = [*results[count:end]]
        if end:
            ctx.sizes = results[end:]
        if unsafe_views:
            outputs = tuple(_own(o) if k in unsafe_views else o for k, o in enumerate(outputs))
        if shared:
            _share_counters(shared, args, outputs, saved)
        for k, tensor in enumerate(saved):
            if tensor._is_view():  # it would keep its base's history alive too; detached, it counts the same writes
                saved[k] = tensor.detach()
        ctx.save_for_backward(*saved)
        if constant:
            ctx.mark_non_differentiable(*[outputs[k] for k in constant])
            ctx._materialize_non_diff_grads = False
        if asked:
            ctx.set_materialize_grads(False)
            ctx.asked = [(outputs[k].shape, outputs[k].dtype, outputs[k].device) for k in asked]
        return outputs

    return forward


def _share_counters(shared: tuple[Shared, ...], args: Sequence[Any], outputs: Sequence[Any], saved: list[Any]) -> None:
    for each in shared:
        source = (outputs if each.of_output else args)[each.owner]
        saved[each.saved] = source if each.same_layout else _within(saved[each.saved], source)


def sharing_counters(metadata: Any, forward: fx.GraphModule, compiled: Boxed) -> Boxed:
    """Wrap the compiled forward graph for AOTAutograd's wrapper: saved tensors share the version counter of the outputs
    and inputs whose memory they are in. The wrapper would later replace outputs that are views; here they are replaced
    before."""
    count, before = metadata.num_forward, metadata.num_mutated_inp_runtime_indices
    unsafe_views = tuple(before + k for k in metadata.unsafe_view_out_indices)
    apart = {*range(before), *(before + k for k in metadata.aliased_out_indices)}
    shared = tuple(_shared(forward, _returned(forward), count, apart))
    if not shared:
        return compiled
    metadata.unsafe_view_out_indices, metadata.num_unsafe_view_outputs = [], 0

    def run(args: list[Any]) -> list[Any]:
        given = tuple(args)
        results = [*compiled(args)]
        for k in unsafe_views:
            results[k] = _own(results[k])
        outputs, saved = results[:count], results[count:]
        _share_counters(shared, given, outputs, saved)
        return [*outputs, *saved]

    return run


def _within(tensor: Tensor, owner: Tensor) -> Tensor:
    # The compiled graph's views have version counters of their own; this one shares its owner's.
    if tensor.dtype != owner.dtype or not _C._is_alias_of(tensor, owner):
        return tensor
    return owner.detach().as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _own(output: Tensor) -> Tensor:
    return _unsafe_view(output, output.shape) if output._is_view() else output


def _without_tangents(feeds: tuple[int, ...], inner: Boxed) -> Callable[[list[Any], int], Any]:
    """Wrap the backward graph to take the received tangents, as bits. Inputs that only affect other outputs get None,
    as in eager mode, not the zeros that the graph computes."""
    if not feeds:
        return lambda args, came: inner(args)

    def run(args: list[Any], came: int) -> Any:
        made = inner(args)
        return made if came == -1 else tuple(g if fed & came else None for g, fed in zip(made, feeds, strict=True))

    return run


def _zeros(ctx: Any, number: int) -> Tensor:
    """The gradient of an output that received none."""
    shape, dtype, device = ctx.asked[number]
    return torch.zeros(shape, dtype=dtype, device=device)


def _backward(wires: Wiring, inner: Boxed, replay: second_order.Replay | None) -> Callable[..., Any]:
    """The backward method of the autograd function."""
    tangents = tuple((k, t.output, t.strides, t) for k, t in enumerate(wires.tangents))
    transforms_active: Callable[[], bool] = _C._are_functorch_transforms_active
    has_memory: Callable[[Tensor], bool] = _C._has_storage
    grad_enabled = torch.is_grad_enabled
    followed = _followed(wires, replay)
    release: Callable[[Any], None] = getattr(_C._FunctionBase, "maybe_clear_saved_tensors", lambda ctx: None)
    run = _without_tangents(wires.feeds, inner)

    def backward(ctx: Any, *given: Any) -> Any:
        """Run the graph on what was saved and on the incoming gradients, which are freed if nothing else needs them."""
        gradients: Any = given[0] if _TAKES_LIST else given
        if transforms_active():
            return followed(ctx, gradients, None)
        for gradient in gradients:
            if not (gradient is None or has_memory(gradient)):
                # with is_grads_batched=True, this tensor is a batch of several gradients
                return followed(ctx, gradients, None)
        args = [*ctx.sizes, *ctx.saved_tensors]
        came = -1
        for k, output, strides, tangent in tangents:
            gradient = gradients[output]
            if gradient is None:
                gradient, came = _zeros(ctx, k), came & ~(1 << k)
            if type(gradient) is not Tensor or gradient.stride() != strides:
                gradient = tangent.laid_out(gradient)
            if gradient.is_conj() or gradient.is_neg():  # marks that the traced gradient did not have
                gradient = gradient.resolve_conj().resolve_neg()
            args.append(gradient)
        if grad_enabled():
            with torch.no_grad():
                made = run(args, came)
            return followed(ctx, gradients, made)
        # so that the graph can free and reuse this memory while it runs
        release(ctx)
        gradient = None
        if _TAKES_LIST:
            gradients.clear()
        return run(args, came)

    return backward


def _followed(wires: Wiring, replay: second_order.Replay | None) -> Callable[..., Any]:
    """A function from backward's arguments, and the gradients of inputs if they are known, to differentiable
    gradients."""
    outputs = tuple(tangent.output for tangent in wires.tangents)
    apply_once: Callable[..., Any] = _NotDifferentiableTwice.apply

    def follow(ctx: Any, gradients: Sequence[Any], made: Any) -> Any:
        inputs = None if ctx.inputs is None else second_order.unchanged(ctx.inputs)
        pulled = [(k, gradients[k]) for k in outputs if gradients[k] is not None]
        if replay is not None and inputs is not None:
            if made is None:
                return replay.gradients(inputs, pulled)
            return second_order.differentiable(replay, inputs, made, pulled)
        if made is None:
            raise RuntimeError(_TRANSFORMED)
        return apply_once(made, *_causes(ctx, gradients))

    return follow
