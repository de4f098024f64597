"""Contexts of torch that are generators (`@contextmanager`), as values that a graph may end and go on inside of.

A generator can be entered only once, so the next graph enters an object of our own in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, _GeneratorContextManager, suppress
from functools import partial
from types import FunctionType
from typing import NoReturn

import attrs
import torch

from armature.plugin_api import (
    Args,
    AttrSource,
    Call,
    ContextValue,
    DictValue,
    EnteredAgain,
    Kwargs,
    NotConstant,
    PairedContextValue,
    Rebuilding,
    Source,
    Tracing,
    Value,
    ValueType,
    existing,
    handles,
    made_inside,
)

Enter = Callable[..., AbstractContextManager[object]]
Leave = Callable[[AbstractContextManager[object]], None]
Settings = dict[Hashable, object]  # by function and arguments, or module and name
READ_BY = existing(
    *(
        f"torch._C._get_{name}_sdp_enabled"
        for name in ("cudnn", "fa3", "flash", "math", "mem_efficient", "overrideable")
    ),
    *(f"torch.backends.cuda.{name}_sdp_enabled" for name in ("cudnn", "flash", "math", "mem_efficient")),
    *(f"torch._C._get_cudnn_{name}" for name in ("enabled", "benchmark", "deterministic", "allow_tf32")),
    "torch._C._get_cudnn_depthwise_kernel",
    "torch._C._get_mkldnn_enabled",
    "torch._C._get_mkldnn_deterministic",
    "torch._C._get_onednn_allow_tf32",
    "torch._C._get_nnpack_enabled",
    "torch._C._get_miopen_immediate",
    "torch.backends.opt_einsum._get_enabled",
    "torch._C._check_sparse_tensor_invariants",
    *(f"torch._C._get_cublas_allow_{name}" for name in ("tf32", "fp16_accumulation")),
    *(f"torch._C._get_cublas_allow_{name}_reduced_precision_reduction" for name in ("fp16", "bf16")),
    "torch.get_float32_matmul_precision",
    "torch._C._get_float32_matmul_precision",
    "torch.is_warn_always_enabled",
    "torch.is_anomaly_enabled",
    "torch.is_anomaly_check_nan_enabled",
)
PRECISION_READ_BY = existing("torch._C._get_fp32_precision_getter")
PRECISIONS = (
    ("generic", "all"),
    *((library, op) for library in ("cuda", "mkldnn") for op in ("all", "conv", "rnn", "matmul")),
)


LIBRARIES = ("cudnn", "miopen", "opt_einsum", "mkldnn", "nnpack")  # `existing` finds nothing in these modules
MODULES = [torch.backends, *(getattr(torch.backends, name) for name in LIBRARIES if hasattr(torch.backends, name))]


def settings_now() -> Settings:
    """What torch's functions and modules say of the settings that contexts make."""
    asked: dict[Hashable, Callable[[], object]] = {(read, ()): read for read in READ_BY}
    asked |= {(read, of): partial(read, *of) for read in PRECISION_READ_BY for of in PRECISIONS}
    for module in MODULES:
        settings = (name for name, held in vars(type(module)).items() if isinstance(held, torch.backends.ContextProp))
        asked |= {(module, name): partial(getattr, module, name) for name in settings}
    found: Settings = {}
    for setting, read in asked.items():
        with suppress(RuntimeError):  # torch does not answer where old and new settings are mixed
            found[setting] = read()
    return found


@handles(*READ_BY, *PRECISION_READ_BY, priority=1)
def setting(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """A setting. One that an open context has made is a constant: a guard would not find it before the frame."""
    if kwargs or not all(value.is_constant for value in args):
        return None
    asked = tuple(value.as_constant() for value in args)
    now = call.fn(*asked)
    if not made_inside(call.tracing, (call.fn, asked), now):
        call.tracing.guards.answers(call.fn, asked, {}, now)
    return call.constant(now)


@attrs.define(eq=False)
class GeneratorContextValue(PairedContextValue):
    """A context that binds None with `as`."""

    def enter(self, tracer: Tracing) -> Value:
        around = next((each for each in tracer.effects.entered if isinstance(each, GeneratorContextValue)), None)
        if around is not self:
            self.settings_before = settings_now() if around is None else around.settings_before
        super().enter(tracer)
        return tracer.constant(None)

    def clone(self) -> Value:
        return context_value(self.enter_by, self.arguments, self.leave_by)


def context_value(enter_by: Enter, arguments: tuple[object, ...], leave_by: Leave) -> GeneratorContextValue:
    """The value of a context that has not been entered."""
    return GeneratorContextValue(AbstractContextManager, enter_by, arguments, leave_by)


def leave_entered(entered: AbstractContextManager[object]) -> None:
    """Leave a context as at the end of a `with`."""
    entered.__exit__(None, None, None)


@attrs.define(eq=False)
class ForkedDrawsValue(ContextValue):
    """`torch.random.fork_rng()`. Making it changes nothing, so the graph ends only where it is entered and left. args,
    kwargs: what the function was called with."""

    args: Args = attrs.field(kw_only=True)
    kwargs: Kwargs = attrs.field(kw_only=True)

    def enter(self, tracer: Tracing) -> NoReturn:
        tracer.graph_break("global-state", function="torch.random.fork_rng")

    def clone(self) -> Value:
        return ForkedDrawsValue(self.kind, args=self.args, kwargs=self.kwargs)

    def rebuild(self, out: Rebuilding) -> None:
        out.spread(torch.random.fork_rng, tuple(self.args), dict(self.kwargs))


@handles(torch.random.fork_rng)
def fork_rng(call: Call, *args: Value, **kwargs: Value) -> Value:
    """The context manager, which has not been entered."""
    return ForkedDrawsValue(_GeneratorContextManager, args=args, kwargs=kwargs)


@handles(_GeneratorContextManager._recreate_cm)
def made_once_more(call: Call, manager: Value) -> Value | None:
    """The context around a function that was decorated before the frame (`@torch.backends.cudnn.flags()`), as its
    handler makes it."""
    tracing = call.tracing
    held = [manager.get_attribute(tracing, name) for name in ("func", "args", "kwds")]
    try:
        function = held[0].as_object()
    except NotConstant:  # a generator function that the frame has made
        return None
    if not isinstance(function, FunctionType) or not isinstance(held[2], DictValue):
        return None
    making = function.__globals__.get(function.__name__)
    if not isinstance(making, FunctionType) or getattr(making, "__wrapped__", None) is not function:
        return None
    named = {str(key.as_constant()): value for key, value in held[2].realise(tracing).values()}
    return tracing.calls.handled(making, tracing.unpack(held[1]), named)


def of_program(obj: EnteredAgain, source: Source, tracer: Tracing) -> Value:
    """The context in which a graph has ended."""
    for name in ("enter_by", "arguments", "leave_by"):
        held = tracer.objects.wrap(getattr(obj, name), AttrSource(source, name))
        if held.is_constant:
            held.as_constant()  # a text is guarded once it is read
    made = context_value(obj.enter_by, obj.arguments, obj.leave_by)
    made.source = source
    return made


VALUE_TYPES = (ValueType(EnteredAgain, of_program),)
