"""Determines what a callable really is, without running any of its code.

Everything here looks at types and slots of C types only: never `getattr` on a foreign object, never its `__eq__`,
`__hash__`, `__class__` or `__name__`. So an object that lies or raises is harmless.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

import attrs

_MRO = type.__dict__["__mro__"]
_DICT = type.__dict__["__dict__"]
_MODULE_DICT: Any = vars(types.ModuleType)["__dict__"]
_LRU = type(functools.lru_cache(lambda: None))
_IS_SUBCLASS = type.__subclasscheck__  # `type`'s own method, which bypasses metaclasses


@attrs.frozen(eq=False, init=False)
class Kinds:
    """A set of C classes. Classes are compared by identity, because hashing or comparing one may run its metaclass."""

    ids: frozenset[int]

    def __init__(self, *classes: type) -> None:
        self.__attrs_init__(frozenset(map(id, classes)))

    def __contains__(self, cls: object) -> bool:
        return id(cls) in self.ids


_BOUND_IN_C = Kinds(types.BuiltinFunctionType, types.MethodWrapperType)
_IN_C = Kinds(
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_STATIC = Kinds(staticmethod, classmethod)
_SAME = Kinds(types.MethodType, staticmethod, classmethod, _LRU, types.BuiltinFunctionType, types.MethodWrapperType)
_CALLED = Kinds(types.FunctionType, types.BuiltinFunctionType)
_WITH_CODE = Kinds(types.FunctionType, CodeType)
_FLAGS = type.__dict__["__flags__"]
_IMMUTABLE, _ON_HEAP = 1 << 8, 1 << 9  # Py_TPFLAGS_IMMUTABLETYPE, Py_TPFLAGS_HEAPTYPE
MISSING: Any = object()


@attrs.frozen
class Subject:
    """The subject of a question: the object, unwrapped, and its names. No user code runs to build it."""

    obj: object
    module: str
    qualname: str
    filename: str = ""
    is_frame: bool = False  # the question is about a frame about to run, not about a call

    @property
    def name(self) -> str:
        """The dotted name that a rule would use for it."""
        return f"{self.module}.{self.qualname}" if self.module else self.qualname

    @property
    def code(self) -> CodeType | None:
        """The Python code that a call would run; None for C code and classes."""
        if type(self.obj) is types.FunctionType:
            return self.obj.__code__
        return self.obj if type(self.obj) is CodeType else None


def is_module(obj: object) -> bool:
    """Whether the object is a module, whatever it claims to be."""
    return _IS_SUBCLASS(types.ModuleType, type(obj))


def namespace(module: object) -> dict[str, Any]:
    """The names of a module, bypassing its class's attribute lookup."""
    names: dict[str, Any] = _MODULE_DICT.__get__(module)
    return names


def is_class(obj: object) -> bool:
    """Whether the object is a class, whatever it claims to be."""
    return _IS_SUBCLASS(type, type(obj))


def is_object_of(obj: object, cls: type) -> bool:
    """Whether the object is an instance of the class or a subclass, whatever it claims to be."""
    return _IS_SUBCLASS(cls, type(obj))


def class_member(cls: Any, name: str) -> Any:
    """The raw member of the class or its bases, without running descriptors; MISSING if there is none."""
    # If a class's metaclass is `type` itself, this is read in C, and five times faster.
    for base in cls.__mro__ if type(cls) is type else _MRO.__get__(cls):
        found = (base.__dict__ if type(base) is type else _DICT.__get__(base)).get(name, MISSING)
        if found is not MISSING:
            return found
    return MISSING


def dict_of(obj: Any) -> Any:
    """`obj.__dict__`, bypassing a `__getattribute__` of the program."""
    asks = type(class_member(type(obj), "__getattribute__")) is types.FunctionType
    return object.__getattribute__(obj, "__dict__") if asks else obj.__dict__


def member(owner: object, name: str) -> Any:
    """The raw member of a module, class or instance, without running descriptors or `__getattr__`."""
    if is_module(owner):
        return namespace(owner).get(name, MISSING)
    cls = owner if is_class(owner) else type(owner)
    found = class_member(cls, name)
    if type(found) in _STATIC:
        return found.__func__
    return found.fget if type(found) is property else found


def find_loaded(name: str) -> Any:
    """The object of "pkg.mod.fn" or "pkg.mod.Class#method" among loaded modules, or MISSING. Imports nothing.

    A name without a module is looked up in builtins: "len", "dict#get".
    """
    before, _, last = name.replace("#", ".").rpartition(".")
    owner = owner_of_names(before)
    found = MISSING if owner is MISSING else member(owner, last)
    if found is not MISSING:  # as in Python: `torch.autograd.variable` is the function, not the module of that name
        return found
    module = sys.modules.get(name)
    return vars(builtins).get(name, MISSING) if module is None else module


def owner_of_names(name: str) -> Any:
    """The owner in which names below this one are looked up: the module of that name, else a class; or MISSING."""
    module = sys.modules.get(name)
    if module is not None:
        return module
    return find_loaded(name) if name else MISSING


def existing(*names: str) -> tuple[Any, ...]:
    """The objects of the dotted names that are loaded, in order: for handler targets that some torch versions lack."""
    found = (find_loaded(name) for name in names)
    return tuple(obj for obj in found if obj is not MISSING)


def layers(obj: object) -> Iterator[object]:
    """The object, then what it wraps, down to the function that finally runs.

    Looks through bound methods, partials, lru_cache, static and class methods, and instances with `__call__`.
    """
    for _ in range(64):  # a partial can be made to contain itself
        yield obj
        inner = _inner(obj)
        if inner is MISSING:
            return
        obj = inner


def is_plain_c_function(obj: Any) -> bool:
    """Whether the object is a C function that is bound only to its module or, as a static method, its class."""
    if type(obj) is not types.BuiltinFunctionType:
        return False
    owner = obj.__self__
    if owner is None or type(owner) is types.ModuleType:
        return True
    return type(owner) is type and type(_DICT.__get__(owner).get(obj.__name__)) is staticmethod


def _inner(obj: Any) -> Any:
    kind = type(obj)
    if kind is types.FunctionType or kind is type:
        return MISSING
    if kind is types.MethodType:
        return obj.__func__
    if kind is functools.partial:
        return functools.partial.func.__get__(obj)
    if kind in _STATIC:
        return obj.__func__
    if kind is _LRU:
        return dict.get(object.__getattribute__(obj, "__dict__"), "__wrapped__", MISSING)
    if kind in _BOUND_IN_C:
        return unbound(obj)
    if kind in _IN_C or is_class(obj):
        return MISSING
    call = class_member(kind, "__call__")
    return call if call is not obj and type(call) in _CALLED else MISSING


def unbound(obj: Any) -> Any:
    """The descriptor whose bound form this C method is; MISSING for a plain C function.

    This is not the member of that name in the object's class, which may be a Python method that overrides it.
    """
    name = obj.__name__
    if type(obj) is types.MethodWrapperType:
        slot = _DICT.__get__(obj.__objclass__).get(name)
        return slot if type(slot) is types.WrapperDescriptorType else MISSING
    if is_plain_c_function(obj):
        return MISSING
    owner = obj.__self__
    for base in _MRO.__get__(type(owner)):
        found = _DICT.__get__(base).get(name)
        if type(found) is types.MethodDescriptorType and found.__get__(owner, type(owner)) == obj:
            return found
    for base in _MRO.__get__(owner) if is_class(owner) else ():
        found = _DICT.__get__(base).get(name)
        if type(found) is types.ClassMethodDescriptorType and found.__get__(None, owner) == obj:
            return found
    return MISSING


def is_only_of_its_name(obj: Any) -> bool:
    """Whether this is a bound C method whose object has no other method of that name: `super` may also bind an
    overridden one."""
    if type(obj) not in (types.BuiltinFunctionType, types.MethodWrapperType):
        return False
    found = [
        names[obj.__name__] for names in map(_DICT.__get__, _MRO.__get__(type(obj.__self__))) if obj.__name__ in names
    ]
    return len(found) == 1 and found[0] is unbound(obj)


def text(value: object) -> str:
    """The value if it really is a string, else "": names can be set to anything."""
    return value if type(value) is str else ""


def describe(obj: Any) -> Subject:
    """The names of an object at the end of `layers`."""
    kind = type(obj)
    if kind is types.FunctionType:
        code: CodeType = obj.__code__
        module = text(dict.get(obj.__globals__, "__name__"))
        return Subject(obj, module, text(obj.__qualname__), code.co_filename)
    if kind is types.BuiltinFunctionType:
        return Subject(obj, text(obj.__module__), obj.__name__)
    if kind in _IN_C:
        owner = getattr(obj, "__objclass__", None)
        where = describe(owner) if is_class(owner) else None
        qualname = f"{where.qualname}.{obj.__name__}" if where else obj.__name__
        return Subject(obj, where.module if where else "", qualname)
    if is_module(obj):
        return Subject(obj, text(namespace(obj).get("__name__")), "")
    cls = obj if is_class(obj) else kind
    module = text(_DICT.__get__(cls).get("__module__")) or _module_in_c(cls)
    return Subject(obj, module, text(type.__dict__["__qualname__"].__get__(cls)))


def describe_frame(code: CodeType, variables: Mapping[str, object]) -> Subject:
    """The names of a frame about to run: its code and its globals."""
    module = text(dict.get(variables, "__name__")) if isinstance(variables, dict) else ""
    return Subject(code, module, code.co_qualname, code.co_filename, is_frame=True)


def label_of(obj: object) -> str:
    """A name for an object, with its module. An object whose class customises attribute lookup is not asked."""
    kind = type(obj)
    lookups = [class_member(kind, name) for name in ("__getattribute__", "__getattr__")]
    asked = any(isinstance(found, types.FunctionType) for found in lookups)
    named = kind if asked else obj
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', None) or kind.__qualname__}"


def is_written_in_c(obj: object) -> bool:
    """Whether calling it runs no Python code: C functions, descriptors, and C classes."""
    if is_class(obj):
        flags = _FLAGS.__get__(obj)
        return bool(flags & _IMMUTABLE) or not flags & _ON_HEAP
    return type(obj) in _IN_C


def has_code(obj: object) -> bool:
    """Whether there is Python code to trace: for a function, a Python class, a frame, a module."""
    if is_class(obj):
        return not is_written_in_c(obj)
    return type(obj) in _WITH_CODE or is_module(obj)


def is_descriptor(obj: object) -> bool:
    """Whether the object is a part of a C class: a method, slot, property or member."""
    return type(obj) in _IN_C and type(obj) not in _BOUND_IN_C


def is_immortal(obj: Any) -> bool:
    """Whether the object is a part of a C class, which lives as long as the process. A weak reference to one must not
    have a callback: CPython 3.11 and 3.12 crash when they call it at exit."""
    if type(obj) is types.BuiltinFunctionType:
        owner = obj.__self__
        if owner is None:  # a static method: it does not know its class
            return True
        return is_class(owner) and is_written_in_c(owner) and class_member(owner, obj.__name__) is obj
    if not is_descriptor(obj):
        return False
    owner = obj.__objclass__
    return is_class(owner) and is_written_in_c(owner)


def same_function(obj: object) -> Iterator[object]:
    """The object, then the function behind it: of a bound, static or cached one."""
    if type(obj) is types.FunctionType:  # a fast path for the usual case
        yield obj
        return
    for layer in layers(obj):
        yield layer
        if type(layer) not in _SAME:
            return


def wrapped_by_decorator(function: types.FunctionType) -> Iterator[types.FunctionType]:
    """The functions below a decorator's wrapper that has their name, as functools.wraps sets it."""
    for _ in range(64):
        inner = dict.get(function.__dict__, "__wrapped__")
        if type(inner) is not types.FunctionType or text(inner.__qualname__) != text(function.__qualname__):
            return
        yield inner
        function = inner


def is_callable(obj: object) -> bool:
    """Whether the object can be called, judging by its type alone."""
    return callable(obj)  # checks the type's slot in C, whatever the object claims


def _module_in_c(cls: type) -> str:
    """The module of a C class, which is part of its name ("builtins" if it is missing)."""
    if _FLAGS.__get__(cls) & _ON_HEAP:
        return ""
    return text(type.__dict__["__module__"].__get__(cls))
