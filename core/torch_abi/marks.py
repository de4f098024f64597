"""Marks that torch's public functions leave on a program's functions for compilers to read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch
import torch._compile
from torch._subclasses.fake_tensor import unset_fake_temporarily

ORIGINAL = "_torchdynamo_orig_callable"  # the attribute that holds the callable wrapped by torch.compile


def assumed_constant(fn: object) -> bool:
    """Whether `torch.compiler.assume_constant_result` was applied to a function."""
    held: Mapping[str, Any] = getattr(fn, "__dict__", {})
    return held.get("_dynamo_marked_constant") is True


def allowed_in_graph(fn: object) -> bool:
    """Whether `torch.compiler.allow_in_graph` was applied to a function that is not torch's own.

    torch.compile stores the mark by the function's identity, in a table that other torch decorators use too.
    """
    rules = sys.modules.get("torch._dynamo.trace_rules")  # the decorator imports it
    if rules is None or id(fn) not in rules._allowed_callable_ids:
        return False
    others = (getattr(rules, name, ()) for name in ("_nonstrict_trace_callable_ids", "_leaf_function_ids"))
    of_torch = str(getattr(fn, "__module__", "")).partition(".")[0] == "torch"
    return not of_torch and not any(id(fn) in held for held in others)


def unpatched(fn: Any) -> Callable[..., Any] | None:
    """The torch function that torch.compile has wrapped; None for other functions.

    It wraps `nn.Module.__init__`, `torch.manual_seed`, the functions that record TorchScript and FX graphs, and in
    optimizers the methods that initialise state and fused steps.
    """
    if not isinstance(fn, FunctionType):
        return None
    if fn is torch.manual_seed and fn is not torch.random.manual_seed:
        return torch.random.manual_seed
    module, held = fn.__module__ or "", fn.__dict__
    of_optimizer = module.startswith("torch.optim.") and fn.__name__.startswith(("_init_group", "_fused_"))
    records = fn in (torch.jit.trace, torch.jit.trace_module, torch.fx.Tracer.trace)
    if (of_optimizer or records) and "_torchdynamo_disable" in held:
        original: Callable[..., Any] = held[ORIGINAL]
        return original
    if module != "torch._dynamo.mutation_guard" or "init" not in fn.__code__.co_freevars or not fn.__closure__:
        return None
    found: Callable[..., Any] = fn.__closure__[fn.__code__.co_freevars.index("init")].cell_contents
    return found


def is_of_torch_compile(fn: Any) -> bool:
    """Whether `torch.compile` returned the function; the callable it compiles is then under ORIGINAL."""
    # functools.wraps copies the marks to other functions, but each mark holds the id of the function that was marked.
    held = fn.__dict__ if isinstance(fn, FunctionType) else {}
    return "_torchdynamo_inline" in held and held.get("_torchdynamo_wrapper_id") == id(fn)


def why_disabled(fn: Any) -> str:
    """Why a function is left to eager mode by `torch.compiler.disable`, or by torch for its own functions; "" if it is
    not."""
    if not isinstance(fn, FunctionType):
        return ""
    held, code = fn.__dict__, fn.__code__
    # functools.wraps copies the marks to other functions, but each mark holds the id of the function that was marked.
    if held.get("_torchdynamo_disable") and held.get("_torchdynamo_wrapper_id") == id(fn):
        return str(held.get("_torchdynamo_disable_msg") or "torch.compiler.disable was applied to it")
    if code.co_filename == torch._compile.__file__ and code.co_qualname.startswith("_disable_dynamo."):
        return "torch leaves this function of its own to eager mode"
    return ""


def call_without_fakes(fn: Callable[..., Any], args: list[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function with fake tensor modes off."""
    with unset_fake_temporarily():
        return fn(*args, **kwargs)
