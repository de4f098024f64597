"""Classes that a compiled function makes, by `class` and by `type`: the graph breaks there, and Python makes them."""

from __future__ import annotations

import abc
import enum
import functools
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest
import torch

import armature
from armature.testing.handler_kit import break_id

Function = Callable[[torch.Tensor], Any]


class Registered:
    known: list[str] = []

    def __init_subclass__(cls, scale: float = 1.0, **others: Any) -> None:
        super().__init_subclass__(**others)
        cls.scale = scale


class Plain:
    def twice(self, x):
        return x * 2


class Meta(type):
    """A metaclass of the program."""

    def __new__(mcls, name, bases, namespace, **options):
        namespace["made_by"] = f"{mcls.__name__} of {name}"
        return super().__new__(mcls, name, bases, namespace)

    def __init__(cls, name, bases, namespace, scale=1):
        super().__init__(name, bases, namespace)
        cls.scale = scale

    def __call__(cls, *args, **kwargs):
        made = super().__call__(*args, **kwargs)
        made.called = len(args)
        return made

    def __len__(cls):
        return 7

    @property
    def label(cls):
        return cls.__name__.lower()

    def make(cls, *args):
        return cls(*args)


def by_type(x):
    def scaled(self, y):
        return y * self.factor

    made = type("Made", (Plain,), {"factor": 3, "scaled": scaled, "__doc__": "made"})
    obj = made()
    facts = made.__name__, made.__module__, made.__qualname__, made.__doc__, made.__bases__, type(obj) is made
    return obj.scaled(obj.twice(x)), facts, isinstance(obj, Plain), issubclass(made, Plain)


def abstract(x):
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self, y): ...

        @property
        @abc.abstractmethod
        def sides(self): ...

        def double(self, y):
            return self.area(y) * 2

    class Half(Shape):
        sides = 2

    class Square(Half):
        def area(self, y):
            return y * y + self.sides

    said = []
    for cls in (Shape, Half):
        try:
            cls()
        except TypeError as error:
            said.append(str(error))
    return Square().double(x), said, isinstance(Square(), Shape), sorted(Half.__abstractmethods__)


def inner_metaclass(x):
    class Counting(type):
        def __call__(cls, *args):
            made = super().__call__(*args)
            made.extra = len(args)
            return made

    class Held(metaclass=Counting):
        value = 2

        def __init__(self, y):
            self.y = y

    class Derived(Held):
        value = 5

    first, second = Held(x), Derived(x)
    return first.y * first.value + first.extra, second.y * second.value, type(Derived) is Counting


def outer_metaclass(x):
    class Held(metaclass=Meta, scale=4):
        def __init__(self, y):
            self.y = y

        def own(self):
            return __class__.__name__

    made = Held.make(x)
    facts = Held.made_by, Held.scale, made.called, len(Held), Held.label, made.own(), isinstance(Held, Meta)
    other = Meta("Other", (Plain,), {"a": 1})
    return made.y * Held.scale, facts, other.a, other.made_by, other().twice(x), type(other) is Meta


def hooks(x):
    seen = []

    class Base:
        def __init_subclass__(cls, /, tag="none", **others):
            super().__init_subclass__(**others)
            cls.tag = tag
            seen.append((cls.__name__, tag, cls.value))

        def who(self):
            return self.tag

    class First(Base, tag="one"):
        value = 1

        def who(self):
            return super().who() + "!"

    class Second(First, Plain):
        value = 2

    class Scaled(Plain, Registered, scale=3.0):
        pass

    third = type("Third", (Base,), {"value": 3}, tag="three")
    facts = seen, First().who(), Second().who(), third.tag, Second.__mro__[1] is First, Scaled.__bases__
    return Second().twice(x) * Scaled.scale, facts, len(Scaled.__mro__)


def refused(x):
    said = []
    for make in (
        lambda: type("A", (int, str), {}),
        lambda: type("A", (bool,), {}),
        lambda: type("A", (Plain, object, Plain), {}),
    ):
        try:
            make()
        except TypeError as error:
            said.append(str(error))
    return x + 1, said


class Shade(enum.Enum):
    LIGHT = 1
    DARK = 2

    @classmethod
    @property
    def best(cls):
        return cls.DARK


def members_leave(x):
    class Size(enum.Enum):
        SMALL = 1
        LARGE = 2

    class Level(enum.IntEnum):
        LOW = 1

    small = Size.SMALL
    return x * Level.LOW, small, {Size(2): [small]}, frozenset([Size["LARGE"]]), Size.__members__, Level.LOW


def refused_members(x):
    try:

        class Other(Shade):
            MORE = 3

    except TypeError as error:
        return x, str(error)


def attributes_are_shared(x):
    class Own:
        items = []

    Own.items.append(1)
    return x, Own.items, Own().items is Own.items


def shown(result: Any) -> str:
    return str(result)


FUNCTIONS = [by_type, abstract, inner_metaclass, outer_metaclass, hooks, refused, attributes_are_shared]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_as_in_eager_mode(function: Function) -> None:
    x = torch.arange(3.0)
    assert break_id(function, (x,)) == ("class-by-type" if function in (by_type, refused) else "class-statement")
    compiled = armature.compile(function, backend="eager")
    for _ in range(2):
        assert shown(compiled(x)) == shown(function(x))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_with_a_break_in_the_middle(function: Function) -> None:
    def cut(x: torch.Tensor) -> Any:
        first = function(x)
        armature.graph_break()
        return first, function(x + 1)

    x = torch.arange(3.0)
    assert shown(armature.compile(cut, backend="eager")(x)) == shown(cut(x))


def properties(x):
    made = property(lambda self: 5).setter(lambda self, value: None)
    documented = property(lambda self: 6, doc="six")
    armature.graph_break()
    return x, made.fget(1), made.fset(1, 2), made.fdel, documented.fget(1), documented.__doc__


def methods(x):
    static, of_class, cached = staticmethod(lambda v: v), classmethod(lambda cls: cls), cached_property(lambda v: v * 2)
    armature.graph_break()
    return x, static(3), static.__func__(4), of_class.__func__(5), cached.func(6), cached.attrname


def set_in_a_class(x):
    class Local:
        pass

    Plain.late = property(lambda self: self.twice(x))
    found = Plain().late
    del Plain.late
    Local.late = property(lambda self: 7)
    return found, Local().late


@pytest.mark.parametrize("function", [properties, methods, set_in_a_class])
def test_descriptors_leave_the_frame(function: Function) -> None:
    x = torch.arange(3.0)
    compiled = armature.compile(function, backend="eager")
    for _ in range(2):
        assert shown(compiled(x)) == shown(function(x))


@pytest.mark.parametrize("function", [members_leave, refused_members, lambda x: (x, repr(Shade.best))])
def test_enums(function: Function) -> None:
    x = torch.arange(3.0)
    compiled = armature.compile(function, backend="eager")
    for _ in range(2):
        assert shown(compiled(x)) == shown(function(x))


def test_nothing_of_the_program_runs_while_a_class_is_made() -> None:
    ran = []

    class Loud:
        def __init_subclass__(cls, **options: Any) -> None:
            ran.append(options)

    def function(x: torch.Tensor) -> Any:
        class Made(Plain, Loud, one=1):
            pass

        return Made().twice(x)

    x = torch.ones(1)
    compiled = armature.compile(function, backend="eager")
    for times in (1, 2):
        assert torch.equal(compiled(x), x * 2)
        assert ran == [{"one": 1}] * times


def test_a_hook_that_is_replaced_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Base:
        @classmethod
        def __init_subclass__(cls, **options: Any) -> None:
            cls.scale = 2

    def function(x: torch.Tensor) -> Any:
        class Made(Base):
            pass

        return x * Made.scale

    def other(cls: Any, **options: Any) -> None:
        cls.scale = 5

    x = torch.ones(1)
    compiled = armature.compile(function, backend="eager")
    assert compiled(x) == 2
    monkeypatch.setattr(Base, "__init_subclass__", classmethod(other))
    assert compiled(x) == 5


class Prepared(type):
    @classmethod
    def __prepare__(cls, name: str, bases: Any, **options: Any) -> dict[str, object]:
        return {"prepared": 3}


class Watching(type):
    def __setattr__(cls, name: str, value: object) -> None:
        super().__setattr__(name, f"set to {value}")


class Hashed(type):
    def __hash__(cls) -> int:
        return 3


class Unwrapped(type):
    def __new__(mcls, name, bases, namespace):
        return super().__new__(mcls, name, bases, {"a": 1})


@pytest.mark.parametrize("metaclass", [Prepared, Watching, Hashed, Unwrapped, lambda *given: 3])
def test_metaclasses_that_cannot_be_followed(metaclass: Any) -> None:
    def function(x: torch.Tensor) -> Any:
        class Made(metaclass=metaclass):
            def who(self) -> Any:
                return __class__

        return x + 1, str(getattr(Made, "prepared", None)), len([Made])

    x = torch.ones(1)
    assert break_id(function, (x,)) == "class-statement"
    compiled = armature.compile(function, backend="eager")
    for run in (function, compiled):
        if metaclass is Unwrapped:
            with pytest.raises(RuntimeError, match="__class__"):
                run(x)
        else:
            assert shown(run(x)) == shown(function(x))


class Described(type):
    @property
    def label(cls) -> str:
        return cls.given

    @label.setter
    def label(cls, value: str) -> None:
        cls.given = value * 2


class Labelled(metaclass=Described):
    given = ""


def test_a_property_of_a_metaclass_is_set_by_its_setter() -> None:
    def outer(x: torch.Tensor) -> Any:
        Labelled.label = "ab"
        return x + 1, Labelled.label

    def inner(x: torch.Tensor) -> Any:
        class Made(metaclass=Described):
            given = ""

        Made.label = "ab"
        return x + 1, Made.label

    for function, expected in ((outer, "sets-class-attribute"), (inner, "class-statement")):
        assert break_id(function, (torch.ones(1),)) == expected
        assert armature.compile(function, backend="eager")(torch.ones(1))[1] == "abab"


def test_a_subclass_hook_is_not_run_while_tracing() -> None:
    def function(x: torch.Tensor) -> Any:
        class Sized(metaclass=abc.ABCMeta):  # noqa: B024
            @classmethod
            def __subclasshook__(cls, other: type) -> Any:
                return hasattr(other, "twice") or NotImplemented

        return x + isinstance(Plain(), Sized)

    x = torch.ones(1)
    assert break_id(function, (x,)) == "class-statement"
    assert torch.equal(armature.compile(function, backend="eager")(x), x + 1)


def test_a_class_with_a_decorated_method() -> None:
    def function(x: torch.Tensor) -> Any:
        def doubled(fn: Any) -> Any:
            @functools.wraps(fn)
            def inner(self: Any, *args: Any) -> Any:
                return fn(self, *args) * 2

            return inner

        made = type("Made", (), {"run": doubled(lambda self, y: y + 1), "kept": property(lambda self: 3)})
        return made().run(x) + made().kept

    x = torch.ones(1)
    assert torch.equal(armature.compile(function, backend="eager")(x), function(x))
