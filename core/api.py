"""The public functions: compile, explain, disable, reset and what goes with them."""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, ParamSpec, TypeVar, overload

import attrs
import torch
from torch import nn

from armature.api_errors import NotCallable, WrongArgument
from armature.compiled_module import CompiledModule
from armature.frame.hook import FrameHook
from armature.hookspecs import hookimpl
from armature.interop import dynamo_backend
from armature.options import Options, checked, hook_for
from armature.plugins import manager
from armature.rules import Decision, Rule, Verdict, load_name
from armature.session import session
from armature.torch_abi.eval_frame import set_eval_frame, skip_code

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
    "why",
]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

ALLOWED_PRIORITY = 1000  # a user's word goes before any plugin's


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

    fullgraph: raise errors.Unsupported where the function can't be captured in one graph. dynamic: whether sizes are
    taken as symbols (True), as constants (False), or as constants until they change (None). backend: "auto", a
    name that a plugin gives, or `fn(graph_module, example_inputs) -> callable`. mode: a name torch.compile has.
    options: settings (armature.config) for this function only. Without `fn` a decorator is returned. A module gives a
    module with the same state. Errors: NotCallable, UnknownBackend, UnknownMode, UnknownOption, WrongArgument.
    """
    given = checked(fullgraph, dynamic, backend, mode, options)
    if fn is None:
        return functools.partial(_compile, options=given)
    return _compile(fn, options=given)


def _compile(fn: Any, *, options: Options) -> Any:
    return wrap(fn, hook_for(options).for_one(), options)


def wrap(fn: Any, hook: FrameHook, options: Options) -> Any:
    """The function or module, run with a hook on. `options` are those with which a copy of a module is compiled."""
    if isinstance(fn, CompiledModule) or hasattr(fn, "__armature_original__"):
        fn = fn.__armature_original__
    session().ask_for(fn)
    if isinstance(fn, nn.Module):
        return CompiledModule(fn, hook, functools.partial(_compile, options=options))
    if isinstance(fn, type):
        raise NotCallable(what=f"the class {fn.__qualname__}", suggestion=": an instance of it, or one of its methods")
    if not callable(fn):
        raise NotCallable(what=f"{fn!r} of type {type(fn).__qualname__}", suggestion="")
    return _wrapped(_in_python(fn), hook, fn)


def _wrapped(fn: Callable[..., Any], hook: FrameHook, original: Callable[..., Any]) -> Callable[..., Any]:
    def compiled(*args: Any, **kwargs: Any) -> Any:
        prior = set_eval_frame(hook)
        try:
            return fn(*args, **kwargs)
        finally:
            set_eval_frame(prior)

    functools.update_wrapper(compiled, original)
    compiled.__armature_original__ = original  # type: ignore[attr-defined]
    skip_code(compiled.__code__)
    return compiled


def _in_python(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself; for one written in C a Python function that calls it, since the hook sees frames only."""
    if not isinstance(fn, BuiltinFunctionType):
        return fn

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    # A code object of its own, so that caches are not shared, and in no file of armature's, which are not traced.
    code = call.__code__.replace(co_name=fn.__name__, co_qualname=fn.__qualname__, co_filename=f"<{fn.__qualname__}>")
    return FunctionType(code, {"__builtins__": builtins}, fn.__name__, None, call.__closure__)


def disable(fn: Callable[P, R], *, reason: str = "armature.disable") -> Callable[P, R]:
    """A function that always runs eagerly, with all it calls. Called in a compiled function it breaks the graph."""
    if isinstance(fn, nn.Module):
        fn.forward = disable(fn.forward, reason=reason)
        return fn
    if not callable(fn):
        raise NotCallable(what=repr(fn), suggestion="")

    def disabled(*args: P.args, **kwargs: P.kwargs) -> R:
        prior = set_eval_frame(None)
        try:
            return fn(*args, **kwargs)
        finally:
            set_eval_frame(prior)

    functools.update_wrapper(disabled, fn)
    disabled.__armature_disabled__ = reason  # type: ignore[attr-defined]
    skip_code(disabled.__code__)
    return disabled


@attrs.frozen(eq=False)
class AllowedInGraph:
    """The plugin that stands for one call of `allow_in_graph`."""

    fn: Callable[..., Any]
    reason: str

    @hookimpl
    def armature_rules(self) -> list[Rule]:
        """One rule, for the function allowed."""
        return [Rule(self.fn, Decision.IN_GRAPH, self.reason, priority=ALLOWED_PRIORITY)]


def allow_in_graph(fn: F) -> F:
    """Put calls of this function in the graph as they are, instead of tracing into it. Returns the function."""
    if not callable(fn):
        raise NotCallable(what=repr(fn), suggestion="")
    caller = inspect.stack()[1]
    reason = f"armature.allow_in_graph at {caller.filename}:{caller.lineno}"
    name = f"allow_in_graph:{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', id(fn))}:{id(fn)}"
    if not any(plugin.name == name for plugin in manager().plugins):
        manager().register(AllowedInGraph(fn, reason), name)
    return fn


def graph_break(message: str = "") -> None:
    """Break the graph here when traced; does nothing otherwise. The message stands in the report."""


def is_compiling() -> bool:
    """True while armature traces the code that asks; False when it runs."""
    return False


def mark_dynamic(tensor: torch.Tensor, dim: int | tuple[int, ...] | list[int]) -> None:
    """Take sizes of the tensor along these dimensions as symbols: other sizes do not compile anew."""
    _mark(tensor, dim, "_armature_dynamic_dims")


def mark_static(tensor: torch.Tensor, dim: int | tuple[int, ...] | list[int] | None = None) -> None:
    """Take sizes along these dimensions (None: all) as constants, whatever `dynamic` says."""
    _mark(tensor, tuple(range(tensor.dim())) if dim is None else dim, "_armature_static_dims")


def _mark(tensor: torch.Tensor, dim: int | tuple[int, ...] | list[int], attribute: str) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise WrongArgument(name="tensor", value=tensor, expected="a tensor")
    dims = {dim} if isinstance(dim, int) else set(dim)
    if not all(isinstance(d, int) and -tensor.dim() <= d < tensor.dim() for d in dims):
        raise WrongArgument(name="dim", value=dim, expected=f"dimensions of a tensor with {tensor.dim()}")
    held: set[int] = getattr(tensor, attribute, set())
    setattr(tensor, attribute, held | {d % tensor.dim() for d in dims})


def reset() -> None:
    """Forget all compiled code and all records."""
    session().reset()


def why(what: Callable[..., Any] | str) -> Verdict:
    """The decision about a function (or its dotted name), with reason and origin. LookupError: no such name."""
    obj = load_name(what) if isinstance(what, str) else what
    return manager().tables().rule_book.verdict(obj.__func__ if isinstance(obj, MethodType) else obj)
