"""Attributes, and changes of objects."""

from __future__ import annotations

import enum
import functools
import math
import threading
import types
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

from torch import Tensor, nn


class Counter:
    """An object with a number."""

    size = 1

    def __init__(self) -> None:
        self.count = 2

    def more(self) -> int:
        return self.count + 1


COUNTER = Counter()
TODAY = date(2026, 1, 2)


BYTES = memoryview(b"abc")
RANGE = range(2, 5)


def _one() -> int:
    return 1


def sets_attribute(x: Tensor) -> Any:
    try:
        (1.5).imag = 2  # type: ignore[misc]
    except AttributeError:
        return x + 1


def sets_attribute_mended(x: Tensor) -> object:
    return x + complex(1.5, 2).imag


def deletes_attribute(x: Tensor) -> Any:
    try:
        del (1.5).imag
    except AttributeError:
        return x + 1


def deletes_attribute_mended(x: Tensor) -> object:
    held = Counter()
    del held.count
    return x + hasattr(held, "size")


ROWS = iter([1, 2])


def length_of_object(x: Tensor) -> object:
    try:
        return x + len(iter([1]))  # type: ignore[arg-type]
    except TypeError:
        return x + 1


def length_of_object_mended(x: Tensor) -> object:
    return x + len(list(iter([1])))


def iteration_of_object(x: Tensor) -> object:
    try:
        return x + sum(int)  # type: ignore[call-overload]
    except TypeError:
        return x + 1


def iteration_of_object_mended(x: Tensor) -> object:
    return x + sum([1])


class Lookup:
    """An object whose attribute lookup is a method written in C."""

    __getattribute__ = functools.partialmethod(object.__getattribute__)  # type: ignore[misc]
    size = 1


LOOKUP = Lookup()


def lookup_in_c(x: Tensor) -> object:
    return x + LOOKUP.size


def lookup_in_c_mended(x: Tensor) -> object:
    return x + COUNTER.size


LOCAL = threading.local()


class Slotted(Exception):
    """A class with a slot of C."""


class Kept:
    """An object with a cached property."""

    field = functools.cached_property(lambda self: 1)


class Setter:
    """A descriptor whose `__set__` is no plain function."""

    __get__ = functools.partialmethod(lambda self, obj, owner: 1)
    __set__ = functools.partialmethod(lambda self, obj, value: None)


class Holder:
    """An object with that attribute."""

    field = Setter()


HOLDER = Holder()


def descriptor_set_in_c(x: Tensor) -> object:
    HOLDER.field = 3  # type: ignore[misc]
    return x + 1


def descriptor_set_in_c_mended(x: Tensor) -> object:
    COUNTER.count = 2
    return x + 1


def descriptor_in_c(x: Tensor) -> object:
    return x + HOLDER.field  # type: ignore[misc]


def descriptor_in_c_mended(x: Tensor) -> object:
    return x + COUNTER.size


def sets_class_of_object(x: Tensor) -> object:
    held = Counter()
    held.__class__ = Larger
    return x + held.size


class Larger(Counter):
    """Another class with the same memory layout."""

    size = 3


def sets_class_of_object_mended(x: Tensor) -> object:
    held = Larger()
    return x + held.size


def sets_class_attribute(x: Tensor) -> object:
    Counter.__doc__ = "An object with a number."
    return x + Counter.size


def sets_class_attribute_mended(x: Tensor) -> object:
    return x + Counter.size


def changes_globals(x: Tensor) -> object:
    globals()["SEEN"] = 1
    return x + 1


SEEN = 0


def changes_globals_mended(x: Tensor) -> object:
    global SEEN
    SEEN = 1
    return x + 1


def globals_after_change(x: Tensor) -> object:
    global SEEN
    SEEN = 1
    return x + globals()["SEEN"]


def globals_after_change_mended(x: Tensor) -> object:
    global SEEN
    SEEN = 1
    return x + SEEN


def changes_function(x: Tensor) -> object:
    def inner(n: int = 1) -> int:
        return n

    inner.__defaults__ = (2,)
    return x + inner()


def changes_function_mended(x: Tensor) -> object:
    def inner(n: int = 2) -> int:
        return n

    return x + inner()


def sets_library_attribute(x: Tensor) -> object:
    math.answer = 42  # type: ignore[attr-defined]
    return x + 1


def sets_library_attribute_mended(x: Tensor) -> object:
    global SEEN
    SEEN = 42
    return x + 1


class Lazy(types.ModuleType):
    """A module that creates attributes on demand."""

    def __getattribute__(self, name: str) -> Any:
        return 4 if name == "four" else super().__getattribute__(name)


LAZY = Lazy("lazy")


def module_with_lookup(x: Tensor) -> object:
    return x + LAZY.four


def module_with_lookup_mended(x: Tensor) -> object:
    return x + len("four")


def object_setattr(x: Tensor) -> Any:
    try:
        object.__setattr__([], "size", 1)
    except AttributeError:
        return x + 1


def object_setattr_mended(x: Tensor) -> object:
    held = Counter()
    object.__setattr__(held, "size", 1)
    return x + held.size


def dir_of_object(x: Tensor) -> object:
    return x + len(dir(math)) * 0


def dir_of_object_mended(x: Tensor) -> object:
    return x + len(dir(COUNTER)) * 0


def hash_by_address(x: Tensor) -> object:
    return x + hash(COUNTER) * 0


def hash_by_address_mended(x: Tensor) -> object:
    return x + hash("counter") * 0


def id_of_constant(x: Tensor) -> object:
    return x + id("text") * 0


def id_of_constant_mended(x: Tensor) -> object:
    return x + hash("text") * 0


def address_as_number(x: Tensor) -> object:
    return x + id(COUNTER) % 2 * 0


def address_as_number_mended(x: Tensor) -> object:
    return x + (id(COUNTER) != id(LOOKUP)) * 0


def identity_of_constants(x: Tensor) -> object:
    two: Any = "2"
    return x + (str(x.dim()) is two) * 0


def identity_of_constants_mended(x: Tensor) -> object:
    return x + (str(x.dim()) == "2") * 0


def operator_in_c(x: Tensor) -> object:
    return x + (TODAY - TODAY).days


def operator_in_c_mended(x: Tensor) -> object:
    return x + 0


class Loud(int):
    """An int with a `+` of its own."""

    def __add__(self, other: Any) -> Any:
        return int(self) + 1

    def __radd__(self, other: Any) -> Any:
        return int(self) + 2


class Louder(Loud):
    """A class derived from it, with a `+` of its own too."""

    def __radd__(self, other: Any) -> Any:
        return 100


class OwnList(list[int]):
    """A list with a `+` of its own."""

    def __add__(self, other: Any) -> Any:
        return [7]

    def __radd__(self, other: Any) -> object:
        return [8]


LIST = OwnList([1])


def comparison_of_objects(x: Tensor) -> object:
    try:
        return x + (iter([1]) > ROWS)  # type: ignore[operator]
    except TypeError:
        return x + 1


def comparison_of_objects_mended(x: Tensor) -> object:
    return x + ([1] < [2])


def class_subscript(x: Tensor) -> object:
    try:
        return x + Counter[1]  # type: ignore[misc]
    except TypeError:
        return x + 1


def class_subscript_mended(x: Tensor) -> object:
    return x + [Counter][0].size


class Colour(enum.Enum):
    RED = 1


def enum_contains(x: Tensor) -> object:
    try:
        return x + (COUNTER in Colour)  # type: ignore[operator]
    except TypeError:
        return x + 1


def enum_contains_mended(x: Tensor) -> object:
    return x + (Colour.RED in Colour)


class WithProperty:
    """A class with a property of the class itself."""

    @classmethod  # type: ignore[misc]
    @property
    def size(cls) -> int:
        return 1


def class_property(x: Tensor) -> object:
    return x + (WithProperty.size == 1)  # type: ignore[comparison-overlap]


def class_property_mended(x: Tensor) -> object:
    return x + Counter.size


def empty_cell(x: Tensor) -> object:
    return EMPTY(x)


def _empty() -> object:
    def inner(x: Tensor) -> object:
        try:
            return x + later
        except NameError:
            return x + 1

    if EMPTY is None:
        return inner
    later = 1
    return later


EMPTY: Any = None
EMPTY = _empty()


def empty_cell_mended(x: Tensor) -> object:
    later = 1

    def inner() -> object:
        return x + later

    return inner()


def own_import_function(x: Tensor) -> object:
    return OWN_IMPORT(x)


def _own_import() -> Any:
    scope: dict[str, Any] = {"__builtins__": {"__import__": lambda *args: math}, "__name__": "sandbox"}
    exec("def f(x):\n    import math\n    return x + math.pi\n", scope)  # as sandboxes run code of others
    return scope["f"]


OWN_IMPORT = _own_import()


def own_import_function_mended(x: Tensor) -> object:
    return x + math.pi


def numbers() -> Iterator[int]:
    yield 1


MONEY = Decimal(2)


def attribute_of_value(x: Tensor) -> object:
    try:
        raise ValueError("none")
    except ValueError as error:
        traceback: Any = error.__traceback__
        return x + 1, traceback.tb_next


def attribute_of_value_mended(x: Tensor) -> object:
    return x + 1, None


def attribute_in_c(x: Tensor) -> object:
    return x + len(len.__text_signature__)  # type: ignore[attr-defined]


def attribute_in_c_mended(x: Tensor) -> object:
    return x + len(len.__name__)


def method_of_value(x: Tensor) -> object:
    return x + iter([1, 2]).__length_hint__()  # type: ignore[attr-defined]


def method_of_value_mended(x: Tensor) -> object:
    return x + len([1, 2])


class OfThread(threading.local):
    """Thread-local attributes, apart from a slot."""

    __slots__ = ("step",)


OF_THREAD = OfThread()


def attributes_kept_in_c(x: Tensor) -> object:
    OF_THREAD.step = 2
    return x + 1


def attributes_kept_in_c_mended(x: Tensor) -> object:
    COUNTER.step = 2  # type: ignore[attr-defined]
    return x + 1


def operator_of_objects(x: Tensor) -> object:
    try:
        return x + (iter([1]) + 1)  # type: ignore[operator]
    except TypeError:
        return x + 1


def operator_of_objects_mended(x: Tensor) -> object:
    return x + (next(iter([1])) + 1)


class Bits(int):
    """An integer with an addition of its own."""

    def __radd__(self, other: int) -> int:
        return other | int(self)


def operator_method_order(x: Tensor) -> object:
    return x + (True + Bits(3))


def operator_method_order_mended(x: Tensor) -> object:
    return x + Bits(3).__radd__(True)


def integers_too_large(x: Tensor) -> object:
    return x + (1 << 2_000_000 > 1)


def integers_too_large_mended(x: Tensor) -> object:
    return x + (2.0**1_000 > 1)


class Registry(dict[str, Any]):
    """A dict of the program."""


def sets_module_registry(x: Tensor) -> object:
    LAYER._buffers = Registry()
    return x + 1


def sets_module_registry_mended(x: Tensor) -> object:
    LAYER._buffers = {}
    return x + 1


LAYER = nn.Linear(3, 3)


def slot_of_derived_class(x: Tensor) -> object:
    error = OSError(2, "not there")
    return x + error.errno  # type: ignore[operator]


def slot_of_derived_class_mended(x: Tensor) -> object:
    number, _ = OSError(2, "not there").args
    return x + number
