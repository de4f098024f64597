"""Calls of functions and classes: by a handler, a polyfill, the interpreter itself, or the rules."""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
import torch

from armature.introspection import class_member, describe, is_written_in_c
from armature.rules.data import Decision, Verdict
from armature.torch_abi.marks import (
    ORIGINAL,
    allowed_in_graph,
    assumed_constant,
    call_without_fakes,
    is_of_torch_compile,
    unpatched,
    why_disabled,
)
from armature.torch_abi.overrides import OWN_CLASSES, is_overriding
from armature.torch_abi.wrappers import is_wrapper
from armature.trace.base import Args, BoundMethod, Kwargs, TypeRules, Value, type_name
from armature.trace.errors import GraphBreak
from armature.trace.handlers import Call, Handler, opaque_function
from armature.trace.locations import locations_of
from armature.trace.plans import Plan
from armature.trace.recording import torch_function, wrapper_subclasses
from armature.trace.signatures import takes
from armature.trace.values.classes import ClassValue, bind, find_in_class, held_value, inherits, rely_on_class
from armature.trace.values.classes import overrides as overrides_in_python
from armature.trace.values.constant import ConstantValue
from armature.trace.values.context import ContextValue
from armature.trace.values.derived import PLAIN, DerivedObjectValue, chooses_class_in_c, derives, native
from armature.trace.values.function import FunctionValue, MethodValue
from armature.trace.values.iterator import GeneratorValue, Original
from armature.trace.values.methods import check_call, fits
from armature.trace.values.sequence import TupleValue
from armature.trace.values.tensor import TensorValue
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.base import Tracing
    from armature.trace.plans import Knowledge


def ruled(tracer: Tracing, plan: Plan, verdict: Verdict, args: Args, kwargs: Kwargs) -> Value | None:
    """The result according to a rule that precedes handlers; None: trace into the function as usual."""
    if verdict.decision is Decision.SKIP:
        tracer.graph_break(verdict.breaks, function=describe(plan.fn).name, reason=verdict.reason)
    return tracer.graph.call(plan.fn, args, kwargs) if verdict.decision is Decision.IN_GRAPH else None


def handled(tracer: Tracing, plan: Plan, args: Args, kwargs: Kwargs) -> Value | None:
    """The result of a rule of high priority, a handler or the polyfill; None if there is none or all decline."""
    if plan.first is not None:
        return ruled(tracer, plan, plan.first, args, kwargs)
    if type(plan.fn) is types.FunctionType and not takes(plan.fn, len(args), kwargs):
        return None  # the error of such a call is raised where its body is traced, or at run time
    call = Call(plan.fn, tuple(args), kwargs, tracer)
    for handler in plan.handlers:
        try:
            found = handler.fn(call, *args, **kwargs)
        except TypeError:
            if fits(handler.fn, (call, *args), kwargs):
                raise
            if handler.complete:
                tracer.graph_break("function-arguments", function=describe(plan.fn).name)
            found = None  # the polyfill does not apply to such a call
        if found is not None:
            return found
    if plan.polyfill is not None:
        return stand_in(tracer, plan, plan.polyfill.replacement, args, kwargs)
    return None


def handled_by_plugins(knowledge: Knowledge, tracer: Tracing, fn: object, args: Args, kwargs: Kwargs) -> Value | None:
    """Like `handled`, for a callable."""
    return handled(tracer, knowledge.plan_of(fn), args, kwargs)


def handled_as(
    knowledge: Knowledge, tracer: Tracing, target: Callable[..., object], fn: Any, args: Args, kwargs: Kwargs
) -> Value | None:
    """The result of a handler whose target stands for many functions, for one of them."""
    handler: Handler | None = knowledge.tables.handler(target)
    return None if handler is None else handler.fn(Call(fn, tuple(args), kwargs, tracer), *args, **kwargs)


def call_opaque(call: Call, /, *args: Value, **kwargs: Value) -> Value | None:
    """Call a function as an opaque node, by the handler registered for `opaque_function`."""
    return call.tracing.calls.handled_as(opaque_function, call.fn, args, kwargs)


def stand_in(tracer: Tracing, plan: Plan, replacement: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
    """The result of a polyfill. Generators made by its own code replace the iterators that C code would have made."""
    in_c = is_written_in_c(plan.fn)
    if in_c and not takes(replacement, len(args), kwargs):
        tracer.graph_break("function-arguments", function=describe(plan.fn).name)
    before = len(tracer.stack.generators)
    found = inline_python(tracer, replacement, args, kwargs)
    own = describe(replacement).filename if in_c else None
    for made in tracer.stack.generators[before:]:
        if isinstance(made, GeneratorValue) and made.frame.code.co_filename == own and made.original is None:
            made.original = Original(plan.fn if made is found else None)
    return found


def call_object(
    knowledge: Knowledge, tracer: Tracing, fn: Callable[..., Any], value: Value, args: Args, kwargs: Kwargs
) -> Value:
    """Call a function that exists as a Python object: as plugins or the interpreter define, else by the rules."""
    if tracer.overrides.present and torch_function.is_overridable(tracer, fn):
        found = tracer.calls.dispatched(fn, args, kwargs)
        if found is not None:
            return found
    check_call(tracer, fn, len(args), kwargs, value.describe())
    method: Any = fn
    if type(fn) in C_METHODS and not (args and issubclass(args[0].python_type(), method.__objclass__)):
        tracer.graph_break("method-of-another-type", method=value.describe())
    plan = knowledge.plan_of(fn)
    if plan.takes_precedence:
        found = handled(tracer, plan, args, kwargs)
        if found is not None:
            return found
    found = _known_function(tracer, fn, args, kwargs)
    if found is None and args:
        found = _known_method(tracer, fn, value, args, kwargs)
    return _by_rules(tracer, fn, value, args, kwargs) if found is None else found


def _known_function(tracer: Tracing, fn: Any, args: Args, kwargs: Kwargs) -> Value | None:
    """A call of a function that the program has marked, or of a C method's `__get__`; None for others."""
    if assumed_constant(fn):
        return _call_for_real(tracer, fn, args, kwargs)
    if allowed_in_graph(fn):
        return tracer.calls.handled_as(opaque_function, fn, args, kwargs)
    if type(fn) is types.MethodWrapperType and fn.__name__ == "__get__" and type(fn.__self__) in C_METHODS:
        return MethodValue(tracer.as_value(fn.__self__), args[0])
    return None


def _known_method(tracer: Tracing, fn: Any, value: Value, args: Args, kwargs: Kwargs) -> Value | None:
    """A method called as a function, with its object as argument; None if the rules decide."""
    owner, rest = args[0], args[1:]
    if isinstance(owner, TensorValue) and tracer.overrides.present:
        found = _of_tensor(tracer, fn, owner, rest, kwargs)
        if found is not None:
            return found
    if type(fn) in C_METHODS:
        method = method_of_base(tracer.types, fn, owner)
        if chooses_class_in_c(tracer.types, owner, fn.__name__):
            tracer.graph_break("copy-of-derived-class", method=value.describe())
        if method is not None:
            result = method.call_method(tracer, fn.__name__, rest, kwargs)
            if result is method and method.mutable and fn.__name__.startswith("__i"):
                return owner  # `__iadd__` returns the object itself
            return result
    if isinstance(owner, ContextValue) and getattr(fn, "__name__", "") in ("__enter__", "__exit__"):
        return owner.call_method(tracer, fn.__name__, rest, kwargs)
    return None


def _by_rules(tracer: Tracing, fn: Any, value: Value, args: Args, kwargs: Kwargs) -> Value:
    """A call according to its verdict: traced into, a node of the graph, or a graph break."""
    verdict = tracer.calls.verdict(fn)
    if verdict.decision is Decision.IN_GRAPH:
        return tracer.graph.call(fn, args, kwargs)
    original = unpatched(fn) if verdict.decision is Decision.SKIP else None
    if original is not None:
        return tracer.as_value(original).call(tracer, args, kwargs)
    if verdict.decision is Decision.SKIP and is_of_torch_compile(fn):
        return value.get_attribute(tracer, ORIGINAL).call(tracer, args, kwargs)
    # The wrapper of `torch.compiler.disable(recursive=False)` is in a file whose other functions are traced.
    if disabled := why_disabled(fn):
        tracer.graph_break("disabled-function", function=_named(fn, value, args), reason=disabled)
    if verdict.decision is Decision.INLINE and isinstance(value, FunctionValue):
        return tracer.calls.inline_function(value, args, kwargs)
    if verdict.decision is Decision.SKIP and type(fn) is types.WrapperDescriptorType and fn.__name__ == "__next__":
        tracer.graph_break("next-of-iterator", type=fn.__objclass__.__name__)
    # A rule may ask to trace into a callable without Python code.
    tracer.graph_break(
        verdict.breaks if verdict.decision is Decision.SKIP else "function-in-c",
        function=_named(fn, value, args),
        reason=verdict.reason,
    )


def _named(fn: Any, value: Value, args: Args) -> str:
    """The name of a callable in a break: for the `__new__` of a C base class, the class being made."""
    if type(fn) is types.BuiltinFunctionType and fn.__name__ == "__new__" and args and isinstance(args[0], ClassValue):
        return describe(args[0].cls).name
    return value.describe()


def _of_tensor(tracer: Tracing, fn: Any, tensor: TensorValue, args: Args, kwargs: Kwargs) -> Value | None:
    """A tensor method, or an attribute's `__get__`, in the form passed to `__torch_function__`."""
    if type(fn) in C_METHODS and fn.__objclass__ in OWN_CLASSES:
        return tensor.torch_method(tracer, fn.__name__, args, kwargs)
    of = getattr(fn, "__self__", None)
    if type(fn) is not types.MethodWrapperType or not isinstance(of, (types.GetSetDescriptorType, property)):
        return None
    name = of.__name__ if isinstance(of, types.GetSetDescriptorType) else getattr(of.fget, "__name__", "")
    if find_in_class(torch.Tensor, name) is None:
        return None
    if fn.__name__ == "__get__":
        return tensor.torch_attribute(tracer, name)
    if fn.__name__ == "__set__":
        tensor.set_attribute(tracer, name, args[0])
        return tracer.constant(None)
    return None


@attrs.define(eq=False)
class MethodInC(BoundMethod):
    """A method in C of an object whose class has a `lookup` in C: a call breaks as rules for its module say."""

    lookup: object

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> NoReturn:
        verdict, kind = tracer.calls.verdict(self.lookup), describe(self.owner.python_type()).name
        if verdict.breaks == "function-in-c":  # there is no rule
            tracer.graph_break("attribute-in-c", name=self.name, type=kind)
        tracer.graph_break(verdict.breaks, function=f"{kind}.{self.name}", reason=verdict.reason)


def read_in_c(tracer: Tracing, owner: Value, lookup: object, name: str) -> Value:
    """An attribute that a `lookup` written in C reads. Breaks the graph unless it is a method that nothing hides."""
    made, kind = MethodInC(owner, name, lookup), owner.python_type()
    method = isinstance(class_member(kind, name), types.MethodDescriptorType) and not kind.__dictoffset__
    return made if method else made.call(tracer, (), {})


C_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)


def method_of_base(types: TypeRules, fn: Any, owner: Value) -> Value | None:
    """The builtin part of an object on which a C method is called as a function, as in `list.append(obj, item)`."""
    kind = fn.__objclass__
    if derives(owner):
        own = native(owner)
        return own if issubclass(own.python_type(), kind) and kind is not object else None
    if isinstance(owner, ConstantValue) and isinstance(owner.value, enum.Enum) and kind in PLAIN:
        return ConstantValue(PLAIN[kind](owner.value))  # the enum may have another method of this name
    if kind is tuple and isinstance(owner, TupleValue) and owner.kind is torch.Size:
        return TupleValue(owner.items)  # its methods return tuples
    return owner if kind in types.bases and issubclass(owner.python_type(), kind) else None


def _call_for_real(tracer: Tracing, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
    """Call a function whose result is constant, according to the program."""
    plain = [arg.as_constant() for arg in args]
    named = {name: value.as_constant() for name, value in kwargs.items()}
    try:
        return tracer.as_value(call_without_fakes(fn, plain, named))
    except Exception as error:
        tracer.raise_real(error)


def inline_python(tracer: Tracing, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
    """Trace into a Python function, whatever the rules say."""
    if isinstance(fn, types.MethodType):
        args, fn = (tracer.as_value(fn.__self__), *args), fn.__func__
    value = tracer.as_value(fn)
    if isinstance(value, FunctionValue):
        return tracer.calls.inline_function(value, args, kwargs)
    return value.call(tracer, args, kwargs)


def call_whole(tracer: Tracing, fn: Value | Callable[..., Any], args: Args, kwargs: Kwargs) -> Value:
    """Trace a call that no break may cut, as it leaves inconsistent state in between; into it, if it is in Python."""
    tracer.stack.atomic_depth += 1
    try:
        if isinstance(fn, Value):
            return fn.call(tracer, args, kwargs)
        return inline_python(tracer, fn, args, kwargs)
    except GraphBreak as stop:
        stop.locations, stop.blame = locations_of(tracer.stack.frames), None
        raise
    finally:
        tracer.stack.atomic_depth -= 1


def call_class(knowledge: Knowledge, tracer: Tracing, value: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """Call a class: by its rows in the tables, else by the first row of CLASS_ROWS that fits."""
    cls = value.cls
    if cls is torch.device and tracer.overrides.has_modes:
        answer = tracer.calls.dispatched(cls, args, kwargs)
        if answer is not None:
            return answer
    check_call(tracer, cls, len(args), kwargs, value.describe())
    plan = knowledge.plan_of(cls)
    if plan.takes_precedence:
        found = handled(tracer, plan, args, kwargs)
        if found is not None:
            return found
    return next(make for _, fits, make in CLASS_ROWS if fits(cls))(tracer, value, args, kwargs)


def _exception(tracer: Tracing, value: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """Make an exception: one handler, of `BaseException.__new__`, makes those of all classes; then `__init__` runs."""
    init, new = find_in_class(value.cls, "__init__"), find_in_class(value.cls, "__new__")
    if new is not None and isinstance(new.obj, staticmethod):
        tracer.graph_break("exception-class-with-new", type=value.describe())
    made: Value = tracer.python.builtin(BaseException.__new__, value, *args)
    if init is not None and isinstance(init.obj, types.FunctionType):
        _returns_none(tracer, bind(tracer, made, value.cls, init, "__init__").call(tracer, args, kwargs))
    elif kwargs:
        tracer.graph_break("exception-keywords", type=value.describe())
    return made


def _torch_constant(tracer: Tracing, value: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    verdict = tracer.calls.verdict(value.cls)
    if verdict.decision is Decision.IN_GRAPH:
        return tracer.graph.call(value.cls, args, kwargs)
    tracer.graph_break(verdict.breaks, function=value.describe(), reason=verdict.reason)


def _metaclass(tracer: Tracing, value: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    found = find_in_class(type(value.cls), "__call__")
    if found is not None and isinstance(found.obj, type):  # a class does not bind: that of TypedDict is `dict`
        return tracer.as_value(found.obj).call(tracer, args, kwargs)
    if found is None or not isinstance(found.obj, types.FunctionType):
        tracer.graph_break("metaclass-call", type=value.describe())
    return bind(tracer, value, type(value.cls), found, "__call__").call(tracer, args, kwargs)


def instantiate(tracer: Tracing, value: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """`type.__call__`: `__new__`, then `__init__`."""
    cls = value.cls
    rely_on_class(tracer, cls, "__new__", "__init__")
    rely_on_class(tracer, type(cls), "__call__")
    if getattr(cls, "__abstractmethods__", None):
        try:
            object.__new__(cls)
        except TypeError as error:
            tracer.raise_real(error)
    made = _by_new(tracer, value, args, kwargs)
    initialise = next((initialise for kind, initialise in INITIALISED if isinstance(made, kind)), None)
    if initialise is not None:
        initialise(tracer, cls, made, args, kwargs)
    return made


def _by_new(tracer: Tracing, value: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """The object that `__new__` of a class returns."""
    cls = value.cls
    if inherits(cls, "__new__", object):
        tracer.overrides.present |= is_overriding(cls)
        return new_object(tracer, cls)
    found = find_in_class(cls, "__new__")
    raw = found.obj.__func__ if found is not None and isinstance(found.obj, staticmethod) else None
    if found is not None and type(found.obj) is types.BuiltinFunctionType:
        return tracer.as_value(found.obj).call(tracer, (value, *args), kwargs)
    if found is None or not isinstance(raw, types.FunctionType):
        tracer.graph_break("unusual-constructor", type=value.describe())
    return held_value(tracer, cls, found, "__new__").call(tracer, (value, *args), kwargs)


def _initialise_tensor_or_tuple(tracer: Tracing, cls: type, made: Value, args: Args, kwargs: Kwargs) -> None:
    if overrides_in_python(cls, "__init__"):
        made.get_attribute(tracer, "__init__").call(tracer, args, kwargs)


def _initialise_class(tracer: Tracing, cls: type, made: ClassValue, args: Args, kwargs: Kwargs) -> None:
    if issubclass(type(made.cls), cls) and overrides_in_python(cls, "__init__"):
        (made.meta(tracer, "__init__") or made).call(tracer, args, kwargs)


def new_object(tracer: Tracing, cls: type) -> Value:
    """The object made by `object.__new__`."""
    instance = tracer.types.instance_of(cls)
    return UserObjectValue(cls) if instance is None else instance


def _initialise_object(tracer: Tracing, cls: type, made: UserObjectValue, args: Args, kwargs: Kwargs) -> None:
    if not issubclass(made.cls, cls):
        return
    init = find_in_class(made.cls, "__init__")
    if init is not None and init.obj is object.__init__:
        if (args or kwargs) and inherits(made.cls, "__new__", object):
            tracer.raise_error(TypeError, f"{made.cls.__name__}() takes no arguments")
    elif init is not None and (isinstance(init.obj, types.FunctionType) or tracer.calls.has_handler(init.obj)):
        _returns_none(tracer, bind(tracer, made, made.cls, init, "__init__").call(tracer, args, kwargs))
    else:
        tracer.graph_break("unusual-constructor", type=made.describe())


def _initialise_derived(tracer: Tracing, cls: type, made: DerivedObjectValue, args: Args, kwargs: Kwargs) -> None:
    """Initialise the builtin part, unless the class overrides `__init__` in Python."""
    init = find_in_class(made.cls, "__init__")
    if init is None or isinstance(init.obj, types.FunctionType):
        _initialise_object(tracer, cls, made, args, kwargs)
    elif issubclass(made.cls, cls) and init.holder is not object:  # otherwise `__new__` has initialised it
        fill: Any = init.obj
        check_call(tracer, fill, 1 + len(args), kwargs, f"{made.describe()}.__init__()")
        made.base.call_method(tracer, "__init__", args, kwargs)


def _returns_none(tracer: Tracing, result: Value) -> None:
    """Check the result of `__init__`. TypeError of the program if it is not None."""
    kind = result.python_type()
    if kind is not types.NoneType:
        tracer.raise_error(TypeError, f"__init__() should return None, not '{type_name(kind)}'")


# How `__init__` is called, by the value of the object that `__new__` has returned.
INITIALISED: tuple[tuple[type[Value], Callable[..., None]], ...] = (
    (TensorValue, _initialise_tensor_or_tuple),
    (TupleValue, _initialise_tensor_or_tuple),
    (ClassValue, _initialise_class),
    (DerivedObjectValue, _initialise_derived),
    (UserObjectValue, _initialise_object),
)
MakeObject = Callable[["Tracing", ClassValue, Args, Kwargs], Value]
# The rows are asked in this order; the last one takes everything.
CLASS_ROWS: tuple[tuple[str, Callable[[type], bool], MakeObject], ...] = (
    ("exception", lambda cls: issubclass(cls, BaseException), _exception),
    ("tensor that holds others", is_wrapper, wrapper_subclasses.call_wrapper_class),
    ("metaclass", lambda cls: type(cls).__call__ is not type.__call__, _metaclass),
    ("written in C", is_written_in_c, _torch_constant),
    ("class", lambda cls: True, instantiate),
)
