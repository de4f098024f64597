"""Facts about ATen operators: fast calls, the arguments they write to, and operators made of Triton kernels."""

from __future__ import annotations

import functools
import inspect
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any, TypeVar

import attrs
import torch
from torch._library import triton as triton_operators

from armature.torch_abi.pytree import tree_leaves

T = TypeVar("T")

OWN = ("aten::", "prims::")  # operators of torch itself


def direct(target: torch._ops.OpOverload) -> Callable[..., Any]:
    """The operator as a C++ function with the same arguments; about 0.6 us faster to call than the overload."""
    return getattr(target, "_op", target)


def is_kernel_operator(target: object) -> bool:
    """Whether an operator was made by `torch.library.triton_op`. AOTAutograd would call its implementation on tensors
    without memory."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return target._schema.name in triton_operators.triton_ops_to_kernels


def is_of_library(target: object) -> bool:
    """Whether a library or the program has registered the operator; its derivative may be any function."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        return not target._qualified_op_name.startswith(OWN)
    return isinstance(target, torch._ops.OpOverload) and not target.name().startswith(OWN)


def overloads_of(target: object) -> tuple[torch._ops.OpOverload, ...]:
    """The overloads that a call of an operator may mean."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        return tuple(getattr(target, name) for name in target.overloads())
    return (target,) if isinstance(target, torch._ops.OpOverload) else ()


@functools.lru_cache(maxsize=4096)
def written_positions(target: torch._ops.OpOverload) -> frozenset[int]:
    """The positions of arguments that an operator writes to, according to its schema."""
    arguments = target._schema.arguments
    return frozenset(n for n, one in enumerate(arguments) if one.alias_info is not None and one.alias_info.is_write)


def writes_of_schema(target: torch._ops.OpOverload) -> Callable[[Sequence[Any]], Iterable[int]] | None:
    """The positions of arguments that a call writes to, as a function of its arguments; None if it writes to none."""
    positions = written_positions(target)
    return (lambda args: positions) if positions else None


def arguments_at(
    target: torch._ops.OpOverload, positions: Iterable[int], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[torch.Tensor, ...]:
    """The tensors among the arguments of a call at some positions of the operator's schema."""
    arguments = target._schema.arguments
    given = [args[n] if n < len(args) else kwargs.get(arguments[n].name) for n in positions]
    return tuple(leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor))


def drops_nothing(target: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether this is fused attention without dropout, which draws no random numbers although it is tagged so."""
    for position, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":
            given = args[position] if position < len(args) else kwargs.get("dropout_p")
            return bool((argument.default_value if given is None else given) == 0)
    return False


@attrs.frozen
class WrittenArgument:
    """An argument that a function writes to. name: its keyword, "" if it has none. flag: the argument that must be true
    for the write, None if it always happens; many: it is a list of tensors."""

    position: int | None
    name: str
    flag: str = ""
    flag_position: int | None = None
    many: bool = False


NOTHING_WRITTEN: tuple[WrittenArgument, ...] = ()


@functools.lru_cache(maxsize=4096)
def written_arguments(fn: Callable[..., Any] | str) -> tuple[WrittenArgument, ...]:
    """The arguments that a torch function, or the tensor method of that name, writes to: by its signature if it is
    written in Python, else by its operator's schemas."""
    found = inspect.getattr_static(torch.Tensor, fn, fn) if isinstance(fn, str) else fn
    if isinstance(found, FunctionType):
        return _by_signature(found)
    if isinstance(found, torch._ops.OpOverload):
        return _by_schemas([found._schema])
    return _by_schemas(_schemas_of(found))


def _by_signature(fn: FunctionType) -> tuple[WrittenArgument, ...]:
    """By convention a function writes to `out`, and to its first argument if `inplace` is true."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):  # some torch functions have another function's signature, or none
        return NOTHING_WRITTEN
    places = {
        name: None if one.kind is one.KEYWORD_ONLY else place for place, (name, one) in enumerate(parameters.items())
    }
    found = [WrittenArgument(places["out"], "out")] if "out" in places else []
    if "inplace" in places:
        found.append(WrittenArgument(0, next(iter(places)), "inplace", places["inplace"]))
    return tuple(found)


def _by_schemas(schemas: Iterable[Any]) -> tuple[WrittenArgument, ...]:
    found: dict[WrittenArgument, None] = {}
    for schema in schemas:
        for place, one in enumerate(schema.arguments):
            if one.alias_info is None or not one.alias_info.is_write:
                continue
            many = isinstance(one.type, torch.ListType)
            if one.kwarg_only and one.is_out:
                found[WrittenArgument(None, "out", many=many)] = None
                found[WrittenArgument(None, one.name, many=many)] = None
            else:
                name = "input" if one.name == "self" else one.name
                found[WrittenArgument(None if one.kwarg_only else place, name, many=many)] = None
    return tuple(found)


def by_position(name: str, args: Sequence[T], kwargs: Mapping[str, T]) -> tuple[Sequence[T], Mapping[str, T]]:
    """The arguments of an operator call, with one passed by position if its name is a Python keyword (`from`).

    Code can't pass it by name: programs write `x.random_(**{"from": 1})`.
    """
    word = next(filter(keyword.iskeyword, kwargs), None)
    if word is None:
        return args, kwargs
    names = ([one.name for one in schema.arguments] for schema in _schemas_of(name))
    places = {found.index(word) for found in names if word in found}
    if places != {len(args)}:
        return args, kwargs
    others = {key: value for key, value in kwargs.items() if key != word}
    return by_position(name, [*args, kwargs[word]], others)


def _schemas_of(fn: object) -> list[Any]:
    """The schemas of all overloads that a function or method in C parses its arguments for."""
    if isinstance(fn, torch._ops.OpOverloadPacket):
        return [getattr(fn, name)._schema for name in fn.overloads()]
    name = fn if isinstance(fn, str) else getattr(fn, "__name__", "")
    return torch._C._jit_get_schemas_for_operator(f"aten::{name}") if name else []
