"""Prints a frame request as a readable program: arguments with their types, and the user's source."""

from __future__ import annotations

import inspect
import linecache
import reprlib

import torch

from armature.frame.data import FrameRequest


def show(request: FrameRequest) -> str:
    """The frame's name and location, its arguments, and the source lines if they can be found."""
    code = request.code
    head = f"# {code.co_qualname}    {code.co_filename}:{code.co_firstlineno}"
    values = [f"{name}: {describe(value)}" for name, value in request.locals.items()]
    return "\n".join([head, *(f"#   {line}" for line in values), *_source(request)])


def describe(value: object) -> str:
    """A value in a few words; tensors as dtype, sizes and device."""
    if isinstance(value, torch.Tensor):
        sizes = ", ".join(map(str, value.shape))
        return f"{str(value.dtype).removeprefix('torch.')}[{sizes}] on {value.device}"
    if isinstance(value, (int, float, str, bool, type(None))):
        return reprlib.repr(value)
    return type(value).__qualname__


def _source(request: FrameRequest) -> list[str]:
    lines = linecache.getlines(request.code.co_filename)
    if not lines:
        return ["# the source is not available"]
    block = inspect.getblock(lines[request.code.co_firstlineno - 1 :])
    return [line.rstrip("\n") for line in block]
