"""Makes values for Python objects: by exact type, then as plugins say, then by ordered predicates.

A value with a source gets guards which ensure that the next call finds the same kind of value there.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from armature.frame import dynamic
from armature.frame.sources import AttrSource, DictOfSource, ItemSource, ObjectSource, Source, object_source
from armature.introspection import class_member, dict_of, is_only_of_its_name, unbound
from armature.torch_abi.altering import is_cut_off
from armature.torch_abi.fake import PLAIN_TENSORS, is_wrapped
from armature.torch_abi.jagged import is_jagged
from armature.torch_abi.overrides import is_overriding, without_numbers
from armature.torch_abi.symbols import SYMBOLIC
from armature.torch_abi.wrappers import is_wrapper
from armature.trace.base import BoundMethod, TypeRules, Value
from armature.trace.break_ids import LAYOUT, LAYOUTS
from armature.trace.errors import SkipFrame
from armature.trace.guards import GuardRecorder
from armature.trace.handlers import ValueType
from armature.trace.recording import wrapper_subclasses
from armature.trace.values.classes import ClassValue, rely_on_class
from armature.trace.values.constant import ATOMS, ConstantValue, TextValue
from armature.trace.values.context import ContextValue
from armature.trace.values.derived import UNREAD, DerivedObjectValue
from armature.trace.values.exception import CaughtValue
from armature.trace.values.function import BUILTIN_TYPES, BuiltinValue, FunctionValue, MethodValue, cell_of
from armature.trace.values.mapping import DictValue
from armature.trace.values.sequence import TUPLE_METHODS, ListValue, TupleValue, is_named_tuple, is_structseq
from armature.trace.values.slices import RangeValue, SliceValue
from armature.trace.values.symbolic import symbolic
from armature.trace.values.tensor import TensorValue
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.plugins.tables import Tables
    from armature.trace.base import Tracing

Build = Callable[["Tracing", Any, Source], Value]
ORIGINAL = "__armature_original__"  # attribute of what `armature.compile` returns: the original function or module
# The modules of the objects that `armature.compile` and decorators return in place of a function or module.
STAND_INS = ("armature.api.compiled_module", "armature.rules.declare")


def wrap(tables: Tables, tracer: Tracing, obj: object, source: Source) -> Value:
    """The value of an object of the program found at `source`, guarded. tables: the rows of plugins."""
    known = tracer.objects.by_id.get(id(obj))
    if known is not None:
        value = known[1]
        if value.source is not None and value.source != source:
            _same_object(tracer.guards, obj, value.source, source)
        return value
    build = EXACT.get(type(obj))
    if build is not None:
        return build(tracer, obj, source)
    if class_member(type(obj), "__module__") in STAND_INS and ORIGINAL in (held := dict_of(obj)):
        tracer.guards.type_is(source, type(obj))
        return tracer.objects.wrap(held[ORIGINAL], ItemSource(DictOfSource(source), ORIGINAL))
    for plugin in tables.value_types(obj):
        tracer.guards.type_is(source, type(obj))
        found: Value | None = plugin.build(obj, source, tracer)
        if found is not None:
            plain = isinstance(found, ConstantValue) or found.is_symbolic
            return found if plain else tracer.objects.remember(obj, found)
    return next(build for _, matches, build in ROWS if matches(obj))(tracer, obj, source)


def _same_object(guards: GuardRecorder, obj: object, first: Source, second: Source) -> None:
    """Guard that two sources lead to one object. An object that the code keeps alive is guarded by identity."""
    if type(first) is ObjectSource or type(second) is ObjectSource:
        guards.same(second if type(first) is ObjectSource else first, obj)
    else:
        guards.alias(first, second)


def as_value(tables: Tables, tracer: Tracing, obj: object) -> Value:
    """The value of an object that tracing itself made or found, which needs no guard."""
    kind = type(obj)
    if kind in ATOMS:
        return ConstantValue(obj)
    make = FRESH.get(kind)
    if make is not None:
        return make(tracer, obj)
    if kind in (tuple, torch.Size) or _is_named_tuple(obj):
        return TupleValue([tracer.as_value(item) for item in cast("tuple[object, ...]", obj)], kind)
    plugin: ValueType | None = tables.exact_value_type(kind) or tables.value_type_of_class(kind)
    if plugin is not None and plugin.fresh is not None:
        return plugin.fresh(obj, tracer)
    return tracer.objects.wrap(obj, object_source(obj))


def _fresh_slice(tracer: Tracing, obj: slice) -> Value:
    return SliceValue((tracer.as_value(obj.start), tracer.as_value(obj.stop), tracer.as_value(obj.step)))


def _fresh_dict(tracer: Tracing, obj: dict[object, object]) -> Value:
    made = DictValue({})
    for key, value in obj.items():
        made.set_item(tracer, tracer.as_value(key), tracer.as_value(value))
    return made


FRESH: dict[type, Callable[[Tracing, Any], Value]] = {
    list: lambda tracer, obj: ListValue([tracer.as_value(item) for item in obj]),
    dict: _fresh_dict,
    slice: _fresh_slice,
    range: lambda tracer, obj: RangeValue(obj),
    **dict.fromkeys(SYMBOLIC, symbolic),
}


def all_atoms(types: TypeRules, items: Any) -> bool:
    """Whether a list or tuple holds only constants, in tuples of any depth."""
    return all(types.is_atom(at) or (type(at) in (tuple, torch.Size) and all_atoms(types, at)) for at in items)


def _constant(tracer: Tracing, obj: object, source: Source) -> Value:
    tracer.guards.equal(source, obj)
    return ConstantValue(obj, source=source)


def _text(tracer: Tracing, obj: str, source: Source) -> Value:
    tracer.guards.type_is(source, str)
    return ConstantValue(obj) if source.is_fixed else TextValue(obj, tracer, source)


def _number(tracer: Tracing, obj: float, source: Source) -> Value:
    if not tracer.sizes.changes(obj, source):
        return _constant(tracer, obj, source)
    tracer.guards.type_is(source, type(obj))
    return tracer.sizes.of_program(tracer, obj, source)


def _tensor(tracer: Tracing, obj: torch.Tensor, source: Source) -> Value:
    if is_wrapped(obj):
        raise SkipFrame("it runs inside another tracer or transform of torch")
    if type(obj) not in PLAIN_TENSORS:
        if without_numbers(type(obj)) and dynamic.is_registered(source) and tracer.request.history.may_wait():
            raise SkipFrame("it calls a module that waits for its first input to make its parameters", once=True)
        tracer.overrides.accept(type(obj))
    holds = is_wrapper(type(obj))
    if holds:
        wrapper_subclasses.accept(tracer, obj)
    if (obj.layout is not torch.strided or obj.is_nested) and not is_jagged(obj):
        tracer.graph_break("nested-tensor" if obj.is_nested else LAYOUTS.get(obj.layout, LAYOUT), layout=obj.layout)
    if obj.is_quantized:
        tracer.graph_break("quantized-tensor")
    if is_cut_off(obj):
        tracer.graph_break("view-of-changed-base")
    fake = tracer.fakes.of(obj, dynamic.axes_of(tracer.request, obj, source, tracer.objects.by_id), source.expr)
    tracer.guards.tensor(source, obj, fake)
    value = TensorValue(fake, None, obj, source=source)
    tracer.sizes.bind_tensor(value, source)
    if holds:
        wrapper_subclasses.accept_fake(tracer, obj, fake)
        wrapper_subclasses.guard(tracer, obj, fake, source)
    tracer.objects.by_fake[id(value.fake)] = value
    return tracer.objects.remember(obj, value)


def _list(tracer: Tracing, obj: list[object], source: Source) -> Value:
    tracer.guards.type_is(source, list)
    return tracer.objects.remember(obj, ListValue([], source=source, pending=lambda: _items(tracer, obj, source)))


def _items(tracer: Tracing, obj: Any, source: Source) -> list[Value]:
    """The items of a list or tuple, guarded."""
    if obj and all_atoms(tracer.types, obj) and not dynamic.items_change(tracer.request, obj, source):
        tracer.guards.equal(source, list(obj) if type(obj) is list else obj)
        return [tracer.as_value(item) for item in obj]
    tracer.guards.type_is(source, type(obj))
    tracer.guards.length(source, len(obj))
    return [tracer.objects.wrap(item, ItemSource(source, position)) for position, item in enumerate(obj)]


def _tuple(tracer: Tracing, obj: tuple[object, ...], source: Source) -> Value:
    items = _items(tracer, obj, source)
    if type(obj) is not tuple and is_named_tuple(type(obj)):
        rely_on_class(tracer, type(obj), *TUPLE_METHODS)
    return tracer.objects.remember(obj, TupleValue(items, type(obj), source=source))


def _dict(tracer: Tracing, obj: Any, source: Source) -> Value:
    owner = tracer.effects.owners.get(id(obj))
    if owner is not None:
        owner.open_dict(tracer)
        return tracer.objects.wrap(obj, source)
    tracer.guards.type_is(source, dict)
    if (of_module := "__builtins__" in obj) and any(held is obj for held, _ in tracer.effects.globals_.values()):
        tracer.graph_break("globals-after-change", dict=source.expr)
    return tracer.objects.remember(obj, DictValue({}, dict, obj, fixed=of_module, source=source))


def _slice(tracer: Tracing, obj: slice, source: Source) -> Value:
    tracer.guards.type_is(source, slice)
    parts = [tracer.objects.wrap(getattr(obj, name), AttrSource(source, name)) for name in ("start", "stop", "step")]
    return SliceValue((parts[0], parts[1], parts[2]), source=source)


def _range(tracer: Tracing, obj: range, source: Source) -> Value:
    tracer.guards.equal(source, obj)
    return RangeValue(obj, source=source)


def _function(tracer: Tracing, obj: types.FunctionType, source: Source) -> Value:
    if ORIGINAL in obj.__dict__:
        tracer.guards.type_is(source, types.FunctionType)
        return tracer.objects.wrap(obj.__dict__[ORIGINAL], ItemSource(DictOfSource(source), ORIGINAL))
    if "<locals>" in obj.__qualname__:
        # A new function object each time its outer function runs: guard its code, defaults and closure.
        tracer.guards.type_is(source, types.FunctionType)
        if not source.is_fixed:
            tracer.guards.same(AttrSource(source, "__code__"), obj.__code__)
    else:
        tracer.guards.same(source, obj)
    return FunctionValue(obj, source=source)


def _cell(tracer: Tracing, obj: types.CellType, source: Source) -> Value:
    tracer.guards.type_is(source, types.CellType)
    return cell_of(tracer, obj, source)


def _method(tracer: Tracing, obj: types.MethodType, source: Source) -> Value:
    tracer.guards.type_is(source, types.MethodType)
    owner = tracer.objects.wrap(obj.__self__, AttrSource(source, "__self__"))
    if isinstance(owner, ContextValue) and obj.__name__ in ("__enter__", "__exit__"):
        return tracer.objects.remember(obj, BoundMethod(owner, obj.__name__, source=source))
    function = tracer.objects.wrap(obj.__func__, AttrSource(source, "__func__"))
    return MethodValue(function, owner, explicit=True, source=source)


# Types whose C methods are supported as bound methods passed around on their own.
METHOD_OWNERS: frozenset[type] = frozenset({list, dict, set, str, tuple, torch.Tensor, nn.Parameter})


def _guard_builtin(tracer: Tracing, obj: Any, source: Source) -> None:
    """Guard a C method by its object and name, because each lookup makes a new bound method."""
    if not is_only_of_its_name(obj) or tracer.calls.goes_first(obj):
        tracer.guards.same(source, obj)
        return
    tracer.guards.type_is(source, type(obj))
    tracer.guards.equal(AttrSource(source, "__name__"), obj.__name__)
    tracer.guards.type_is(AttrSource(source, "__self__"), type(obj.__self__))


def _builtin(tracer: Tracing, obj: Any, source: Source) -> Value:
    _guard_builtin(tracer, obj, source)
    owner: Any = getattr(obj, "__self__", None)
    if type(obj) not in (types.BuiltinFunctionType, types.MethodWrapperType) or type(owner) in BUILTIN_TYPES:
        return BuiltinValue(obj, source=source)
    descriptor, first = unbound(obj), tracer.calls.goes_first
    if type(owner) in METHOD_OWNERS:
        return BoundMethod(tracer.objects.wrap(owner, AttrSource(source, "__self__")), obj.__name__, source=source)
    # it reads and writes its object, so it can't be a constant of the code
    if type(descriptor) in (types.MethodDescriptorType, types.WrapperDescriptorType) and not first(obj):
        bound_to = tracer.objects.wrap(owner, AttrSource(source, "__self__"))
        return MethodValue(BuiltinValue(descriptor), bound_to, source=source)
    if type(descriptor) is types.ClassMethodDescriptorType and first(descriptor):
        return MethodValue(BuiltinValue(descriptor), ClassValue(owner), source=source)
    return BuiltinValue(obj, source=source)


def _class(tracer: Tracing, obj: type, source: Source) -> Value:
    tracer.guards.same(source, obj)
    return ClassValue(obj, source=source)


def _exception(tracer: Tracing, obj: BaseException, source: Source) -> Value:
    tracer.guards.type_is(source, type(obj))
    return tracer.objects.remember(obj, CaughtValue(type(obj), [], obj=obj, source=source))


def _opaque(tracer: Tracing, obj: Any, source: Source) -> Value:
    tracer.guards.type_is(source, type(obj))
    cls = type(obj)
    if tracer.types.has_own(cls, "__getattribute__"):
        tracer.objects.own_lookups.add(source)
    tracer.overrides.present |= is_overriding(cls)
    kind = tracer.types.base_of(cls)
    if kind is None:
        return tracer.objects.remember(obj, UserObjectValue(cls, obj, source=source))
    value = DerivedObjectValue(cls, obj, base=UNREAD, source=source)
    tracer.objects.remember(obj, value)
    value.base = tracer.types.bases[kind](obj, kind, source, value, tracer)
    return value


EXACT: dict[type, Build] = {
    **dict.fromkeys(ATOMS, _constant),
    str: _text,
    int: _number,
    float: _number,
    torch.Tensor: _tensor,
    nn.Parameter: _tensor,
    list: _list,
    tuple: _tuple,
    torch.Size: _tuple,
    dict: _dict,
    slice: _slice,
    range: _range,
    types.FunctionType: _function,
    types.CellType: _cell,
    types.MethodType: _method,
    **dict.fromkeys(BUILTIN_TYPES, _builtin),
    type(torch.ops.aten.add): _builtin,
    type(torch.ops.aten.add.Tensor): _builtin,
}


def _is_named_tuple(obj: object) -> bool:
    return issubclass(type(obj), tuple) and (is_named_tuple(type(obj)) or is_structseq(type(obj)))


# The rows are asked in this order; the last one takes everything. A proxy may lie about its `__class__`, not its type.
ROWS: tuple[tuple[str, Callable[[object], bool], Build], ...] = (
    ("tensor", lambda obj: issubclass(type(obj), torch.Tensor), _tensor),
    ("class", lambda obj: issubclass(type(obj), type), _class),
    ("named tuple", _is_named_tuple, _tuple),
    ("exception", lambda obj: issubclass(type(obj), BaseException), _exception),
    ("object", lambda obj: True, _opaque),
)
