"""Normalises calls that can be written in several ways: `x @ y`, `x.matmul(y)` and `torch.matmul(input=x, other=y)`."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping
from functools import cache
from types import FunctionType
from typing import Any

import attrs
import torch
from torch import fx
from torch.overrides import get_testing_overrides

from armature.torch_abi.functions import NO_FUNCTIONS, Functions

MISSING = object()


@attrs.frozen
class Spelling:
    """A normalised call: the function, and its arguments by name, including defaults."""

    function: Hashable
    arguments: Mapping[str, object]


def function_of(node: fx.Node, functions: Functions = NO_FUNCTIONS) -> Hashable | None:
    """The function that a node calls, the same for tensor methods and for functions that give the same by rows of
    plugins; None if it calls nothing."""
    target: Any = node.target
    if node.op == "call_method":
        found = getattr(torch, target, None)
        target = found if callable(found) else getattr(torch.Tensor, target, None)  # `torch.float` is a dtype
    elif node.op != "call_function":
        return None
    elif _is_method(target):
        target = getattr(torch, target.__name__, target)
    return functions.same.get(target, target) if isinstance(target, Hashable) else None


def spelled(node: fx.Node, functions: Functions) -> Spelling | None:
    """The normalised call of a node; None if its arguments can't be named."""
    function = function_of(node, functions)
    names = None if function is None else _parameters(function)
    if names is None:
        return None
    args = list(node.args)
    if len(args) > len(names):  # `x.permute(0, 2, 1)`
        args[len(names) - 1 :] = [tuple(args[len(names) - 1 :])]
    given = dict(zip(names, args, strict=False)) | node.kwargs
    for name in functions.unused.get(function, ()):
        given.pop(name, None)
    rest = {name: default for name, default in names.items() if name not in given and default is not MISSING}
    return Spelling(function, given | rest)


def _is_method(target: object) -> bool:
    return inspect.ismethoddescriptor(target) and getattr(torch.Tensor, target.__name__, None) is target


@cache
def _parameters(function: Any) -> Mapping[str, object] | None:
    """A function's parameters in order, with their defaults; None if they are not known."""
    if isinstance(function, torch._ops.OpOverload):
        found = function._schema.arguments
        return {one.name: one.default_value if one.has_default_value() else MISSING for one in found}
    described = function if isinstance(function, FunctionType) else get_testing_overrides().get(function)
    if described is None:
        return None
    parameters = inspect.signature(described).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL or one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    return {one.name: MISSING if one.default is one.empty else one.default for one in parameters}
