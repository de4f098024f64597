"""Functions of the standard library with side effects, where these can happen while tracing."""

from __future__ import annotations

import collections
import contextlib
import pickle
import re
import struct
import sys
import threading
import types
import typing
import warnings
from collections.abc import Callable, Hashable
from typing import Protocol

import attrs

from armature.plugin_api import (
    Address,
    Call,
    CallSource,
    DictValue,
    NotConstant,
    ObjectValue,
    Rebuilding,
    TracedTensor,
    Tracing,
    TupleValue,
    Value,
    existing,
    handled_exception,
    handles,
)
from armature_builtin_rules.addresses import AddressValue
from armature_builtin_rules.polyfills.copy import has_no_attributes, is_copied_by_cloning, memory_of, not_copied

OWN_PACKAGE = Call.__module__.partition(".")[0]
EACH_TIME = frozenset({"error", "always", "all"})
PICKLED = (type(None), bool, int, float, str, bytes)  # what pickle writes depends on their values only


@handles(warnings.warn)
def warn(call: Call, message: Value, category: Value | None = None, *args: Value, **kwargs: Value) -> Value | None:
    """Warn while tracing, if Python would show the warning once. A warning that is shown each time breaks the graph."""
    if not message.is_constant:
        return None
    kind = UserWarning if category is None or category.is_constant else category.as_object()
    if not isinstance(kind, type) or not issubclass(kind, Warning):
        return None
    text, frame = str(message.as_constant()), call.tracing.stack.frames[-1]
    module = str(frame.namespace.get("__name__", "<string>"))
    if action(text, kind, module, frame.line) in EACH_TIME:
        return None
    registry = frame.namespace.setdefault("__warningregistry__", {})
    if not isinstance(registry, dict):
        return None
    warnings.warn_explicit(text, kind, frame.code.co_filename, frame.line, module, registry)
    return call.constant(None)


@handles(pickle.dumps)
def pickled(call: Call, obj: Value) -> Value | None:
    """A pickle of a constant, or of a dict of constants, such as keyword arguments that are a key of a cache."""
    parts = [obj]
    if isinstance(obj, DictValue) and obj.kind is dict and obj.owner is None:
        parts = [part for pair in obj.realise(call.tracing).values() for part in pair]
    if not all(part.is_constant and type(part.as_constant()) in PICKLED for part in parts):
        return None
    texts = [part.as_constant() for part in parts if part.python_type() in (str, bytes)]
    if len(set(texts)) < len(texts):  # where two are one object, pickle refers to the first
        return None
    return call.constant(pickle.dumps(obj.as_constant()))


@handles(not_copied)
def ends_here(call: Call, why: Value) -> Value | None:
    """Break the graph where the polyfill of copy meets an object that it can't copy."""
    call.graph_break("copies-object", reason=why.as_constant())


@handles(memory_of)
def memory(call: Call, tensor: Value) -> Value | None:
    """A name for the memory of a deep-copied tensor; which tensors share memory is guarded."""
    tracer = call.tracing
    if not isinstance(tensor, TracedTensor) or tensor.written or tracer.overrides.present:
        call.graph_break("deep-copies-tensor")
    plain = is_copied_by_cloning(tensor.fake)
    if tensor.source is not None and tensor.real is not None:
        source = CallSource(tensor.source, has_no_attributes, "not vars({})")
        plain &= bool(tracer.objects.wrap(has_no_attributes(tensor.real), source).as_constant())
        tracer.recorder.mutates = True
    if not plain:
        call.graph_break("deep-copies-tensor")
    return call.constant(f"the memory at {tensor.fake.untyped_storage()._cdata}")


@handles(types.SimpleNamespace)
def namespace(call: Call, *others: Value, **attributes: Value) -> Value | None:
    """A namespace: an object with nothing but attributes."""
    if others:
        return None
    made = ObjectValue(types.SimpleNamespace)
    for name, value in attributes.items():
        made.set_attribute(call.tracing, name, value)
    return made


@handles(str.maketrans, bytes.maketrans)
def translation_table(call: Call, first: Value, *others: Value) -> Value | None:
    """The table for `translate`, from constants or a dict of them."""
    if first.python_type() is dict:
        first = call.polyfill(dict, first)
    try:
        made: object = call.fn(*(value.as_constant() for value in (first, *others)))
    except NotConstant:
        return None
    except (TypeError, ValueError) as error:
        call.tracing.raise_real(error)
    return call.new_value(made)


@handles(struct.pack, struct.unpack, struct.unpack_from, struct.calcsize)
def packed(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """Numbers packed as bytes and back, if everything is known."""
    try:
        plain: list[object] = [value.as_constant() for value in args]
        named: dict[str, object] = {name: value.as_constant() for name, value in kwargs.items()}
    except NotConstant:
        return None
    try:
        return call.new_value(call.fn(*plain, **named))
    except Exception as error:
        call.tracing.raise_real(error)


def same_attributes(self: object, other: object) -> object:
    """`==` of namespaces."""
    if not isinstance(self, types.SimpleNamespace) or not isinstance(other, types.SimpleNamespace):
        return NotImplemented
    return self.__dict__ == other.__dict__


@handles(types.SimpleNamespace.__eq__)
def namespaces_equal(call: Call, left: Value, right: Value) -> Value | None:
    """The operator compares the attributes."""
    return call.inline(same_attributes, left, right)


class Parametrised(Protocol):
    """An object that stores the alias of its class that was called."""

    __orig_class__: object


def made_by_alias(alias: object, origin: Callable[..., Parametrised], /, *args: object, **kwargs: object) -> object:
    """`dict[str, int]()`: an object of the class, which stores the alias if it can."""
    made = origin(*args, **kwargs)
    kind = type(made)
    if kind.__dictoffset__ or kind.__setattr__ is not object.__setattr__:
        with contextlib.suppress(AttributeError, TypeError):
            made.__orig_class__ = alias
    return made


@handles(types.GenericAlias.__call__)
def generic_alias(call: Call, alias: Value, *args: Value, **kwargs: Value) -> Value:
    """Call a parametrised class."""
    call.guard(alias)
    return call.polyfill(made_by_alias, alias, call.new_value(alias.as_object().__origin__), *args, **kwargs)


@handles(typing.get_origin, typing.get_args, typing.get_type_hints)
def typing_fact(call: Call, obj: Value, **options: Value) -> Value | None:
    """A fact about a type hint."""
    if options:
        return None
    try:
        return call.new_value(call.fn(obj.as_object()))
    except NotConstant:
        return None


@handles(
    *existing(
        "typing._SpecialForm.__getitem__", "typing._SpecialGenericAlias.__getitem__",
        "typing._GenericAlias.__getitem__",
        "typing._TypedCacheSpecialForm.__getitem__", "typing._AnyMeta.__getitem__", "typing._CallableType.__getitem__",
        "typing._TupleType.__getitem__", "typing._LiteralSpecialForm.__getitem__",
    )
)  # fmt: skip
def type_hint(call: Call, form: Value, parameters: Value) -> Value | None:
    """`Optional[int]` and the like inside a function."""
    try:
        made = form.as_object()
        return call.new_value(made[plain_types(call, parameters)])
    except NotConstant:
        return None


def plain_types(call: Call, parameters: Value) -> object:
    """The objects in the brackets of a type hint. Raises NotConstant."""
    if parameters.python_type() in (tuple, list):
        found = [plain_types(call, item) for item in call.tracing.unpack(parameters)]
        return tuple(found) if parameters.python_type() is tuple else found
    return parameters.as_object()


@handles(collections.namedtuple)
def named_tuple(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """A class of named tuples with known field names, made once while tracing."""
    try:
        plain: list[object] = [arg.as_constant() for arg in args]
        named: dict[str, object] = {name: value.as_constant() for name, value in kwargs.items()}
    except NotConstant:
        return None
    named.setdefault("module", call.tracing.stack.frames[-1].namespace.get("__name__"))
    try:
        make: Callable[..., type] = collections.namedtuple
        made = make(*plain, **named)
    except (TypeError, ValueError) as error:
        call.tracing.raise_real(error)
    return call.new_value(made)


@handles(sys.exc_info)
def exc_info(call: Call) -> Value:
    """The exception being handled; the contents of its traceback are unknown while tracing."""
    error = handled_exception(call.tracing)
    none = call.constant(None)
    if error is None:
        callers_handle_none(call)
        return TupleValue([none, none, none])
    return TupleValue([call.new_value(error.kind), error, error.traceback(call.tracing)])


@handles(sys.exception)
def handled_value(call: Call) -> Value:
    """The exception being handled, or None."""
    error = handled_exception(call.tracing)
    if error is None:
        callers_handle_none(call)
    return error or call.constant(None)


def callers_handle_none(call: Call) -> None:
    """Guard that the frame is not called from an `except` block."""
    error = sys.exception()
    while error is not None and type(error).__module__.partition(".")[0] == OWN_PACKAGE:  # raised by tracing itself
        error = error.__context__
    if error is not None:
        call.tracing.graph_break("exception-of-caller", function=call.fn.__name__)
    call.tracing.guards.answers(sys.exception, (), {}, None)


@attrs.define(eq=False)
class ThreadNumber(AddressValue):
    """`threading.get_ident()`; `of` is that function. Constant during a call, but different in another thread."""

    def describe(self) -> str:
        return "the number of a thread"

    def key(self, tracer: Tracing) -> Hashable:
        return Address(("number of the thread",))

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(threading.get_ident)
        out.call(0)


@handles(threading.get_ident)
def thread(call: Call) -> Value:
    """The current thread. Programs use it as a key; the number itself is not known."""
    return ThreadNumber(call.new_value(threading.get_ident))


def action(text: str, category: type[Warning], module: str, line: int) -> str:
    """The warning filters' decision: "default", "ignore", "error", ..."""
    filters = warnings.filters
    for kind, pattern, wanted, where, number in filters:
        here = matches(pattern, text) and matches(where, module)
        if here and issubclass(category, wanted) and number in (0, line):
            return str(kind)
    return str(getattr(sys.modules["warnings"], "defaultaction", "default"))


def matches(pattern: re.Pattern[str] | str | None, text: str) -> bool:
    """Whether a filter's pattern matches. Python's initial filters must match the whole text."""
    return pattern is None or (pattern == text if isinstance(pattern, str) else pattern.match(text) is not None)
