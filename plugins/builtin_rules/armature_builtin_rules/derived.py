"""Sets computed by identity from the running Python and torch, for what no list could name.

Dispatcher operators, C methods of tensors, overridable functions of torch, pure builtins, and builtins with side
effects.
"""

from __future__ import annotations

import builtins
import collections
import functools
import math
import operator
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import attrs
import torch

from armature.plugin_api import Answer, Decision, RuleOrigin, Subject, Verdict

PLUGIN = "armature-builtin-rules"
IMPURE = frozenset({
    "__import__", "breakpoint", "compile", "eval", "exec", "exit", "globals", "help", "input", "locals", "open",
    "print", "quit", "vars",
})  # fmt: skip
_C_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_OWN_TYPES = (
    collections.OrderedDict, collections.defaultdict, types.CellType, types.MappingProxyType,
    types.MethodType,
)  # fmt: skip
_OWN_LOOKUP = (collections.defaultdict, collections.deque, types.SimpleNamespace)
_PURE_TYPES = (bool, bytes, complex, dict, float, frozenset, int, list, range, set, slice, str, tuple)
OPERATOR_TYPES = (type(torch.ops.aten.add), type(torch.ops.aten.add.Tensor))
CONSTANT_TYPES = (torch.Size, torch.device, torch.dtype, torch.finfo, torch.iinfo, torch.layout, torch.memory_format)

# the code of its wrappers, which have the names of the wrapped functions
IF_TRACING = torch.jit.script_if_tracing(math.floor).__code__

SCRIPTED = "a function in TorchScript, which computes on tensors and numbers; recorded as one node"
UNSCRIPTED = "calls the function it was made from, unless torch.jit.trace runs"
OPERATOR = "an operator of the dispatcher; recorded as one node"
TENSOR_METHOD = "a method of tensors written in C; recorded as one node"
OVERRIDABLE = "a function of torch in C that takes tensors (it is overridable); recorded as one node"
PURE = "a pure builtin: a call of it is traced, and folded when its arguments are constants"
OWN_WAY = "a handler says how a call of it is traced; where the handler declines, it is left alone"
ACTS = "a builtin that acts on the world or looks at the running frame"
CONSTANT = "makes a constant of torch; folded"
FOLDED = (CONSTANT, PURE, OVERRIDABLE)


@attrs.frozen(eq=False)
class Member:
    """An object of a computed set, and its verdict. Holding the object keeps its id unique."""

    obj: object
    decision: Decision
    reason: str


def decide(subject: Subject) -> Verdict | None:
    """The verdict on an object of one of the sets; None for all others."""
    if any(type(subject.obj) is kind for kind in OPERATOR_TYPES):  # by identity, because `in` may call a metaclass
        return _verdict(Decision.IN_GRAPH, OPERATOR, decide)
    if type(subject.obj) is torch.jit.ScriptFunction:
        return _verdict(Decision.IN_GRAPH, SCRIPTED, decide)
    if type(subject.obj) is types.FunctionType and subject.obj.__code__ is IF_TRACING:
        return _verdict(Decision.INLINE, UNSCRIPTED, decide)
    known = known_objects().get(id(subject.obj))
    if known is not None and known.obj is subject.obj:
        return _verdict(known.decision, known.reason, _members)
    if type(subject.obj) is types.BuiltinFunctionType and id(subject.obj) in overridable():
        return _verdict(Decision.IN_GRAPH, OVERRIDABLE, _overridable)
    return None


@functools.cache
def known_objects() -> Mapping[int, Member]:
    """The computed sets by identity; built on first use."""
    return {id(known.obj): known for known in _members()}


@functools.cache
def overridable() -> Mapping[int, object]:
    """The C functions that tensor-like objects may override, by identity: operators, whatever their names."""
    return {id(fn): fn for fn in _overridable()}


def _overridable() -> Iterator[object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are deprecated, and warn when they are accessed
        groups = torch.overrides.get_overridable_functions().values()
    yield from (fn for group in groups for fn in group if type(fn) is types.BuiltinFunctionType)


def _members() -> Iterator[Member]:
    for obj in _tensor_methods():
        yield Member(obj, Decision.IN_GRAPH, TENSOR_METHOD)
    for obj in CONSTANT_TYPES:
        yield Member(obj, Decision.IN_GRAPH, CONSTANT)
    # some inherit it, depending on the Python version
    lookups = [vars(owner).get("__getattribute__") for owner in _OWN_LOOKUP]
    for obj in (*_OWN_TYPES, *filter(None, lookups)):
        yield Member(obj, Decision.SKIP, OWN_WAY)
    for obj in (*_in_c(object, type, property), BaseExceptionGroup.__new__):
        yield Member(obj, Decision.SKIP, OWN_WAY)
    yield from (Member(obj, Decision.IN_GRAPH, PURE) for obj in _in_c(*_PURE_TYPES, operator, math))
    for name, obj in vars(builtins).items():
        if name in IMPURE:
            yield Member(obj, Decision.SKIP, ACTS)
        elif type(obj) is types.BuiltinFunctionType or (isinstance(obj, type) and not issubclass(obj, BaseException)):
            yield Member(obj, Decision.IN_GRAPH, PURE)


def _in_c(*owners: object) -> Iterator[object]:
    """The C functions of classes or modules."""
    for owner in owners:
        yield from (obj for obj in vars(owner).values() if type(obj) in (*_C_METHODS, types.BuiltinFunctionType))


def _tensor_methods() -> Iterator[object]:
    for owner in torch.Tensor.__mro__[:-1]:  # without `object`
        yield from (obj for obj in vars(owner).values() if type(obj) in _C_METHODS)


def _verdict(decision: Decision, reason: str, source: Callable[..., object]) -> Verdict:
    code = cast(types.FunctionType, source).__code__
    origin = RuleOrigin(PLUGIN, code.co_filename, code.co_firstlineno)
    return Verdict(decision, reason, origin, answer=Answer.OF_ARGUMENTS if reason in FOLDED else Answer.UNKNOWN)
