"""Objects of user classes: attributes are looked up as Python does; operations go through the methods of the class."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Hashable, Iterator
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import attrs

from armature.frame.guards.kinds import SlotGuard
from armature.frame.sources import AttrSource, DictOfSource, ItemSource, Source, object_source
from armature.introspection import dict_of, is_written_in_c
from armature.trace.base import (
    Args,
    Kwargs,
    NotConstant,
    Value,
    Write,
    length_of,
    raise_lacking,
    raise_missing,
    refuse_result,
    shares_dict,
    truth_of,
    unless_not_implemented,
)
from armature.trace.errors import SkipFrame, UserRaised
from armature.trace.slots import ALL_SLOTS
from armature.trace.trust import is_trusted
from armature.trace.values.classes import (
    ClassMember,
    bind,
    class_source,
    find_in_class,
    found_in,
    held_value,
    inherits,
    is_data_descriptor,
    rely_on_class,
)
from armature.trace.values.keys import Identity, TracedKey
from armature.trace.values.mapping import DictValue
from armature.trace.values.streams import Steps

if TYPE_CHECKING:
    from armature.trace.base import Rebuilding, Tracing


def read_unset_slot(cls: type, name: str) -> NoReturn:
    """Raise CPython's error for a slot without a value."""
    getattr(namesake(cls, name), name)
    raise AttributeError(name)


def namesake(cls: type, *slots: str) -> object:
    """An object of a class with just this name and these slots: it raises CPython's errors, whatever the version."""
    names = {"__slots__": slots, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return type(cls.__name__, (), names)()


@attrs.define(eq=False)
class AttributesOfObject(Value):
    """An object and its attributes. `obj`: the program's own object, None for one made in the frame.

    `attributes`: attributes that were read or written; None: deleted. `written`: attributes to set (or delete) on the
    object at the end of the frame, and whether to delete them first.
    """

    cls: type
    obj: Any = None
    attributes: dict[str, Value | None] = attrs.field(factory=dict)
    written: dict[str, bool] = attrs.field(factory=dict)
    instance_dict: DictValue | None = None  # its `__dict__`, once it was read; from then on it holds the attributes

    mutable: ClassVar[bool] = True
    slots = frozenset({"__hash__"})

    def contents(self) -> object:
        return (self.attributes, self.instance_dict)

    def __attrs_post_init__(self) -> None:
        if self.obj is None and find_in_class(self.cls, "__del__") is not None:
            # The finaliser would run when the last reference is dropped, in the middle of the program.
            raise SkipFrame(f"it makes an object whose class, {self.cls.__qualname__}, has `__del__`")

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"an object of {self.cls.__module__}.{self.cls.__qualname__}"

    def as_object(self) -> Any:
        if self.obj is None:
            raise NotConstant(self)
        return self.obj

    def key(self, tracer: Tracing) -> Hashable:
        rely_on_class(tracer, self.cls, "__hash__", "__eq__")
        if inherits(self.cls, "__hash__", object) and inherits(self.cls, "__eq__", object):
            tracer.objects.keys[self] = None
            return Identity(self)
        method = self.method(tracer, "__hash__")
        if method is None:
            raise_lacking(tracer, self, "__hash__")
        hashed = method.call(tracer, (), {})
        if not issubclass(hashed.python_type(), int):
            refuse_result(tracer, "__hash__", hashed)
        return TracedKey(self, hashed.key(tracer), tracer)

    # Attributes.

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        known = self.attributes.get(name)
        own_lookup = tracer.types.has_own(self.cls, "__getattribute__")
        if known is not None and not own_lookup:
            return known
        rely_on_class(tracer, self.cls, "__getattribute__")
        if own_lookup:
            return self._looked_up(tracer, name)
        found = self.plain_attribute(tracer, name)
        return self.missing(tracer, name) if found is None else found

    def _looked_up(self, tracer: Tracing, name: str) -> Value:
        """Look up by the class's own `__getattribute__`."""
        lookup = find_in_class(self.cls, "__getattribute__")
        if lookup is not None and isinstance(lookup.obj, WrapperDescriptorType):
            return tracer.calls.read_in_c(self, lookup.obj, name)
        if lookup is None or not isinstance(lookup.obj, FunctionType):
            tracer.graph_break("lookup-in-c", name=name, type=self.describe())
        try:
            bound = bind(tracer, self, self.cls, lookup, "__getattribute__")
            return bound.call(tracer, (tracer.constant(name),), {})
        except UserRaised as raised:
            if issubclass(raised.value.python_type(), AttributeError):
                rely_on_class(tracer, self.cls, name, "__getattr__")
                if find_in_class(self.cls, "__getattr__") is not None:
                    return self.missing(tracer, name)
            raise

    def plain_attribute(self, tracer: Tracing, name: str) -> Value | None:
        """`object.__getattribute__(obj, name)`; None where it raises AttributeError."""
        known = self.attributes.get(name)
        if known is not None:
            return known
        written = tracer.effects.class_attribute(self.cls, name)
        if written is not None:
            own = self.own_attribute(tracer, name)
            return written if own is None else own
        found = find_in_class(self.cls, name)
        if found is not None and is_data_descriptor(found.obj):
            return self.described(tracer, found, name)
        own = self.own_attribute(tracer, name)
        if own is not None:
            self._rely_on_covering(tracer, found, name)
            return own
        return None if found is None else bind(tracer, self, self.cls, found, name)

    def _rely_on_covering(self, tracer: Tracing, found: ClassMember | None, name: str) -> None:
        """Guard an attribute in the instance's dict that shadows the one of its class."""
        rely_on_class(tracer, self.cls, name)
        if found is not None and not is_trusted(found.holder):
            held = ItemSource(DictOfSource(object_source(found.holder)), name)
            tracer.guards.type_is(held, type(found.obj))
            rely_on_class(tracer, type(found.obj), "__set__", "__delete__")

    def described(self, tracer: Tracing, found: ClassMember, name: str) -> Value:
        """The result of a data descriptor of the class for the attribute."""
        if name == "__class__" and in_c(found.obj):  # a proxy has properties of these names
            return tracer.as_value(self.cls)
        if name == "__dict__" and in_c(found.obj):
            if not self.cls.__dictoffset__:
                raise_missing(tracer, self.cls, name)
            return self.open_dict(tracer)
        if not isinstance(found.obj, MemberDescriptorType):
            return bind(tracer, self, self.cls, found, name)
        source = self.slot_source(name)
        try:
            if source is None:
                read_unset_slot(self.cls, name)
            held = found.obj.__get__(self.obj, self.cls)
        except AttributeError as error:
            if source is not None:
                tracer.guards.add(SlotGuard(source, found.obj))
            tracer.raise_real(error)
        self.attributes[name] = value = tracer.objects.wrap(held, AttrSource(source, name))
        return value

    def slot_source(self, name: str) -> Source | None:
        """Where the program's object still has the value of a slot; None if there is none, or the frame has set it."""
        return None if self.obj is None or name in self.written else self.source

    def own_attribute(self, tracer: Tracing, name: str) -> Value | None:
        """The attribute in the instance's dict; None when there is none."""
        if self.instance_dict is not None:
            return self.instance_dict.find(tracer, tracer.constant(name))
        if self.obj is None or name in self.written or self.source is None:
            return None
        try:
            held = dict_of(self.obj)
        except AttributeError:  # it has only slots
            return None
        if shares_dict(tracer, self, held):
            return self.own_attribute(tracer, name)
        if name not in held:
            if not self.is_stable(name):
                tracer.guards.absent(DictOfSource(self.source), name)
            return None
        self.attributes[name] = value = tracer.objects.wrap(held[name], ItemSource(DictOfSource(self.source), name))
        return value

    def is_stable(self, name: str) -> bool:
        """Whether an instance is trusted not to gain an attribute that shadows the one of its class."""
        return name.startswith("__") and name.endswith("__")

    def missing(self, tracer: Tracing, name: str) -> Value:
        """Call the class's `__getattr__`, or raise AttributeError."""
        rely_on_class(tracer, self.cls, name, "__getattr__")
        fallback = find_in_class(self.cls, "__getattr__")
        if fallback is not None:
            return bind(tracer, self, self.cls, fallback, "__getattr__").call(tracer, (tracer.constant(name),), {})
        raise_missing(tracer, self.cls, name)

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        if not self._changed_by_class(tracer, "__setattr__", name, value):
            self.store(tracer, name, value)

    def delete_attribute(self, tracer: Tracing, name: str) -> None:
        if not self._changed_by_class(tracer, "__delattr__", name):
            self.remove(tracer, name)

    def _changed_by_class(self, tracer: Tracing, method: str, name: str, *args: Value) -> bool:
        """Call the class's own `__setattr__` or `__delattr__`; False if it has none. Breaks the graph where a C type
        stores attributes in its own way, as `threading.local` does."""
        if not tracer.types.has_own(self.cls, method):
            return False
        own = find_in_class(self.cls, method)
        if own is None or not isinstance(own.obj, FunctionType):
            tracer.graph_break("attributes-kept-in-c", name=name, type=self.describe())
        bind(tracer, self, self.cls, own, method).call(tracer, (tracer.constant(name), *args), {})
        return True

    def remove(self, tracer: Tracing, name: str) -> None:
        """`object.__delattr__(obj, name)`."""
        found = find_in_class(self.cls, name)
        rely_on_class(tracer, self.cls, name, "__delattr__")
        if found is not None and self._by_descriptor(tracer, found, name, "__delete__"):
            return
        slot = found is not None and isinstance(found.obj, MemberDescriptorType)
        held = tracer.python.attribute_or_none(self, name) if slot else self.own_attribute(tracer, name)
        if self.attributes.get(name) is None and held is None:
            text = name if slot else f"'{self.cls.__name__}' object has no attribute '{name}'"
            tracer.raise_error(AttributeError, text)
        self._write(tracer, name, None)
        if not slot and self.obj is not None and self.source is not None and name not in dict_of(self.obj):
            tracer.guards.absent(DictOfSource(self.source), name)
            self.written.pop(name, None)

    def of_base(self, descriptor: Any) -> bool:
        """Whether an attribute belongs to the builtin type that the class derives from."""
        return False

    def _rely_on_descriptor(self, tracer: Tracing, found: ClassMember, name: str) -> None:
        source = class_source(tracer, self.cls, name)
        if source is not None:
            tracer.guards.same(source, found.obj)

    def _by_descriptor(self, tracer: Tracing, found: ClassMember, name: str, method: str, *args: Value) -> bool:
        """Call `__set__` or `__delete__` of a property or a descriptor in Python; False if it is neither."""
        if isinstance(found.obj, property):
            self._rely_on_descriptor(tracer, found, name)
            word, function = ("setter", found.obj.fset) if args else ("deleter", found.obj.fdel)
            if function is None:
                tracer.raise_error(AttributeError, f"property '{name}' of '{self.cls.__name__}' object has no {word}")
            tracer.as_value(function).call(tracer, (self, *args), {})
            return True
        if not is_data_descriptor(found.obj) or (in_c(found.obj) and not self.of_base(found.obj)):
            return False
        changer = find_in_class(type(found.obj), method)
        if changer is None or not isinstance(changer.obj, FunctionType):
            tracer.graph_break("descriptor-set-in-c", name=name, type=self.describe())
        descriptor = held_value(tracer, self.cls, found, name)
        held_value(tracer, type(found.obj), changer, method).call(tracer, (descriptor, self, *args), {})
        return True

    def store(self, tracer: Tracing, name: str, value: Value) -> None:
        """`object.__setattr__(obj, name, value)`."""
        found = find_in_class(self.cls, name)
        rely_on_class(tracer, self.cls, name, "__setattr__")
        if found is not None and self._by_descriptor(tracer, found, name, "__set__", value):
            return
        if found is not None and isinstance(found.obj, MemberDescriptorType):
            self._rely_on_descriptor(tracer, found, name)
        if name in ("__dict__", "__class__"):
            tracer.graph_break("sets-class-of-object", name=name, type=self.describe())
        if not getattr(self.cls, "__dictoffset__", 1) and not (found and isinstance(found.obj, MemberDescriptorType)):
            if found is not None:
                tracer.raise_error(AttributeError, f"'{self.cls.__name__}' object attribute '{name}' is read-only")
            try:
                setattr(namesake(self.cls), name, None)
            except AttributeError as error:
                tracer.raise_real(error)
        self._write(tracer, name, value)

    def _write(self, tracer: Tracing, name: str, value: Value | None) -> None:
        if self.instance_dict is None and self.obj is not None and not self.is_slot(name):
            with contextlib.suppress(AttributeError):  # it has only slots
                shares_dict(tracer, self, dict_of(self.obj))
        if self.instance_dict is not None and not self.is_slot(name):
            key = tracer.constant(name)
            if value is None:
                self.instance_dict.delete_item(tracer, key)
            else:
                self.instance_dict.set_item(tracer, key, value)
            return
        again = value is not None and name in self.attributes and self.attributes[name] is None
        if again:  # deleted and added again: it comes last now
            del self.attributes[name]
            again = self.written.pop(name, None) is not None
        self.attributes[name] = value
        self.written[name] = self.written.get(name, False) or again
        tracer.mutate(self)

    def is_slot(self, name: str) -> bool:
        """Whether an attribute is in a slot, not in the instance's dict."""
        found = find_in_class(self.cls, name)
        return found is not None and isinstance(found.obj, MemberDescriptorType)

    def open_dict(self, tracer: Tracing) -> DictValue:
        """`obj.__dict__`."""
        if self.instance_dict is None:
            moved = [name for name in self.attributes if not self.is_slot(name)]
            changed = {name: self.attributes[name] for name in moved if name in self.written}
            self.instance_dict = tracer.new_instance_dict(self)
            again = {name for name, anew in self.written.items() if anew}
            for name in moved:
                del self.attributes[name]
                self.written.pop(name, None)
            for name, value in changed.items():
                if name in again:
                    self.instance_dict.delete_item(tracer, tracer.constant(name))
                if value is not None:
                    self.instance_dict.set_item(tracer, tracer.constant(name), value)
                elif self.obj is not None:
                    self.instance_dict.delete_item(tracer, tracer.constant(name))
        return self.instance_dict

    def method(self, tracer: Tracing, name: str) -> Value | None:
        """A special method, looked up in the class only and bound; None when the class has none."""
        found = find_in_class(self.cls, name)
        if found is None or found.obj is None:
            rely_on_class(tracer, self.cls, name)
            return None
        return bind(tracer, self, self.cls, found, name)

    def refuses(self, name: str) -> bool:
        """Whether the class sets a special method to None, to disable the operation."""
        found = find_in_class(self.cls, name)
        return found is not None and found.obj is None


@attrs.define(eq=False)
class UserObjectValue(AttributesOfObject):
    """An object, and the operations that the methods of its class implement."""

    slots = ALL_SLOTS  # its class decides

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        known = tracer.calls.handled(self.obj, args, kwargs) if self.obj is not None else None
        if known is not None:
            return known
        method = self.method(tracer, "__call__")
        if method is None:
            raise_lacking(tracer, self, "__call__")
        return method.call(tracer, args, kwargs)

    def direct_code(self, tracer: Tracing) -> CodeType | None:
        found = find_in_class(self.cls, "__call__")
        return None if found is None else tracer.as_value(found.obj).direct_code(tracer)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        return self.get_attribute(tracer, name).call(tracer, args, kwargs)

    def get_item(self, tracer: Tracing, key: Value) -> Value:
        return self.special(tracer, "__getitem__", key)

    def set_item(self, tracer: Tracing, key: Value, value: Value) -> None:
        self.special(tracer, "__setitem__", key, value)

    def delete_item(self, tracer: Tracing, key: Value) -> None:
        self.special(tracer, "__delitem__", key)

    def special(self, tracer: Tracing, name: str, *args: Value) -> Value:
        """The result of a special method, looked up in the class only. TypeError of the program when it has none."""
        method = self.method(tracer, name)
        if method is None:
            if self.refuses(name):
                tracer.raise_error(TypeError, "'NoneType' object is not callable")
            raise_lacking(tracer, self, name)
        return method.call(tracer, args, {})

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        found = find_in_class(self.cls, name)
        if found is None or not isinstance(found.obj, FunctionType):
            rely_on_class(tracer, self.cls, name)
            known = tracer.calls.handled(found.obj, (self, other), {}) if found is not None else None
            if known is not None:
                return unless_not_implemented(known)
            slot = found is None or isinstance(found.obj, WrapperDescriptorType)
            if found is None or found.holder is object or (slot and name in ("__eq__", "__ne__")):
                return None
            return self.operate_in_c(tracer, name)
        return unless_not_implemented(bind(tracer, self, self.cls, found, name).call(tracer, (other,), {}))

    def unary(self, tracer: Tracing, name: str) -> Value:
        return self.special(tracer, name)

    def operate_in_c(self, tracer: Tracing, name: str) -> Value | None:
        """The result of an operator whose method is written in C and has no handler."""
        tracer.graph_break("operator-in-c", operation=name, type=self.describe())

    def truth(self, tracer: Tracing) -> bool:
        if self.method(tracer, "__bool__") is not None or self.refuses("__bool__"):
            return truth_of(tracer, self, self.special(tracer, "__bool__"), False)
        return truth_of(tracer, self, None, self.method(tracer, "__len__") is not None or self.refuses("__len__"))

    def length(self, tracer: Tracing) -> int:
        return length_of(tracer, self.special(tracer, "__len__"))

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        if self.method(tracer, "__iter__") is None:
            if self.method(tracer, "__getitem__") is None or self.refuses("__iter__"):
                raise_lacking(tracer, self, "__iter__")
            return self._by_index(tracer, itertools.count(), retries=True)
        iterator = tracer.python.iterator(self)
        return Steps(lambda: iterator.advance(tracer))

    def advance(self, tracer: Tracing) -> Value:
        try:
            return self.special(tracer, "__next__")
        except UserRaised as raised:
            if issubclass(raised.value.python_type(), StopIteration):
                raise StopIteration from None
            raise

    def backwards_by_index(self, tracer: Tracing) -> Iterator[Value]:
        """The values of `reversed`, by `__len__` and `__getitem__`. The length is read now."""
        return self._by_index(tracer, iter(range(self.length(tracer) - 1, -1, -1)), retries=False)

    def _by_index(self, tracer: Tracing, positions: Iterator[int], retries: bool) -> Iterator[Value]:
        """The items at some positions, up to an IndexError or StopIteration. retries: after another error, the next
        step reads the same position again, as `iter` does; `reversed` ends at any."""

        def step() -> Value:
            nonlocal positions
            position = next(positions)
            try:
                return self.get_item(tracer, tracer.constant(position))
            except UserRaised as raised:
                ended = issubclass(raised.value.python_type(), (IndexError, StopIteration))
                positions = itertools.chain((position,), positions) if retries and not ended else iter(())
                if ended:
                    raise StopIteration from None
                raise

        return Steps(step)

    def contains(self, tracer: Tracing, item: Value) -> bool:
        if self.method(tracer, "__contains__") is not None:
            return self.special(tracer, "__contains__", item).truth(tracer)
        if self.refuses("__contains__"):
            tracer.raise_error(TypeError, f"'{self.cls.__name__}' object is not a container")
        rely_on_class(tracer, self.cls, "__iter__", "__getitem__")
        return found_in(tracer, self, item)

    def rebuild(self, out: Rebuilding) -> None:
        self.allocate(out)
        out.hold(self)
        for write in self.fill(out):
            out.do(write)
        for name, value in self.attributes.items():
            if value is not None:
                out.set_attribute(self, name, value)
        if self.instance_dict is not None:
            for key, value in self.instance_dict.entries.values():
                out.set_attribute(self, str(key.as_constant()), value)

    def allocate(self, out: Rebuilding) -> None:
        """Emit bytecode that pushes a new object; a mutable one is empty."""
        out.null_function(allocator(self.cls))
        out.load(out.tracer.as_value(self.cls))
        out.call(1)

    def fill(self, out: Rebuilding) -> list[Write]:
        """The writes that fill a new object with its items, by methods of the builtin type it derives from."""
        return []

    def writes(self, out: Rebuilding) -> list[Write]:
        found = []
        for name, anew in self.written.items():
            held = self.attributes[name]
            if anew and held is not None:
                found.append(Write(object.__delattr__, (self, out.value(name))))
            if held is None:
                found.append(Write(object.__delattr__, (self, out.value(name))))
            else:
                found.append(Write(object.__setattr__, (self, out.value(name), held)))
        return found


def allocator(cls: type) -> Callable[..., object]:
    """The `__new__` of the C type that determines the memory layout of a class's objects."""
    return next(base for base in cls.__mro__ if is_written_in_c(base)).__new__


def in_c(descriptor: object) -> bool:
    """Whether it is an attribute of a C class, or a slot."""
    return isinstance(descriptor, (GetSetDescriptorType, MemberDescriptorType))
