"""Seam to torch's other tools that record or read a program: torch.jit, torch.onnx, torch.fx, torch.export.

They need to see the program's own operators. From a compiled graph they would record its computed results, and
torch.jit.trace ends the process if compiled code is looked up while it records.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch
import torch.fx._symbolic_trace as symbolic_trace
import torch.fx.experimental.proxy_tensor
from torch import compiler
from torch.compiler import is_dynamo_compiling

from armature.introspection import existing
from armature.torch_abi.eval_frame import set_eval_frame, skip_code

jit_tracing = torch._C._is_tracing
# Where torch.fx says that it traces: from torch 2.14 on, by thread, and only once it has traced on it.
_FX_HOLDER: Any
_FX_HOLDER, _FX_FLAG = (
    (symbolic_trace._is_fx_tracing_tls, "flag")
    if hasattr(symbolic_trace, "_is_fx_tracing_tls")
    else (symbolic_trace, "_is_fx_tracing_flag")
)

# Functions that call the program for recording. `torch.jit.script` only reads it, in code that is not worth compiling.
_BEGIN = (
    "torch.export.draft_export",
    "torch.export.export",
    "torch.fx.Tracer.trace",
    "torch.fx.experimental.proxy_tensor._MakefxTracer.trace",
    "torch.fx.experimental.proxy_tensor._MakefxTracer.trace_subgraph",
    "torch.jit._trace._get_trace_graph",
    "torch.jit._trace._trace_impl",
    "torch.jit.script",
    "torch.jit.trace",
    "torch.jit.trace_module",
)


def at_work() -> bool:
    """Whether one of them records the next calls on this thread. Called in each call of a compiled function.

    torch.compile treats its own check for this as True, so it traces the original callable, not the compiled function.
    The flags are read as they are: `torch.compiler.is_compiling` takes twice as long as all of this.
    """
    if is_dynamo_compiling() or compiler._is_compiling_flag or fx_at_work():
        return True
    return jit_tracing()


def with_hook(fn: Callable[..., Any], hook: object) -> Callable[..., Any]:
    """A function that calls `fn` with the frame hook on, or as it is if one of these tools records the call."""

    def compiled(*args: Any, **kwargs: Any) -> Any:
        # `at_work()`, in place: as a call it would take a third longer
        if (
            is_dynamo_compiling()
            or compiler._is_compiling_flag
            or getattr(_FX_HOLDER, _FX_FLAG, False)
            or jit_tracing()
        ):
            return fn(*args, **kwargs)
        prior = set_eval_frame(hook)
        try:
            return fn(*args, **kwargs)
        finally:
            set_eval_frame(prior)

    skip_code(compiled.__code__)
    return compiled


def fx_at_work() -> bool:
    """Whether torch.fx traces, so that values are its proxies, not tensors."""
    return bool(getattr(_FX_HOLDER, _FX_FLAG, False))


def begins(code: CodeType) -> bool:
    """Whether the code is that of a function that starts one of these tools."""
    return id(code) in _CODES


_CODES = {
    id(inner.__code__): inner.__code__
    for inner in map(inspect.unwrap, existing(*_BEGIN))
    if isinstance(inner, FunctionType)
}
