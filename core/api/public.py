"""The public functions: compile, reset, the marks on tensors, and those of `marks` and `provenance`."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable, Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar, overload

import torch
from torch import nn

from armature.api.compiled_module import CompiledModule, with_hook
from armature.api.interop import dynamo_backend
from armature.api.options import Options, checked, hook_for
from armature.errors import NotCallable, WrongArgument
from armature.frame.hook import FrameHook
from armature.pipeline.session import session
from armature.plugins.plugin_manager import manager
from armature.rules.marks import allow_in_graph, disable, substitute, trace_through
from armature.rules.provenance import why

__all__ = [
    "allow_in_graph",
    "compile",
    "disable",
    "dynamo_backend",
    "graph_break",
    "is_compiling",
    "mark_dynamic",
    "mark_static",
    "reset",
    "substitute",
    "trace_through",
    "why",
]

F = TypeVar("F", bound=Callable[..., Any])


@overload
def compile(
    fn: F,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] = ...,
    mode: str | None = ...,
    options: Mapping[str, Any] | None = ...,
) -> F: ...
@overload
def compile(
    fn: None = ...,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] = ...,
    mode: str | None = ...,
    options: Mapping[str, Any] | None = ...,
) -> Callable[[F], F]: ...
def compile(
    fn: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "auto",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Compile a function or module: the same behaviour, faster. Compilation happens in the first call.

    fullgraph: raise errors.Unsupported if the function can't be captured in one graph. dynamic: whether sizes become
    symbols (True), constants (False), or constants until they change (None). backend: "auto", a plugin's name, or
    `fn(graph_module, example_inputs) -> callable`, called with the tensors of the call as torch.compile calls it; its
    errors are raised as a BackendFunctionFailed. mode: "default"; "reduce-overhead" to record a graph's launches on a
    GPU and replay them as one; "max-autotune" to do so, and to choose products of matrices, and tile sizes on a GPU, by
    measuring ("max-autotune-no-cudagraphs": without recording). options: settings (armature.config) for this function
    only; {"frozen": True} prepares weights once for inference, and again after they change (writes through `.data` are
    not noticed). Without `fn` a decorator is returned. For a module, returns a module with the same state. Errors:
    NotCallable, UnknownBackend, UnknownMode, UnknownOption, UnknownPlugin, UnknownPass, BadSetting, WrongArgument.
    """
    given = checked(fullgraph, dynamic, backend, mode, options)
    if fn is None:
        return functools.partial(_compile, options=given)
    return _compile(fn, options=given)


def _compile(fn: Any, *, options: Options) -> Any:
    return wrap(fn, hook_for(options).for_one(), options)


def wrap(fn: Any, hook: FrameHook, options: Options) -> Any:
    """The function or module, run with a hook on. `options` are for compiling copies of a module."""
    manager()  # reads the project's rules, so that errors in them are reported here, not in the first call
    if isinstance(fn, CompiledModule) or hasattr(fn, "__armature_original__"):
        fn = fn.__armature_original__
    session().request(fn)
    if isinstance(fn, nn.Module):
        return CompiledModule(fn, hook, functools.partial(_compile, options=options))
    if isinstance(fn, type):
        raise NotCallable(what=f"the class {fn.__qualname__}", suggestion=": an instance of it, or one of its methods")
    if not callable(fn):
        raise NotCallable(what=f"{fn!r} of type {type(fn).__qualname__}", suggestion="")
    return with_hook(_in_python(fn), hook, fn)


def _in_python(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself; for a C function, a Python function that calls it, because the hook only sees frames."""
    if not isinstance(fn, BuiltinFunctionType):
        return fn

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    # The code object is new, so that caches are not shared, and has a file name outside armature, because armature's
    # own files are not traced.
    code = call.__code__.replace(co_name=fn.__name__, co_qualname=fn.__qualname__, co_filename=f"<{fn.__qualname__}>")
    return FunctionType(code, {"__builtins__": builtins}, fn.__name__, None, call.__closure__)


def graph_break(message: str = "") -> None:
    """Break the graph here when traced; does nothing otherwise. The report shows the message.

    Errors: WrongArgument.
    """
    if not isinstance(message, str):
        raise WrongArgument(name="message", value=message, expected="a text", call="armature.graph_break")


def is_compiling() -> bool:
    """True while armature traces the code that calls it; False when the code runs."""
    return False


def mark_dynamic(tensor: torch.Tensor, dim: int | Iterable[int]) -> None:
    """Treat sizes of the tensor along these dimensions as symbols, so that new sizes do not recompile.

    Errors: WrongArgument.
    """
    _mark("armature.mark_dynamic", tensor, dim, "_armature_dynamic_dims")


def mark_static(tensor: torch.Tensor, dim: int | Iterable[int] | None = None) -> None:
    """Treat sizes along these dimensions (None: all) as constants, whatever `dynamic` says. Errors: WrongArgument."""
    every = dim is None and isinstance(tensor, torch.Tensor)
    _mark("armature.mark_static", tensor, range(tensor.dim()) if every else dim, "_armature_static_dims")


def _mark(call: str, tensor: object, dim: object, attribute: str) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise WrongArgument(name="tensor", value=tensor, expected="a tensor", call=call)
    dims = list(dim) if isinstance(dim, Iterable) else [dim]
    numbers = [d for d in dims if type(d) is int and -tensor.dim() <= d < tensor.dim()]
    if len(numbers) < len(dims):
        last = tensor.dim() - 1
        expected = f"dimensions, from {-last - 1} to {last}" if last >= 0 else "none, as it has no dimensions"
        raise WrongArgument(name="dim", value=dim, expected=expected, call=call)
    held: set[int] = getattr(tensor, attribute, set())
    setattr(tensor, attribute, held | {d % tensor.dim() for d in numbers})


def reset() -> None:
    """Forget all compiled code and all records."""
    session().reset()
