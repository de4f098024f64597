"""Calls, and what is called: functions, classes, constructors."""

from __future__ import annotations

import collections
import enum
import functools
import threading
import typing
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


def function_arguments(x: Tensor) -> object:
    try:
        return divmod(x.dim())  # type: ignore[call-overload, misc]
    except TypeError:
        return x + 1


def function_arguments_mended(x: Tensor) -> object:
    return x + divmod(x.dim(), 2)[0]


def method_arguments(x: Tensor) -> object:
    seen = [1]
    try:
        seen.append(2, 3)  # type: ignore[call-arg]
    except TypeError:
        return x + len(seen)
    return x


def method_arguments_mended(x: Tensor) -> object:
    seen = [1]
    seen.extend((2, 3))
    return x + len(seen)


def method_of_another_type(x: Tensor) -> object:
    try:
        return x + len(str.upper(1))  # type: ignore[arg-type]
    except TypeError:
        return x + 1


def method_of_another_type_mended(x: Tensor) -> object:
    return x + len(str.upper("1"))


class Settings(dict[str, int]):
    """Settings that show where they come from."""

    def __init__(self, *args: Any, source: str = "default") -> None:
        super().__init__(*args)
        self.source = source

    def copy(self) -> Settings:
        return Settings(super().copy(), source=self.source)


class Failure(Exception):
    """An exception with a constructor of its own."""

    def __new__(cls, *args: Any) -> Failure:
        return super().__new__(cls, "failed", *args)


def exception_class_with_new(x: Tensor) -> object:
    try:
        raise Failure("x")
    except Failure:
        return x + 1


def exception_class_with_new_mended(x: Tensor) -> object:
    try:
        raise ValueError("failed", "x")
    except ValueError:
        return x + 1


def error_with_file_name(x: Tensor) -> object:
    try:
        raise FileNotFoundError(2, "no such file", "weights.bin")
    except FileNotFoundError:
        return x + 1


def error_with_file_name_mended(x: Tensor) -> object:
    try:
        raise ValueError("no such file: weights.bin")
    except ValueError:
        return x + 1


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Fallback(enum.Enum):
    NONE = 0

    @classmethod
    def _missing_(cls, value: object) -> object:
        return None


def enum_call(x: Tensor) -> object:
    shapes = enum.Enum("Shapes", "FLAT ROUND")  # type: ignore[misc]
    return x + shapes.FLAT.value


def enum_call_mended(x: Tensor) -> object:
    return x + Colour(1).value


def enum_missing(x: Tensor) -> object:
    try:
        return x + Fallback(7).value
    except ValueError:
        return x + 1


def enum_missing_mended(x: Tensor) -> object:
    return x + Fallback(0).value


class Point(namedtuple("Point", "a b")):
    """A tuple that checks its arguments."""

    def __new__(cls, a: int, b: int) -> Point:
        return super().__new__(cls, a, abs(b))


class Pair(typing.NamedTuple):
    """A tuple with an ordinary constructor."""

    a: int
    b: int


class Calling(type):
    """A metaclass whose `__call__` is not a plain function."""

    __call__ = functools.partialmethod(type.__call__)


class Called(metaclass=Calling):
    """A class of that metaclass."""


def metaclass_call(x: Tensor) -> object:
    made = Called()
    return x + isinstance(made, Called)


class Plain:
    """A class with the ordinary metaclass."""

    size = 1


def metaclass_call_mended(x: Tensor) -> object:
    made = Plain()
    return x + isinstance(made, Plain)


def fill(self: Any, size: int) -> None:
    """The body of an `__init__`."""
    self.size = size


class Sized:
    """A class whose `__init__` is a partial function."""

    size: int
    __init__ = functools.partialmethod(fill, 3)


def unusual_constructor(x: Tensor) -> object:
    return x + Sized().size


def unusual_constructor_mended(x: Tensor) -> object:
    return x + Plain().size


def call_of_object(x: Tensor) -> object:
    try:
        items: Any = [1]
        return x + items(0)
    except TypeError:
        return x + 1


def call_of_object_mended(x: Tensor) -> object:
    return x + [1][0]


def super_of_no_class(x: Tensor) -> object:
    try:
        return super(1, x).sum()  # type: ignore[arg-type]
    except TypeError:
        return x + 1


def super_of_no_class_mended(x: Tensor) -> object:
    return x + len(super(Settings, Settings()).copy())


def new_of_no_class(x: Tensor) -> object:
    try:
        return object.__new__(1)  # type: ignore[arg-type]
    except TypeError:
        return x + 1


def new_of_no_class_mended(x: Tensor) -> object:
    return x + object.__new__(Plain).size


def iter_of_no_callable(x: Tensor) -> object:
    try:
        return iter(1, 2)  # type: ignore[call-overload]
    except TypeError:
        return x + 1


def iter_of_no_callable_mended(x: Tensor) -> object:
    return x + len(list(iter([1].pop, 1)))


def class_statement(x: Tensor) -> object:
    class Made(Plain):
        size = 2

    return x + Made.size


class Doubled(Plain):
    """An object that is created once, when the module is imported."""

    size = 2


def class_statement_mended(x: Tensor) -> object:
    return x + Doubled.size


def class_by_type(x: Tensor) -> object:
    made: Any = type("Made", (Plain,), {"size": 2})
    return x + made.size


def class_by_type_mended(x: Tensor) -> object:
    return x + Doubled.size


class Symmetric(nn.Module):
    """A weight that equals its transpose."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).mT


SQUARE = nn.Linear(3, 3, bias=False)
SYMMETRIC = nn.Linear(3, 3, bias=False)
for layer in (SQUARE, SYMMETRIC):
    nn.init.ones_(layer.weight)
parametrize.register_parametrization(SYMMETRIC, "weight", Symmetric())


def class_of_parametrized(x: Tensor) -> Tensor:
    parametrize.register_parametrization(SQUARE, "weight", Symmetric())
    y: Tensor = SQUARE(x)
    parametrize.remove_parametrizations(SQUARE, "weight", leave_parametrized=False)
    return y


def class_of_parametrized_mended(x: Tensor) -> Tensor:
    y: Tensor = SYMMETRIC(x)
    return y


@typing.runtime_checkable
class HasSize(typing.Protocol):
    """A protocol with an attribute."""

    size: int


class Bare:
    """An object without attributes."""


def isinstance_of_protocol(x: Tensor) -> object:
    return x + isinstance(BARE, HasSize)


BARE = Bare()


def isinstance_of_protocol_mended(x: Tensor) -> object:
    return x + hasattr(BARE, "size")


class Listing(type):
    """A metaclass whose `__subclasses__` returns other classes than the real ones."""

    def __subclasses__(cls) -> list[Any]:
        return []


class Hidden(metaclass=Listing):
    """A class whose subclasses are hidden by its metaclass."""


def list_of_subclasses(x: Tensor) -> object:
    return x + len(type.__subclasses__(Hidden))


def list_of_subclasses_mended(x: Tensor) -> object:
    return x + len(Plain.__subclasses__())


def update_wrapper(x: Tensor) -> object:
    wrapped = functools.wraps(BARE_FUNCTION)(functools.partial(BARE_FUNCTION))
    return x + wrapped()


def _one() -> int:
    return 1


BARE_FUNCTION: Callable[[], int] = _one


def update_wrapper_mended(x: Tensor) -> object:
    @functools.wraps(BARE_FUNCTION)
    def wrapped() -> int:
        return BARE_FUNCTION()

    return x + wrapped()


def grad_mode_decorator(x: Tensor) -> object:
    @torch.no_grad  # type: ignore[call-arg]
    def inner(y: Tensor) -> Tensor:
        return y + 1

    return inner(x)  # type: ignore[type-var]


def grad_mode_decorator_mended(x: Tensor) -> object:
    with torch.no_grad():
        return x + 1


def star_arguments(x: Tensor) -> object:
    try:
        return torch.add(*1)  # type: ignore[misc]
    except TypeError:
        return x + 1


def star_arguments_mended(x: Tensor) -> object:
    return torch.add(*(x, 1))


def keywords_merged(x: Tensor) -> object:
    first, second = {"other": 1}, {"other": 2}
    try:
        return torch.add(x, **first, **second)  # type: ignore[call-overload]
    except TypeError:
        return x + 1


def keywords_merged_mended(x: Tensor) -> object:
    first, second = {"other": 1}, {"other": 2}
    return torch.add(x, **{**first, **second})  # type: ignore[call-overload]


THREAD = threading.local()


class Shape:
    """A class of the program."""

    sides = 4


class Square(Shape):
    """A class derived from Shape."""


def super_of_no_object(x: Tensor) -> object:
    return x + (super(Square) is not None)


def super_of_no_object_mended(x: Tensor) -> object:
    return x + super(Square, Square()).sides


def isinstance_of_no_class(x: Tensor) -> object:
    try:
        return x + isinstance(1, (3, "a"))  # type: ignore[arg-type]
    except TypeError:
        return x + 1


def isinstance_of_no_class_mended(x: Tensor) -> object:
    return x + isinstance(1, (int, str))


class Ordered(collections.OrderedDict[str, int]):
    """A dict with a `copy` method of its own."""

    def copy(self) -> Ordered:
        return Ordered(self)


SIZES = Ordered(width=2)


def copy_of_derived_class(x: Tensor) -> object:
    return x + len(collections.OrderedDict.copy(SIZES))


def copy_of_derived_class_mended(x: Tensor) -> object:
    return x + len(SIZES.copy())


def exception_keywords(x: Tensor) -> object:
    try:
        raise ImportError("not installed", name="weights")
    except ImportError as error:
        return x + len(str(error))


def exception_keywords_mended(x: Tensor) -> object:
    try:
        raise ImportError("weights is not installed")
    except ImportError as error:
        return x + len(str(error))


class Span(typing.NamedTuple):
    """A class whose `__new__` is replaced by a function that sorts begin and end."""

    begin: int
    end: int


def in_order(cls: type[Span], begin: int, end: int) -> Span:
    return tuple.__new__(cls, (min(begin, end), max(begin, end)))


Span.__new__ = in_order  # type: ignore[assignment, method-assign]


def named_tuple_with_new(x: Tensor) -> object:
    return x + Span(2, 1).begin


def named_tuple_with_new_mended(x: Tensor) -> object:
    return x + Pair(min(2, 1), max(2, 1))[0]
