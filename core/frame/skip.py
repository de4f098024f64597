"""Frames that are not worth tracing, each with its reason. Plugins add rules of their own
(`RuleBook.frame_verdict`)."""

from __future__ import annotations

import gc
import inspect
import sysconfig
from collections import deque
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import cast
from weakref import ref

import torch
from torch import nn

from armature.frame.data import names_of, resume_point

# As code objects name them: symbolic links are not resolved.
OWN_FOLDER = str(Path(__file__).parents[1])
EXAMPLES = f"{OWN_FOLDER}/example_models/"  # example programs, which an installation puts there
TORCH_FOLDER = str(Path(torch.__file__).parent)
LAYERS = f"{TORCH_FOLDER}/nn/modules/"  # worth a graph of their own, unlike the glue code in the rest of torch
PYTHON_FOLDER = sysconfig.get_path("stdlib")
INSTALLED = ("/site-packages/", "/dist-packages/")  # these may be below the standard library's folder

MOST_INSPECTED = 256  # objects inspected in search of tensors
HOLDERS = (torch.Tensor, nn.Module, torch.optim.Optimizer)
LEAVES = (type(None), bool, int, float, complex, str, bytes, range, type, ModuleType, CodeType, FrameType)

IMPORTS = "part of Python's import system; what an import runs, runs once"
OWN = "part of armature"
LOOKS_ABOVE = "it looks at the frames above it, and would see those of compiled code"
_ABOVE = frozenset({
    "_getframe", "currentframe", "f_back", "getouterframes", "extract_stack", "print_stack", "format_stack",
    "walk_stack",
})  # fmt: skip
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_COMPREHENSIONS = frozenset({"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"})


def reason_of_code(code: CodeType) -> str | None:
    """Why no frame of this code is traced; None if nothing prevents it."""
    if code.co_flags & _SUSPENDED:
        return "a generator or coroutine runs in pieces; what it calls is still compiled"
    if code.co_name in _COMPREHENSIONS and resume_point(code) is None:
        return "a comprehension's own frame; it is traced as part of the function it is in"
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return "the body of a module or class, which runs once"
    if is_import(code):
        return IMPORTS
    if code.co_name == "__del__":
        return "a finaliser: compiled code must not hold the dying object"
    if is_own(code):
        return OWN
    return LOOKS_ABOVE if looks_above(code) else None


def looks_above(code: CodeType) -> bool:
    """Whether the program's code names a function or attribute that gives access to its callers' frames."""
    return not _ABOVE.isdisjoint(code.co_names)


def is_import(code: CodeType) -> bool:
    """Whether the code belongs to Python's import system."""
    return code.co_filename.startswith("<frozen importlib")


def is_own(code: CodeType) -> bool:
    """Whether the code is armature's own; example models and tests do not count."""
    file = code.co_filename
    return file.startswith(OWN_FOLDER + "/") and not file.startswith(EXAMPLES)


def is_glue_of_torch(code: CodeType) -> bool:
    """Whether the code is torch's and not a layer: compiled as part of its caller, or where the user asks for it."""
    file = code.co_filename
    return file.startswith(TORCH_FOLDER + "/") and (not file.startswith(LAYERS) or file == f"{LAYERS}module.py")


def is_glue(code: CodeType) -> str | None:
    """What the code belongs to if it isn't worth a graph of its own: torch, or Python's standard library."""
    if is_glue_of_torch(code):
        return "torch"
    file = code.co_filename
    installed = any(folder in file for folder in INSTALLED)
    return "Python's standard library" if file.startswith(PYTHON_FOLDER + "/") and not installed else None


def tensors_in_reach(code: CodeType, variables: Iterable[object], f_globals: Mapping[str, object]) -> bool:
    """Whether a tensor, a module or something of torch is found near a frame's variables and the globals it names.

    This is a heuristic: it decides nothing about frames that can be traced to their end.
    """
    named = (f_globals[name] for name in names_of(code) if name in f_globals)
    todo, seen = deque[object]((*variables, *named)), set[int]()
    while todo and len(seen) < MOST_INSPECTED:
        value = todo.popleft()
        if _is_of_torch(value):
            return True
        if id(value) not in seen and not issubclass(type(value), LEAVES):
            seen.add(id(value))
            todo.extend(_contents_of(value))
    return False


def _contents_of(value: object) -> Iterable[object]:
    """Some of the objects that an object holds, found without running code of its class."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return islice(cast("Iterable[object]", value), MOST_INSPECTED)
    if kind is dict:
        return islice(cast("dict[object, object]", value).values(), MOST_INSPECTED)
    if kind is FunctionType:  # but not its globals
        function = cast(FunctionType, value)
        return (*(function.__closure__ or ()), *(function.__defaults__ or ()), function.__kwdefaults__)
    if issubclass(kind, ref):
        return (ref.__call__(cast("ref[object]", value)),)
    if kind is ContextVar:
        return (cast("ContextVar[object]", value).get(None),)
    return gc.get_referents(value)[:MOST_INSPECTED]


def _is_of_torch(value: object) -> bool:
    kind = type(value)
    if issubclass(kind, HOLDERS):  # not isinstance(): a proxy may lie about its class
        return True
    if issubclass(kind, ModuleType):
        return _within_torch(vars(cast(ModuleType, value)).get("__name__"))
    if kind in (MethodDescriptorType, WrapperDescriptorType):
        return _is_of_torch(cast(MethodDescriptorType, value).__objclass__)
    if issubclass(kind, type):
        return any(_within_torch(vars(base).get("__module__")) for base in type.mro(cast(type, value)))
    if kind in (BuiltinFunctionType, FunctionType):
        return _within_torch(cast(FunctionType, value).__module__)
    return any(_within_torch(vars(base).get("__module__")) for base in kind.__mro__)


def _within_torch(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] == "torch"
