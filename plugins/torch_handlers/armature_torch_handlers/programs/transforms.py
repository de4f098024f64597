"""Function transforms of torch.func: their Python code is traced, and its calls to enter and leave levels are in the
graph, so that the graph does what eager mode does. A level is left in the graph in which it was entered: a break inside
a transform is moved to the call of the transform."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from armature.plugin_api import (
    Call,
    ConstantValue,
    ListValue,
    TracedTensor,
    TupleValue,
    Value,
    existing,
    gradients_releasing,
    handles,
    is_iterable,
)

LEVELS = torch._C._functorch
PREDISPATCH = "torch._functorch.predispatch"
FORWARD = "torch.autograd.forward_ad"
TRACED = (
    *(f"torch.func.{name}" for name in ("grad", "grad_and_value", "vmap", "vjp", "jvp", "jacrev", "jacfwd", "hessian")),
    "torch.func.functional_call",
    "torch.nn.utils.stateless._functional_call",
    "torch.nn.utils.stateless._reparametrize_module",  # changes members of a module, and restores them
    *(f"{FORWARD}.{name}" for name in ("enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual")),
    *(f"{FORWARD}._set_fwd_grad_enabled.{name}" for name in ("__init__", "__enter__", "__exit__")),
    *(f"{FORWARD}.dual_level.{name}" for name in ("__enter__", "__exit__")),
)
# Maps a function that enters a level to the one that leaves it.
LEAVES: Mapping[str, Callable[[], object]] = {
    "_grad_increment_nesting": LEVELS._grad_decrement_nesting,
    "_jvp_increment_nesting": LEVELS._jvp_decrement_nesting,
    "_vmap_increment_nesting": LEVELS._vmap_decrement_nesting,
}


@handles(*existing(*TRACED), *(fn.__wrapped__ for fn in existing(*TRACED) if hasattr(fn, "__wrapped__")))
def traced(call: Call, *args: Value, **kwargs: Value) -> Value:
    """Python code that a rule skips because it changes state: the calls that do so have handlers below."""
    return call.polyfill(call.fn, *args, **kwargs)


@handles(
    *existing(
        "torch._functorch.vmap.vmap_impl",
        "torch._functorch.eager_transforms.grad_impl",
        "torch._functorch.eager_transforms.grad_and_value_impl",
        "torch._functorch.eager_transforms._vjp_with_argnums",
        "torch._functorch.eager_transforms._jvp_with_argnums",
    )
)
def transformed_call(call: Call, *args: Value, **kwargs: Value) -> Value:
    """Run the function inside a level. The hooks for saved tensors that it disables can't be in a graph."""
    return call.whole(getattr(call.fn, "__wrapped__", call.fn), *args, **kwargs)


@handles(*existing(*(f"torch._C._functorch.{name}" for name in LEAVES), *(f"{PREDISPATCH}.{name}" for name in LEAVES)))
def enter_level(call: Call, *args: Value, **kwargs: Value) -> Value:
    """Enter a level, while tracing and in the graph; returns its number."""
    tracer = call.tracing
    fn = getattr(LEVELS, call.fn.__name__)
    if not tracer.stack.atomic_depth:
        call.graph_break("transform-level", operation=call.fn.__name__)
    tracer.graph.change_state(fn, tuple([arg.as_argument(tracer) for arg in args]))
    level = fn(*[arg.as_fake(tracer) for arg in args])
    tracer.ending.undo.append((leave_aborted, LEAVES[call.fn.__name__]))
    return call.constant(level)


def innermost(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without vmap's levels, which determines whether it requires gradients."""
    while LEVELS.is_batchedtensor(tensor):
        tensor = LEVELS.get_unwrapped(tensor)
    return tensor


def leave_aborted(leave: Callable[[], object]) -> None:
    """Leave a level if tracing stops inside it."""
    leave()


@handles(
    *existing(
        *(f"torch._C._functorch.{fn.__name__}" for fn in LEAVES.values()),
        *(f"{PREDISPATCH}.{fn.__name__}" for fn in LEAVES.values()),
    )
)
def leave_level(call: Call) -> Value:
    """Leave the innermost level."""
    tracer = call.tracing
    leave = getattr(LEVELS, call.fn.__name__)
    if not tracer.ending.undo or tracer.ending.undo[-1] != (leave_aborted, leave):
        call.graph_break("transform-level", operation=call.fn.__name__)
    tracer.ending.undo.pop()
    tracer.graph.change_state(leave, ())
    leave()
    return call.constant(None)


@handles(*existing("torch._C._functorch.set_inplace_requires_grad_allowed", "torch._C._set_fwd_grad_enabled"))
def switch(call: Call, enabled: Value) -> Value:
    """A setting that a transform changes and restores."""
    tracer = call.tracing
    fn = call.fn
    if not tracer.stack.atomic_depth:
        call.graph_break("transform-level", operation=fn.__name__)
    wanted = bool(enabled.as_constant())
    if tracer.ending.undo and tracer.ending.undo[-1] == (fn, wanted):
        tracer.ending.undo.pop()  # restored
    else:
        tracer.ending.undo.append((fn, READ[fn.__name__]()))
    tracer.graph.change_state(fn, (wanted,))
    fn(wanted)
    return call.constant(None)


@handles(*existing("torch._C._functorch.get_inplace_requires_grad_allowed"))
def setting(call: Call) -> Value:
    """While tracing, torch's own setting is that of the program."""
    answer: object = call.fn()
    return call.constant(answer)


READ: Mapping[str, Callable[[], bool]] = {
    "set_inplace_requires_grad_allowed": LEVELS.get_inplace_requires_grad_allowed,
    "_set_fwd_grad_enabled": torch._C._is_fwd_grad_enabled,
}


@handles(*existing("torch._C._enter_dual_level", f"{PREDISPATCH}._enter_dual_level"))
def enter_dual_level(call: Call) -> Value:
    """Enter a level of forward mode."""
    tracer = call.tracing
    if not tracer.stack.atomic_depth:
        call.graph_break("transform-level", operation=call.fn.__name__)
    tracer.graph.change_state(torch._C._enter_dual_level, ())
    level = torch._C._enter_dual_level()
    tracer.ending.undo.append((torch._C._exit_dual_level, level))
    return call.constant(level)


@handles(*existing("torch._C._exit_dual_level", f"{PREDISPATCH}._exit_dual_level"))
def exit_dual_level(call: Call, level: Value) -> Value:
    """Leave a level of forward mode."""
    tracer = call.tracing
    left = level.as_constant()
    if not tracer.ending.undo or tracer.ending.undo[-1] != (torch._C._exit_dual_level, left):
        call.graph_break("transform-level", operation=call.fn.__name__)
    tracer.ending.undo.pop()
    tracer.graph.change_state(torch._C._exit_dual_level, (left,))
    torch._C._exit_dual_level(left)
    return call.constant(None)


@handles(*existing("torch._functorch.eager_transforms._set_tensor_requires_grad"))
def differentiable(call: Call, x: Value) -> Value:
    """Applies to a tensor made for the level, so no tensor of the program changes."""
    return call.graph_call("requires_grad_", x)


@handles(
    *existing(
        "torch._functorch.predispatch.lazy_load_decompositions", "torch.autograd.forward_ad._maybe_load_decompositions"
    )
)
def load_decompositions(call: Call) -> Value:
    """Registers operators of torch, once; done while tracing."""
    call.fn()
    return call.constant(None)


@handles(*existing("torch.autograd.grad"))
def gradient(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """Inside a level this is an operation like any other. Elsewhere it is too, unless the gradient would flow through
    tensors computed outside of the graph. It takes any iterables of tensors: the graph gets tuples."""
    names = ("outputs", "inputs", "grad_outputs")
    given = tuple(listed(call, value) if k < len(names) else value for k, value in enumerate(args))
    named = {name: listed(call, value) if name in names else value for name, value in kwargs.items()}
    if given != args or named != kwargs:
        return call.inline(call.fn, *given, **named)
    of_dict = args[1] if len(args) > 1 else kwargs.get("inputs")
    if of_dict is not None and of_dict.python_type() is dict and TAKES_DICTS:
        return call.polyfill(gradient_by_key, *args, **kwargs)
    if call.tracing.stack.atomic_depth:
        return call.graph_call(call.fn, *args, **kwargs)
    outputs, wanted = (args[k] if len(args) > k else kwargs.get(name) for k, name in enumerate(("outputs", "inputs")))
    known = [*call.tracing.recorder.inputs, *each(outputs)]
    history = history_of(each(outputs))
    for one in each(wanted):
        if isinstance(one, TracedTensor) and one.real is not None:
            check_histories(call, history, [given for given in known if given is not one])
    if call.tracing.overrides.present:
        return None
    keeps, again = (args[k] if len(args) > k else kwargs.get(name) for k, name in OPTIONS)
    if keeps is None or (keeps.is_constant and keeps.as_constant() is None):
        keeps = again
    on_fakes = call.fn if keeps is not None and keeps.as_fake(call.tracing) else gradients_releasing
    args = (*args[:3], *[RETAINED for _ in args[3:4]], *args[4:])
    return call.graph_call_as(on_fakes, call.fn, *args, **kwargs | retained(args))


OPTIONS = ((3, "retain_graph"), (4, "create_graph"))
# The graph may return the outputs, and compilers differentiate what it returns.
RETAINED = ConstantValue(True)


def retained(args: tuple[Value, ...]) -> dict[str, Value]:
    """The option of `torch.autograd.grad` that keeps what the outputs need to be differentiated again, if no argument
    is in its position."""
    return {} if len(args) > 3 else {"retain_graph": RETAINED}


TAKES_DICTS = "dict" in str(torch.autograd.grad.__annotations__["inputs"])  # newer versions do


GRAD: Callable[..., tuple[torch.Tensor, ...]] = torch.autograd.grad


def gradient_by_key(
    outputs: torch.Tensor | Sequence[torch.Tensor], inputs: dict[object, torch.Tensor], *args: object, **kwargs: object
) -> dict[object, object]:
    """`torch.autograd.grad` of a dict of tensors."""
    return dict(zip(inputs, GRAD(outputs, tuple(inputs.values()), *args, **kwargs)))


def listed(call: Call, value: Value) -> Value:
    """A tuple of the items of an iterable; lists, tuples and what is no iterable stay as they are."""
    kind = value.python_type()
    if value.is_tensor or issubclass(kind, (list, tuple, Mapping)) or not is_iterable(kind):
        return value
    return TupleValue(list(call.tracing.python.collect_items(value)))


def each(tensors: Value | None) -> list[Value]:
    """The tensors of an argument that is one tensor or several."""
    if tensors is None:
        return []
    return list(tensors.items) if isinstance(tensors, (ListValue, TupleValue)) else [tensors]


def history_of(outputs: list[Value]) -> set[object]:
    """The nodes of autograd's graph that the outputs were computed by, while tracing."""
    found: set[object] = set()
    left = [output.fake.grad_fn for output in outputs if isinstance(output, TracedTensor)]
    while left:
        node = left.pop()
        if node is not None and node not in found:
            found.add(node)
            left += [before for before, _ in node.next_functions]
    return found


def check_histories(call: Call, history: set[object], others: list[object]) -> None:
    """Break the graph if an output depends on a tensor that the program computed before the frame: it may depend on the
    inputs of the gradient, and the graph does not contain that computation. Guards that all other tensors are
    leaves."""
    for given in others:
        if not isinstance(given, TracedTensor) or given.real is None or not given.fake.requires_grad:
            continue
        if not given.real.is_leaf and (given.fake.grad_fn in history or given.fake._version):
            call.graph_break("autograd-engine", function="torch.autograd.grad")
        if not isinstance(given.real, torch.nn.Parameter):
            given.guard_autograd(call.tracing)
