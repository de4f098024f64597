"""`torch.autograd.Function`: if no gradient can be needed, a call of `forward`; else a node that calls a function made
from the graphs of forward and backward."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import NoReturn

import torch

from armature.plugin_api import (
    AttrSource,
    Call,
    GraphBreak,
    ListValue,
    ObjectValue,
    TracedTensor,
    TupleValue,
    Value,
    handles,
    object_source,
)
from armature_torch_handlers.contexts.grad import switch_grad
from armature_torch_handlers.programs.function_context import Context
from armature_torch_handlers.programs.function_graphs import with_gradients
from armature_torch_handlers.programs.subgraphs import NotSeparable
from armature_torch_handlers.programs.transforms import LEAVES, innermost, leave_aborted

BASE = torch.autograd.Function
_RAW_APPLY = vars(BASE)["apply"]
APPLY = getattr(_RAW_APPLY, "__func__", _RAW_APPLY)  # a Python class method, or a C one in newer versions of torch
LEVELS = (leave_aborted, torch._C._exit_dual_level)
VMAP = (leave_aborted, LEAVES["_vmap_increment_nesting"])
ID = "autograd-function"


@handles(vars(torch._C._FunctionBase)["__new__"])
def new(call: Call, cls: Value, *args: Value, **kwargs: Value) -> Value | None:
    """An instance of such a class, as in `Scaled().apply(x)`, which is `Scaled.apply(x)` with a warning."""
    made = cls.as_object()
    return ObjectValue(made) if isinstance(made, type) and issubclass(made, BASE) else None


@handles(APPLY)
def apply(call: Call, cls: Value, *args: Value, **kwargs: Value) -> Value:
    """Trace `forward`, and `backward` if gradients are needed. If either can't be traced, the graph breaks here."""
    tracer = call.tracing
    function: type[torch.autograd.Function] = cls.as_object()
    if tracer.overrides.may_be_overridden([*args, *kwargs.values()]):
        call.graph_break("overridden-call", function=f"{function.__qualname__}.apply")
    levels = [(leave, state) for leave, state in tracer.ending.undo if leave in LEVELS]
    if levels and not (all(level == VMAP for level in levels) and is_forward_only(call, cls, args)):
        refuse(call, function, "it is called in a transform of torch.func")
    forward = cls.get_attribute(tracer, "forward")
    setup: Value | None = cls.get_attribute(tracer, "setup_context")  # guards whether it is overridden
    if function.setup_context is BASE.setup_context:
        setup = None
    if setup is not None and (KEYWORDS or not kwargs):
        args = bound(call, function, args, kwargs)
    elif kwargs:
        refuse(call, function, "it is called with keywords")
    context = Context.of(tracer, function, args)
    steps = forward_of(forward, setup, context, args)
    try:
        if torch.is_grad_enabled() and any(isinstance(arg, TracedTensor) and arg.fake.requires_grad for arg in args):
            return with_gradients(call, cls, context, args, steps, setup is not None)
        return without_gradients(call, context, args, steps, setup is not None)
    except NotSeparable as unfit:
        refuse(call, function, unfit.reason)
    except GraphBreak as stop:
        if stop.event.type.id == "autograd-context-attribute":  # the inner break has more specific hints
            call.graph_break("autograd-context-attribute", name=stop.event.facts["name"])
        text = stop.event.type.explanation.format(**stop.event.facts)
        where = stop.event.stack[-1]
        refuse(call, function, f"at {where.file.rpartition('/')[2]}:{where.line} in {where.function}: {text}")


def is_forward_only(call: Call, cls: Value, args: tuple[Value, ...]) -> bool:
    """Whether the call, inside vmap, is equivalent to calling `forward` under vmap's own rules."""
    function: type[torch.autograd.Function] = cls.as_object()
    made = cls.get_attribute(call.tracing, "generate_vmap_rule")  # guarded
    own = function.vmap is not BASE.vmap or function.setup_context is BASE.setup_context
    learns = torch.is_grad_enabled() and any(map(needs_gradient, args))
    return made.is_constant and made.as_constant() is True and not own and not learns


def needs_gradient(value: Value) -> bool:
    """Whether a value is or holds a tensor that requires gradients, at any level of vmap."""
    if isinstance(value, (TupleValue, ListValue)):
        return any(map(needs_gradient, value.items))
    return isinstance(value, TracedTensor) and innermost(value.fake).requires_grad


def refuse(call: Call, function: type, what: str) -> NoReturn:
    """Break the graph: the whole call runs eagerly."""
    call.graph_break(ID, function=function.__qualname__, met=what)


class _Keyword(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: object, inputs: object, output: object) -> None:
        return None


def takes_keywords() -> bool:
    """Whether this torch version accepts keyword arguments to apply: 2.11 does not."""
    apply: Callable[..., object] = _Keyword.apply
    try:
        apply(x=torch.zeros(()))
    except TypeError:
        return False
    return True


KEYWORDS = takes_keywords()


def bound(
    call: Call, function: type[torch.autograd.Function], args: tuple[Value, ...], kwargs: Mapping[str, Value]
) -> tuple[Value, ...]:
    """All arguments by position, as `apply` passes them to a `forward` without context."""
    forward = function.forward
    if not kwargs and isinstance(forward, FunctionType) and not forward.__defaults__ and not forward.__kwdefaults__:
        return args
    tracer = call.tracing
    try:
        given = inspect.signature(forward).bind(*args, **kwargs)
    except TypeError as error:
        tracer.raise_real(error)
    given.apply_defaults()
    if given.kwargs:
        refuse(call, function, "it has parameters that are keywords only")
    defaults = AttrSource(object_source(forward), "__defaults__")
    tracer.guards.same(defaults, forward.__defaults__)
    return tuple(tracer.as_value(item) for item in given.args)


def forward_of(
    forward: Value, setup: Value | None, context: Value, args: tuple[Value, ...]
) -> tuple[Value | Callable[..., object], list[Value]]:
    """The function to call to run forward, and its arguments."""
    if setup is None:
        return forward, [context, *args]
    return forward_and_setup, [forward, setup, context, *args]


def forward_and_setup(
    forward: Callable[..., object], setup_context: Callable[..., object], context: object, *args: object
) -> object:
    """Both steps of a function whose `forward` has no context. Traced."""
    output = forward(*args)
    setup_context(context, args, output)
    return output


def without_gradients(
    call: Call,
    context: Context,
    args: Sequence[Value],
    steps: tuple[Value | Callable[..., object], list[Value]],
    apart: bool,
) -> Value:
    """Trace the call in place. apart: `forward` has no context."""
    tracer = call.tracing
    before = torch.is_grad_enabled()
    switch_grad(tracer, False)
    try:
        result = call.whole(steps[0], *steps[1])
    finally:
        switch_grad(tracer, before)
    nest = issubclass(result.python_type(), tuple)
    items = tracer.unpack(result) if nest else [result]
    context.check(tracer, items, args, apart)
    made = [as_output(call, item, args, context) for item in items]
    return TupleValue(made) if nest else made[0]


def as_output(call: Call, value: Value, args: Sequence[Value], context: Context) -> Value:
    """The program's value for an output that needs no gradient."""
    if not isinstance(value, TracedTensor):
        return value
    given = value in args
    if value.fake.requires_grad and not given and not value.fake._is_view():
        raise NotSeparable("forward gives a tensor that requires a gradient")
    if value.fake.requires_grad and given:
        return call.graph_call("detach", value)
    if given and value not in context.dirty(call.tracing):
        return call.graph_call("view_as", value, value)
    return value
