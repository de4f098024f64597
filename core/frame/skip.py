"""Frames that are not worth tracing, each with its reason. Rules of plugins come on top (`RuleBook.frame_verdict`)."""

from __future__ import annotations

import inspect
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, ModuleType

import torch
from torch import nn

from armature.frame.data import resume_point

OWN_FOLDER = str(Path(__file__).resolve().parents[1])
TORCH_FOLDER = str(Path(torch.__file__).resolve().parent)
PYTHON_FOLDER = sysconfig.get_path("stdlib")
INSTALLED = ("/site-packages/", "/dist-packages/")  # may stand below it
LAYERS = f"{TORCH_FOLDER}/nn/modules/"  # worth a graph of their own, unlike the glue in the rest of torch
SEARCH_DEPTH = 3  # containers within containers looked into for tensors
SEARCH_WIDTH = 64  # elements of a container looked at

HOLDERS = (torch.Tensor, nn.Module, torch.optim.Optimizer)

LOOKS_ABOVE = "it looks at the frames above it, and would see those of compiled code"
_ABOVE = frozenset({
    "_getframe", "currentframe", "f_back", "getouterframes", "extract_stack", "print_stack", "format_stack",
    "walk_stack",
})  # fmt: skip
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_PARTS = frozenset({"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"})


def reason_of_code(code: CodeType) -> str | None:
    """Why no frame of this code is traced; None when nothing speaks against it."""
    if code.co_flags & _SUSPENDED:
        return "a generator or coroutine runs in pieces; what it calls is still compiled"
    if code.co_name in _PARTS and resume_point(code) is None:
        return "a comprehension's own frame; it is traced as part of the function it stands in"
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return "the body of a module or class, which runs once"
    if code.co_filename.startswith("<frozen"):
        return "part of Python's import system"
    if is_own(code):
        return "part of armature"
    return LOOKS_ABOVE if looks_above(code) else None


def looks_above(code: CodeType) -> bool:
    """Whether code of the program names what leads to the frames that called it."""
    return not _ABOVE.isdisjoint(code.co_names)


def is_own(code: CodeType) -> bool:
    """Whether the code is armature's own; example models and tests beside it are not."""
    return code.co_filename.startswith(OWN_FOLDER + "/")


def is_glue_of_torch(code: CodeType) -> bool:
    """Whether the code is torch's and no layer: compiled as part of what calls it, or where the user asks for it."""
    file = code.co_filename
    return file.startswith(TORCH_FOLDER + "/") and (not file.startswith(LAYERS) or file == f"{LAYERS}module.py")


def is_glue(code: CodeType) -> str | None:
    """Of what the code is a part, if it is not worth a graph of its own: of torch, or of Python's standard library."""
    if is_glue_of_torch(code):
        return "torch"
    file = code.co_filename
    installed = any(folder in file for folder in INSTALLED)
    return "Python's standard library" if file.startswith(PYTHON_FOLDER + "/") and not installed else None


def reason_of_frame(code: CodeType, f_locals: Mapping[str, object], f_globals: Mapping[str, object]) -> str | None:
    """Why this one frame is not worth tracing: nothing in reach is a tensor, a module or torch."""
    if any(_has_tensor(value, SEARCH_DEPTH) for value in f_locals.values()):
        return None
    if any(_is_torch(f_globals.get(name)) for name in code.co_names):
        return None
    return "no tensor, module or torch function among its arguments and the globals it names"


def _has_tensor(value: object, depth: int) -> bool:
    if issubclass(type(value), HOLDERS):  # not isinstance(): a proxy says itself of which class it is
        return True
    if depth == 0:
        return False
    return any(_has_tensor(item, depth - 1) for item in _items(value))


def _items(value: object) -> Iterator[object]:
    """What a container or a plain object holds, without running code of its class."""
    if type(value) in (list, tuple, set, frozenset):
        yield from list(value)[:SEARCH_WIDTH]  # type: ignore[call-overload]
    elif issubclass(type(value), dict):
        yield from list(dict.values(value))[:SEARCH_WIDTH]  # type: ignore[arg-type]
    elif type(value).__dictoffset__ != 0 and not issubclass(type(value), (type, ModuleType)):
        try:
            held = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return
        yield from list(held.values())[:SEARCH_WIDTH]


def _is_torch(value: object) -> bool:
    if issubclass(type(value), (torch.Tensor, nn.Module)):
        return True
    name = value.__name__ if isinstance(value, ModuleType) else getattr(type(value), "__module__", None)
    if not isinstance(value, ModuleType) and callable(value):
        name = getattr(value, "__module__", None)
    return isinstance(name, str) and name.partition(".")[0] == "torch"
