"""`torch.autograd.Function`: a call of `apply` in the graph, where forward and backward are functions of their
arguments alone. They run as they are when the graph runs or is compiled, so nothing else may have a say in them."""

from __future__ import annotations

import builtins
import dis
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import torch

from armature.plugin_api import Call, TracedTensor, Value, handles, holds_tensors

METHODS = ("forward", "backward", "setup_context", "vjp", "jvp", "vmap")
PURE = frozenset({
    "abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "getattr", "hasattr", "int", "isinstance",
    "len", "list", "max", "min", "pow", "range", "reversed", "round", "slice", "sorted", "str", "sum", "tuple", "type",
    "zip", "AssertionError", "RuntimeError", "TypeError", "ValueError", "NotImplementedError", "NotImplemented",
})  # fmt: skip
ELSEWHERE = frozenset({
    "STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "LOAD_DEREF", "STORE_DEREF", "LOAD_CLASSDEREF", "LOAD_NAME",
    "STORE_SUBSCR", "DELETE_SUBSCR", "DELETE_ATTR", "STORE_SLICE", "LOAD_FROM_DICT_OR_DEREF",
})  # fmt: skip
_HELD: Any = vars(torch.autograd.Function)["apply"]
APPLY = getattr(_HELD, "__func__", _HELD)  # a class method in Python, or one in C in newer torch
ATOMS = (int, float, bool, str, bytes, type(None), torch.dtype, torch.device)


@handles(APPLY)
def apply(call: Call, cls: Value, *args: Value, **kwargs: Value) -> Value | None:
    """Put the call in the graph, if all arguments are tensors and constants."""
    function: Any = cls.as_object()
    if kwargs or not all(isinstance(arg, TracedTensor) or arg.is_constant for arg in args):
        return None
    if not any(isinstance(arg, TracedTensor) for arg in args) or "apply" in vars(function):
        return None
    held = {
        name: vars(base)[name] for base in reversed(function.__mro__[:-1]) for name in METHODS if name in vars(base)
    }
    for name, raw in held.items():
        method = getattr(raw, "__func__", raw)
        if not isinstance(method, FunctionType):
            return None
        if not str(method.__module__).startswith("torch.") and not stands_alone(call, method):
            return None
        tracer = call.tracer
        tracer.guard_is(tracer.attr_source(tracer.object_source(function), name), method)
    return call.graph_call(applied(function), *args)


def applied(function: Any) -> Callable[..., Any]:
    """`function.apply` as a function that a printed graph can name."""

    def apply(*args: Any) -> Any:
        return function.apply(*args)

    apply.__name__ = f"apply_{function.__name__}"
    return apply


def stands_alone(call: Call, function: FunctionType) -> bool:
    """Whether a function depends on its arguments only, and on globals that are guarded, and changes but `ctx`."""
    if function.__closure__ or function.__kwdefaults__:
        return False
    if not all(isinstance(default, ATOMS) for default in function.__defaults__ or ()):
        return False
    return all(inner_stands_alone(call, function, code) for code in codes(function.__code__))


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object, and those of the functions made in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def inner_stands_alone(call: Call, function: FunctionType, code: CodeType) -> bool:
    """The same for one code object."""
    context = function.__code__.co_varnames[:1]
    before: tuple[object, ...] = ()
    for inst in dis.get_instructions(code):
        if inst.opname in ELSEWHERE:
            return False
        if inst.opname == "STORE_ATTR" and before[-1:] != context:
            return False
        if inst.opname == "LOAD_GLOBAL" and not known_global(call, function, str(inst.argval)):
            return False
        if inst.opname not in ("CACHE", "EXTENDED_ARG", "NOP"):
            before = inst.argval if isinstance(inst.argval, tuple) else (inst.argval,)  # 3.13 loads two at once
    return True


def known_global(call: Call, function: FunctionType, name: str) -> bool:
    """Whether a global is a constant, one of torch's, or a class whose calls go in the graph; guarded."""
    namespace = function.__globals__
    if name not in namespace:
        return name in PURE and hasattr(builtins, name)
    held = namespace[name]
    if isinstance(held, (FunctionType, BuiltinFunctionType, ModuleType)):
        home = held.__name__ if isinstance(held, ModuleType) else str(held.__module__)
        if home.partition(".")[0] not in ("torch", "math"):
            return False
    elif not isinstance(held, ATOMS) and not (isinstance(held, type) and holds_tensors(held)):
        return False
    tracer = call.tracer
    table = tracer.wrap(namespace, tracer.object_source(namespace, f"globals of {function.__qualname__}"))
    table.get_item(tracer, call.constant(name))  # guards it
    return True
