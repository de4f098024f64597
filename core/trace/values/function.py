"""Callables: functions of the program, closures made in the frame, bound methods, C functions."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import torch

from armature.frame.sources import AttrSource, CellSource, DictOfSource, ItemSource, LocalSource, object_source
from armature.introspection import MISSING, class_member
from armature.torch_abi.eval_frame import skip_code
from armature.trace.base import Args, Kwargs, Value, Write, raise_missing, shares_dict
from armature.trace.slots import EQUALITY_SLOTS
from armature.trace.trust import is_trusted
from armature.trace.values.keys import Identity
from armature.trace.values.mapping import DictValue, namespace_of
from armature.trace.values.methods import BuiltinObject
from armature.trace.values.sequence import TupleValue

if TYPE_CHECKING:
    from armature.frame.sources import Source
    from armature.trace.base import Rebuilding, Tracing

# Attributes that a function has outside its `__dict__`.
OWN_NAMES = frozenset({"__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__type_params__"})
PACKET = type(torch.ops.aten.add)
WRITE_CELL: Callable[..., object] = types.CellType.__dict__["cell_contents"].__set__
EMPTY_CELL: Callable[..., object] = types.CellType.__dict__["cell_contents"].__delete__


@attrs.define(eq=False)
class CellValue(Value):
    """A cell: a variable that closures share. `real`: the program's own cell, whose contents are read on first use."""

    content: Value | None = None
    real: types.CellType | None = None
    content_source: Source | None = None
    changed: bool = False

    mutable: ClassVar[bool] = True

    @property
    def outlives_frame(self) -> bool:
        return self.source is not None or self.real is not None

    def contents(self) -> object:
        return self.content

    def python_type(self) -> type:
        return types.CellType

    def get(self, tracer: Tracing, name: str) -> Value:
        """The contents."""
        if self.content is None and self.real is not None and not self.changed:
            try:
                obj = self.real.cell_contents
            except ValueError:
                tracer.graph_break("empty-cell", name=name)
            source = self.content_source or object_source(obj)
            self.content = tracer.objects.wrap(obj, source)
        if self.content is None:
            owner = tracer.stack.frames[-1].code if tracer.stack.frames else None
            if owner is not None and name in owner.co_cellvars:
                missing = f"cannot access local variable '{name}' where it is not associated with a value"
                tracer.raise_error(UnboundLocalError, missing)
            missing = f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
            tracer.raise_error(NameError, missing)
        return self.content

    @property
    def is_empty(self) -> bool:
        """Whether it is known to be empty."""
        return self.content is None and (self.real is None or self.changed)

    def set(self, tracer: Tracing, value: Value | None) -> None:
        """Replace the contents; None empties the cell."""
        self.content = value
        self.changed = True
        tracer.mutate(self)

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(types.CellType)
        if self.content is None:
            out.call(0)
            return
        out.load(self.content)
        out.call(1)

    def writes(self, out: Rebuilding) -> list[Write]:
        if self.content is None:
            return [Write(EMPTY_CELL, (self,))]
        return [Write(WRITE_CELL, (self, self.content))]


@attrs.define(eq=False)
class CallableValue(BuiltinObject):
    """A callable that exists as a Python object, `fn`, with an identity."""

    fn: Callable[..., Any]

    slots = frozenset({"__call__", "__hash__"})

    def python_type(self) -> type:
        return type(self.fn)

    def describe(self) -> str:
        if type(self.fn) is types.BuiltinFunctionType and self.fn.__module__:  # pybind11 invents the qualified names
            return f"{self.fn.__module__}.{self.fn.__name__}"
        name: str = getattr(self.fn, "__qualname__", type(self.fn).__name__)
        module = getattr(self.fn, "__module__", None)
        return name if module is None else f"{module}.{name}"  # methods in C have no module of their own

    def as_object(self) -> Any:
        return self.fn

    def as_argument(self, tracer: Tracing) -> object:
        tracer.graph_break("function-as-argument", type=self.describe())

    def key(self, tracer: Tracing) -> Hashable:
        if self.source is not None:
            tracer.guards.same(self.source, self.fn)
        return self.fn

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        return tracer.calls.call_object(self.fn, self, args, kwargs)

    def rebuild(self, out: Rebuilding) -> None:
        out.constant(self.fn)


@attrs.define(eq=False)
class BuiltinValue(CallableValue):
    """A C function or method, or another callable with rows in the tables."""

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in ("__name__", "__qualname__", "__module__", "__doc__", "__self__", "__objclass__"):
            try:
                return tracer.as_value(getattr(self.fn, name))
            except AttributeError as error:
                tracer.raise_real(error)
        if name == "__call__":
            return self
        overload: Any = getattr(self.fn, name, None) if type(self.fn) is PACKET else None
        if isinstance(overload, torch._ops.OpOverload):
            return tracer.objects.wrap(overload, object_source(overload))
        return super().get_attribute(tracer, name)


@attrs.define(eq=False)
class FunctionValue(CallableValue):
    """A Python function of the program."""

    fn: Any  # types.FunctionType
    cells: tuple[CellValue, ...] | None = None

    def contents(self) -> object:
        return self.cells

    def default(self, tracer: Tracing, position: int) -> Value:
        """The value of the default at a position of `__defaults__`."""
        obj = self.fn.__defaults__[position]
        if self.source is not None and not self.is_fixed:
            tracer.guards.type_is(AttrSource(self.source, "__defaults__"), tuple)
            tracer.guards.length(AttrSource(self.source, "__defaults__"), len(self.fn.__defaults__))
        return self._default(tracer, obj, "__defaults__", position)

    def keyword_default(self, tracer: Tracing, name: str) -> Value | None:
        """The value of the default of a keyword-only parameter, None when it has none."""
        held = self.fn.__kwdefaults__
        if held is None or name not in held:
            return None
        return self._default(tracer, held[name], "__kwdefaults__", name)

    def _default(self, tracer: Tracing, obj: object, attribute: str, key: object) -> Value:
        if self.source is None or self.is_fixed:
            return tracer.as_value(obj)
        return tracer.objects.wrap(obj, ItemSource(AttrSource(self.source, attribute), key))

    @property
    def is_fixed(self) -> bool:
        """Whether cells and defaults never change: for a trusted function, unless a call makes it anew."""
        made = "<locals>" in self.fn.__qualname__ and not (self.source is not None and self.source.is_fixed)
        return is_trusted(self.fn) and not made

    def direct_code(self, tracer: Tracing) -> types.CodeType | None:
        return None if tracer.calls.has_handler(self.fn) else self.fn.__code__

    def closure(self, tracer: Tracing) -> tuple[CellValue, ...]:
        """The cells of the free variables."""
        if self.cells is None:
            base = self.source if self.source is not None else object_source(self.fn)
            held = AttrSource(base, "__closure__")
            real = self.fn.__closure__ or ()
            fixed = self.is_fixed
            self.cells = tuple(
                cell_of(tracer, cell, None if fixed else ItemSource(held, position))
                for position, cell in enumerate(real)
            )
        return self.cells

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in ("__name__", "__qualname__", "__module__", "__doc__", "__code__"):
            if self.source is not None and name != "__code__" and not is_trusted(self.fn):
                return tracer.objects.wrap(getattr(self.fn, name), AttrSource(self.source, name))
            return tracer.as_value(getattr(self.fn, name))
        shares_dict(tracer, self, self.fn.__dict__)
        if name in self.fn.__dict__:
            return tracer.objects.wrap(self.fn.__dict__[name], AttrSource(self.source or object_source(self.fn), name))
        if name == "__call__":
            return self
        if name in ("__defaults__", "__kwdefaults__", "__annotations__", "__type_params__"):
            held = getattr(self.fn, name)
            return tracer.objects.wrap(held, AttrSource(self.source or object_source(self.fn), name))
        if not hasattr(self.fn, name) and not is_trusted(self.fn):
            tracer.guards.absent(DictOfSource(self.source or object_source(self.fn)), name)
        return super().get_attribute(tracer, name)


@attrs.define(eq=False)
class ClosureValue(BuiltinObject):
    """A function made in the frame by `def`, `lambda` or a comprehension.

    instance_dict: its `__dict__`, once it was read; from then on it holds all attributes except OWN_NAMES.
    """

    code: types.CodeType
    namespace: dict[str, object]

    def contents(self) -> object:
        return (self.defaults, self.keyword_defaults, self.cells, self.attributes, self.instance_dict)

    defaults: tuple[Value, ...] = ()
    keyword_defaults: dict[str, Value] = attrs.field(factory=dict)
    keyword_dict: Value | None = None  # `__kwdefaults__`, once it was read
    cells: tuple[CellValue, ...] = ()
    attributes: dict[str, Value] = attrs.field(factory=dict)
    annotations: Value | None = None
    instance_dict: DictValue | None = None

    mutable: ClassVar[bool] = True
    slots = frozenset({"__call__", "__hash__"})

    def python_type(self) -> type:
        return types.FunctionType

    def describe(self) -> str:
        return f"function {self.code.co_qualname}"

    def key(self, tracer: Tracing) -> Hashable:
        return Identity(self)

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        return tracer.calls.inline_closure(self, args, kwargs)

    def direct_code(self, tracer: Tracing) -> types.CodeType | None:
        return self.code

    def default(self, tracer: Tracing, position: int) -> Value:
        """The default at a position."""
        return self.defaults[position]

    def keyword_default(self, tracer: Tracing, name: str) -> Value | None:
        """The default of a keyword-only parameter."""
        if self.keyword_dict is not None and not self.keyword_dict.is_constant:
            if not self.keyword_dict.contains(tracer, tracer.constant(name)):
                return None
            return self.keyword_dict.get_item(tracer, tracer.constant(name))
        return self.keyword_defaults.get(name)

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        """An attribute that was set, else a part that the function was made from."""
        own = self.own_attribute(tracer, name)
        if own is not None:
            return own
        read = CLOSURE_ATTRIBUTES.get(name)
        return super().get_attribute(tracer, name) if read is None else read(self, tracer)

    def own_attribute(self, tracer: Tracing, name: str) -> Value | None:
        """An attribute that was set; None if it was not."""
        if self.instance_dict is None or name in OWN_NAMES:
            return self.attributes.get(name)
        return self.instance_dict.find(tracer, tracer.constant(name))

    def open_keywords(self, tracer: Tracing) -> Value:
        """`__kwdefaults__`."""
        if self.keyword_dict is None:
            given = self.keyword_defaults
            self.keyword_dict = namespace_of(tracer, given) if given else tracer.constant(None)
        return self.keyword_dict

    def own_names(self) -> list[str]:
        """Names of the attributes in `__dict__`."""
        held = {} if self.instance_dict is None else self.instance_dict.entries
        return [*(name for name in self.attributes if name not in OWN_NAMES), *(str(name) for name in held)]

    def open_dict(self, tracer: Tracing) -> DictValue:
        if self.instance_dict is None:
            made = self.instance_dict = DictValue({}, instance=self)
            for name in self.own_names():
                made.set_item(tracer, tracer.constant(name), self.attributes.pop(name))
        return self.instance_dict

    def annotated(self, tracer: Tracing) -> Value:
        """`__annotations__`, from the instruction's operand: a dict, or alternating names and values."""
        given = self.annotations
        if given is not None and given.python_type() is tuple:
            items = tracer.unpack(given)
            given = namespace_of(tracer, {str(k.as_constant()): v for k, v in zip(items[::2], items[1::2])})
        self.annotations = namespace_of(tracer, {}) if given is None else given
        return self.annotations

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        if name in ("__code__", "__defaults__", "__kwdefaults__", "__dict__"):
            tracer.graph_break("changes-function", name=name, type=self.describe())
        if self.instance_dict is None or name in OWN_NAMES:
            self.attributes[name] = value
        else:
            self.instance_dict.set_item(tracer, tracer.constant(name), value)

    def delete_attribute(self, tracer: Tracing, name: str) -> None:
        if self.instance_dict is not None and self.own_attribute(tracer, name) is not None and name not in OWN_NAMES:
            self.instance_dict.delete_item(tracer, tracer.constant(name))
        elif self.attributes.pop(name, None) is None:
            raise_missing(tracer, types.FunctionType, name)

    def rebuild(self, out: Rebuilding) -> None:
        out.new_function(self.code, self.namespace, self.code.co_name, self.defaults, self.cells)
        for name, value in (*self.attributes.items(), *self._late(out)):
            out.store_attribute(name, value)

    def _late(self, out: Rebuilding) -> list[tuple[str, Value]]:
        found: list[tuple[str, Value]] = []
        if self.instance_dict is not None:
            for key, value in self.instance_dict.entries.values():
                if key.python_type() is not str or key.as_constant() in OWN_NAMES:  # `vars(function)[1] = 2`
                    out.cannot(self)
                found.append((str(key.as_constant()), value))
        if self.keyword_defaults:
            found.append(("__kwdefaults__", self.keyword_dict or out.dict_of(self.keyword_defaults)))
        if self.annotations is not None and "__annotations__" not in self.attributes:
            found.append(("__annotations__", self.annotated(out.tracer)))
        return found


def _doc(closure: ClosureValue, tracer: Tracing) -> Value:
    first = closure.code.co_consts[0] if closure.code.co_consts else None
    return tracer.constant(first if isinstance(first, str) else None)


CLOSURE_ATTRIBUTES: dict[str, Callable[[ClosureValue, Tracing], Value]] = {
    "__name__": lambda closure, tracer: tracer.constant(closure.code.co_name),
    "__qualname__": lambda closure, tracer: tracer.constant(closure.code.co_qualname),
    "__code__": lambda closure, tracer: tracer.constant(closure.code),
    "__module__": lambda closure, tracer: tracer.as_value(closure.namespace.get("__name__")),
    "__doc__": _doc,
    "__dict__": ClosureValue.open_dict,
    "__defaults__": lambda closure, tracer: (
        TupleValue([*closure.defaults]) if closure.defaults else tracer.constant(None)
    ),
    "__kwdefaults__": ClosureValue.open_keywords,
    "__call__": lambda closure, tracer: closure,
    "__annotations__": ClosureValue.annotated,
} | (
    {"__type_params__": lambda closure, tracer: TupleValue([])}
    if hasattr(types.FunctionType, "__type_params__")
    else {}
)


@attrs.define(eq=False)
class MethodValue(Value):
    """A function bound to its first argument. explicit: made by types.MethodType, not by reading an attribute."""

    function: Value
    owner: Value
    explicit: bool = False

    mutable: ClassVar[bool] = True
    slots = EQUALITY_SLOTS | {"__call__", "__hash__"}

    def contents(self) -> object:
        return (self.function, self.owner)

    def python_type(self) -> type:
        return types.MethodType if self.explicit else BOUND.get(self.function.python_type(), types.MethodType)

    def describe(self) -> str:
        return f"method {self.function.describe()}"

    def key(self, tracer: Tracing) -> Hashable:
        return (self.function.key(tracer), self.owner.key(tracer))

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        return self.function.call(tracer, (self.owner, *args), kwargs)

    def direct_code(self, tracer: Tracing) -> types.CodeType | None:
        return self.function.direct_code(tracer)

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        if not isinstance(other, MethodValue):
            return None
        identical = tracer.python.identical
        same = identical(self.owner, other.owner) and identical(self.function, other.function)
        return tracer.constant(same == (name == "__eq__"))

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name == "__self__":
            return self.owner
        kind = self.python_type()
        if name == "__func__":
            return self.function if kind is types.MethodType else raise_missing(tracer, kind, name)
        if name == "__class__":
            return tracer.as_value(kind)
        if name == "__call__":
            return self
        if name != "__doc__" and kind is types.MethodType and class_member(kind, name) is not MISSING:
            return super().get_attribute(tracer, name)
        return self.function.get_attribute(tracer, name)

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(types.MethodType if self.python_type() is types.MethodType else bound_in_c)
        out.load(self.function)
        out.load(self.owner)
        out.call(2)


# Maps the type of a C descriptor to the type of the bound object.
BOUND: dict[type, type] = {
    types.MethodDescriptorType: types.BuiltinFunctionType,
    types.ClassMethodDescriptorType: types.BuiltinFunctionType,
    types.WrapperDescriptorType: types.MethodWrapperType,
}


def bound_in_c(descriptor: Any, owner: Any) -> object:
    """Bind a C descriptor to an object, or a class method to a class."""
    of_class = type(descriptor) is types.ClassMethodDescriptorType
    return descriptor.__get__(None, owner) if of_class else descriptor.__get__(owner)


skip_code(bound_in_c.__code__)


BUILTIN_TYPES: tuple[type, ...] = (
    types.BuiltinFunctionType, type(list.append), type(int.__add__), type((1).__add__), type(int.__dict__["real"]),
    type(dict.__dict__["fromkeys"]), type(types.FunctionType.__dict__["__globals__"]),
)  # fmt: skip


def cell_of(tracer: Tracing, cell: types.CellType, source: Source | None) -> CellValue:
    """The value of a cell of the program."""
    known: CellValue | None = tracer.objects.cells.get(id(cell))
    if known is None:
        inside = None if source is None else CellSource(source)
        known = tracer.objects.cells[id(cell)] = CellValue(None, cell, inside, source=source or object_source(cell))
    elif source is not None and known.source is not None and not isinstance(known.source, LocalSource):
        tracer.guards.alias(known.source, source)  # a variable's source leads to the contents of its cell
    return known
