"""`torch.cond`: if the predicate is known, that branch is traced; if it is a tensor, both are traced as separate
graphs.

In eager mode the operator compiles itself, so it must run outside of any frame being compiled. Also the operators by
which an exported program calls a part of itself in another mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import torch

from armature.plugin_api import (
    Args,
    Call,
    NotConstant,
    Polyfill,
    TracedTensor,
    Value,
    existing,
    handles,
)
from armature_torch_handlers.programs.bodies import Body, in_tree, trace_body, with_common_parameters
from armature_torch_handlers.programs.subgraphs import NotSeparable, call_graphs


@handles(*existing("torch.cond", "torch._higher_order_ops.cond.cond_op"))
def cond(
    call: Call, pred: Value, true_fn: Value, false_fn: Value, operands: Value | None = None, **kwargs: Value
) -> Value:
    """A call with a known bool is an `if`."""
    known = pred.as_constant() if pred.is_constant else None
    given = () if operands is None else call.tracing.unpack(operands)
    if isinstance(pred, TracedTensor) and pred.dtype is torch.bool and not pred.shape and not kwargs:
        return choose(call, pred, (true_fn, false_fn), given)
    if not isinstance(known, bool) or kwargs:
        call.graph_break("cond-predicate")
    return call.inline(true_fn if known else false_fn, *given)


def choose(call: Call, pred: Value, functions: tuple[Value, Value], operands: Args) -> Value:
    """A node that calls one of two functions by the truth of a tensor."""
    tracer = call.tracing
    condition = pred.as_argument(tracer)
    true, false = bodies = [branch(call, function, operands) for function in functions]
    if len(true.results) != len(false.results) or not tracer.python.same_or_equal(true.tree, false.tree):
        refuse(call, "branches that give results of different kinds")
    fakes = [either(call, *pair) for pair in zip(true.results, false.results)]
    graphs, free = with_common_parameters(bodies)
    node = torch.ops.higher_order.cond
    found = call_graphs(tracer, node, graphs, lambda *both: (condition, *both, tuple(free)), fakes)
    return in_tree(tracer, found, true.tree)


def branch(call: Call, function: Value, operands: Args) -> Body:
    """A function as a separate graph, whose free values are tensors."""
    try:
        found = trace_body(call.tracing, function, (), tuple(operands), name="branch")
    except NotSeparable as unfit:
        refuse(call, f"a branch that {unfit.reason}")
    if not all(isinstance(fake, torch.Tensor) for fake in found.free_fakes):
        refuse(call, "a branch that uses a number that is not known while tracing")
    return found


def either(call: Call, one: Value, other: Value) -> torch.Tensor:
    """A fake that represents the result of either branch."""
    if not isinstance(one, TracedTensor) or not isinstance(other, TracedTensor):
        refuse(call, "a branch that gives what is no tensor")
    first, second = one.fake, other.fake
    facts = [(fake.shape, fake.stride(), fake.dtype, fake.device) for fake in (first, second)]
    if facts[0] != facts[1]:
        refuse(call, "branches that give tensors of different kinds")
    return (first if first.requires_grad else second).clone()


def refuse(call: Call, what: str) -> NoReturn:
    """Break the graph."""
    call.graph_break("cond-branches", what=what)


@handles(*existing("torch._higher_order_ops.invoke_subgraph.invoke_subgraph_placeholder"))
def marked_region(call: Call, func: Value, *args: Value, **kwargs: Value) -> Value:
    """The function inside `torch.compiler.nested_compile_region`, as in eager mode. Calling the wrapper while
    torch.compile is active would raise."""
    return call.inline(func, *args, **kwargs)


@handles(*existing("torch._higher_order_ops.hints_wrap.hints_wrapper"))
def hinted(call: Call, body_fn: Value, args: Value, kwargs: Value, hints: Value) -> Value | None:
    """The function: hints only matter to other compilers. In eager mode it gets no gradients."""
    if args.python_type() is not tuple or kwargs.python_type() is not dict or not is_hints(hints):
        return None
    return None if call.tracing.unpack(kwargs) else without_gradients(call, body_fn, call.tracing.unpack(args))


@handles(*existing("torch._higher_order_ops.strict_mode.strict_mode"))
def strict(call: Call, callable: Value, operands: Value) -> Value | None:
    """The function, because tracing is always strict. In eager mode it gets no gradients."""
    if operands.python_type() not in (tuple, list):
        return None
    return without_gradients(call, callable, call.tracing.unpack(operands))


def without_gradients(call: Call, fn: Value, args: Sequence[Value]) -> Value | None:
    """The function, if eager mode would not refuse to differentiate its operator."""
    wants = (isinstance(arg, TracedTensor) and arg.fake.requires_grad and torch.is_grad_enabled() for arg in args)
    if any(wants) or not all(arg.is_tensor or arg.python_type() in (int, float, bool) for arg in args):
        return None
    result = call.inline(fn, *args)
    if may_learn(call, result):
        call.graph_break("hints-wrapper", operation=call.fn.__name__)
    return result


def may_learn(call: Call, value: Value) -> bool:
    """Whether it contains a tensor that may need a gradient."""
    if isinstance(value, TracedTensor):
        return value.fake.requires_grad
    if value.python_type() in (tuple, list):
        return any(may_learn(call, part) for part in call.tracing.unpack(value))
    return not value.is_constant


def is_hints(hints: Value) -> bool:
    """Whether it is a dict from strings to strings and numbers."""
    try:
        known = hints.as_constant()
    except NotConstant:
        return False
    types = (int, float, bool, str)
    return isinstance(known, dict) and all(isinstance(k, str) and isinstance(v, types) for k, v in known.items())


def with_grad_enabled(
    enable_grad: bool, wrapped_func: Callable[..., object], *args: object, **kwargs: object
) -> object:
    """A part under `torch.no_grad()` or the like. Like the original, it does not restore the mode if the part
    raises."""
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(enable_grad)
    result = wrapped_func(*args, **kwargs)
    torch.set_grad_enabled(before)
    return result


def with_autocast(
    device_type: str,
    dtype: torch.dtype | None,
    enabled: bool,
    cache_enabled: bool | None,
    wrapped_func: Callable[..., object],
    *args: object,
    **kwargs: object,
) -> object:
    """A part under `torch.autocast`."""
    with torch.autocast(device_type, dtype, enabled, cache_enabled):
        return wrapped_func(*args, **kwargs)


STAND_INS: dict[str, Callable[..., object]] = {
    "torch._higher_order_ops.wrap.wrap_with_set_grad_enabled": with_grad_enabled,
    "torch._higher_order_ops.wrap.wrap_with_autocast": with_autocast,
}
POLYFILLS = tuple(
    Polyfill(original, replacement) for name, replacement in STAND_INS.items() for original in existing(name)
)
