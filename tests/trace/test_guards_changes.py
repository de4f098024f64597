"""What a program may change after it is compiled, besides attributes: enums, named tuples, slots, settings of torch."""

from __future__ import annotations

import collections
import enum
import functools
import io
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import armature
from tests.support.changed_programs import Program, like_eager


def enum_name_and_value() -> Program:
    class Mode(enum.Enum):
        FAST = 1
        SLOW = [2]

        @property
        def twice(self) -> Any:
            return self.value * 2

    return lambda t: (t * Mode.FAST.value, Mode.FAST.name, Mode.FAST.twice, f"{Mode.FAST!r}", len(Mode.SLOW.value)), (
        lambda: setattr(Mode.FAST, "_value_", 7),
        lambda: setattr(Mode.FAST, "_name_", "QUICK"),
        lambda: Mode.SLOW.value.append(3),
        lambda: setattr(Mode, "twice", property(lambda self: 50)),
        lambda: setattr(Mode, "value", property(lambda self: 4)),
    )


def enum_methods() -> Program:
    class Order(enum.Enum):
        LOW = 1
        HIGH = 2

        def __lt__(self, other: Order) -> bool:
            return bool(rising[0])

    rising = [True]
    return lambda t: (t, Order.LOW < Order.HIGH, Order.LOW == Order.HIGH, Order.LOW != Order.HIGH, str(Order.LOW)), (
        lambda: rising.insert(0, False),
        lambda: setattr(Order, "__eq__", lambda self, other: True),
        lambda: setattr(Order, "__str__", lambda self: "low"),
        lambda: setattr(Order, "__lt__", lambda self, other: 5),
    )


def enum_members() -> Program:
    class Mode(enum.Enum):
        FAST = 1
        SLOW = 2

    def ask(t: torch.Tensor) -> tuple[object, ...]:
        return t, Mode(1).name, Mode["FAST"].name, [mode.name for mode in Mode], len(Mode)

    return ask, (
        lambda: Mode._value2member_map_.update({1: Mode.SLOW}),
        lambda: Mode._member_map_.update(FAST=Mode.SLOW),
        lambda: Mode._member_names_.pop(),
    )


def flags() -> Program:
    class Wanted(enum.Flag):
        SHAPE = 1
        DTYPE = 2

    return lambda t: (t * (Wanted.SHAPE | Wanted.DTYPE).value, Wanted.SHAPE in Wanted.SHAPE | Wanted.DTYPE), (
        lambda: setattr(Wanted.SHAPE, "_value_", 2),
        lambda: setattr(Wanted, "__or__", lambda self, other: Wanted.DTYPE),
    )


def enum_missing() -> Program:
    class Mode(enum.Enum):
        FAST = 1

        @classmethod
        def _missing_(cls, value: object) -> Any:
            asked.append(value)
            return cls.FAST

    asked: list[object] = []
    return lambda t: (t, Mode(5).name, len(asked)), (lambda: None,)


def named_tuple_fields() -> Program:
    class Point(typing.NamedTuple):
        x: int
        y: int = 3

        def total(self) -> int:
            return self.x + self.y

    point = Point(1)

    def ask(t: torch.Tensor) -> tuple[object, ...]:
        made = Point(5)
        return t * point.x, point.total(), made.y, made._fields, made._replace(x=4).x, point[0], len(point), *made

    return ask, (
        lambda: setattr(Point, "x", property(lambda self: 9)),
        lambda: setattr(Point, "x", Point.__dict__["y"]),
        lambda: setattr(Point.__new__, "__defaults__", (50,)),
        lambda: setattr(Point, "_fields", ("a", "b")),
        lambda: setattr(Point, "__getitem__", lambda self, position: 77),
        lambda: setattr(Point, "__new__", lambda cls, x: tuple.__new__(cls, (x, 60))),
    )


def named_tuple_methods() -> Program:
    class Point(typing.NamedTuple):
        x: int
        y: int

        def __getitem__(self, position: Any) -> Any:
            return 99

        def __len__(self) -> int:
            return 1

        def __add__(self, other: Any) -> Any:
            return 7

    point = Point(1, 2)
    return lambda t: (t * point.x, point[0], len(point), point + (1,)), (
        lambda: setattr(Point, "__len__", lambda self: 2),
    )


def cached_property_and_slots() -> Program:
    class Thing:
        __slots__ = ("__dict__", "size")

        def __init__(self) -> None:
            self.size = 1

        @functools.cached_property
        def cached(self) -> int:
            return 2

    return lambda t: (t * Thing().size, Thing().cached), (
        lambda: setattr(Thing.__dict__["cached"], "func", lambda self: 5),
        lambda: setattr(Thing, "size", property(lambda self: 88, lambda self, value: None)),
        lambda: setattr(Thing, "cached", property(lambda self: 9)),
    )


def methods_in_c_by_their_class() -> Program:
    class Items(list[Any]): ...

    def ask(t: torch.Tensor) -> tuple[object, ...]:
        items = Items()
        Items.append(items, t + 1)
        return (*items,)

    return ask, (lambda: setattr(Items, "append", lambda self, item: self.extend([item, item])),)


def behind_a_class() -> Program:
    class Base:
        factor = 2
        append = list.append

        @property
        def size(self) -> int:
            return 3

    class Derived(Base):
        @classmethod
        def ask(cls, t: torch.Tensor) -> tuple[object, ...]:
            found = super()
            return t * found.factor, found.__self__ is cls, found.append is list.append, type(found.size).__name__

    return lambda t: Derived.ask(t), (lambda: setattr(Base, "factor", 5), lambda: setattr(Base, "size", 7))


def methods_of_modules() -> Program:
    class Derived(torch.nn.ReLU): ...

    module = Derived()
    return lambda t: (module(t - 1),), (
        lambda: setattr(Derived, "forward", lambda self, t: t * 3),
        lambda: setattr(Derived, "_call_impl", lambda self, t: t * 4),
        lambda: setattr(Derived, "__call__", lambda self, t: t * 5),
    )


def test_another_stream_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", first)
    compiled = armature.compile(lambda t: (t + 1, sys.stdout is first), backend="eager", fullgraph=True)
    assert compiled(torch.ones(2))[1]
    monkeypatch.setattr(sys, "stdout", second)
    assert not compiled(torch.ones(2))[1]


@pytest.mark.parametrize(
    "program",
    [
        enum_name_and_value,
        enum_methods,
        enum_members,
        flags,
        enum_missing,
        named_tuple_fields,
        named_tuple_methods,
        cached_property_and_slots,
        methods_in_c_by_their_class,
        behind_a_class,
        methods_of_modules,
    ],
    ids=lambda program: program.__name__,
)
def test_a_change_is_seen(program: Any) -> None:
    like_eager(program)


def test_fields_of_named_tuples_are_in_one_graph() -> None:
    Point = collections.namedtuple("Point", "x y", defaults=(2,))
    x = torch.arange(3.0)
    run = armature.compile(lambda t: t * Point(t + 1).y + Point(t).x, backend="eager", fullgraph=True)
    assert torch.equal(run(x), x * 2 + x)


@pytest.fixture
def autocast_settings() -> Iterator[None]:
    before = torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()
    yield
    torch.set_autocast_dtype("cpu", before[0])
    torch.set_autocast_cache_enabled(before[1])


def plain(t: torch.Tensor) -> object:
    with torch.autocast("cpu"):
        return (t @ t).dtype, torch.is_autocast_cache_enabled()


def asked(t: torch.Tensor) -> object:
    return (t @ t).dtype, torch.get_autocast_dtype("cpu"), torch.get_autocast_cpu_dtype()


def nested(t: torch.Tensor) -> object:
    with torch.autocast("cpu", torch.float16), torch.autocast("cpu"):
        return (t @ t).dtype


@torch.autocast("cpu")
def decorated(t: torch.Tensor) -> object:
    return (t @ t).dtype


@pytest.mark.parametrize("function", [plain, asked, nested, decorated], ids=lambda function: function.__name__)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_autocast_takes_the_dtype_of_now(function: Any, autocast_settings: None) -> None:
    def outcomes(run: Any) -> list[object]:
        torch.set_autocast_dtype("cpu", torch.bfloat16)
        torch.set_autocast_cache_enabled(True)
        found = [run(torch.ones(2, 2))]
        torch.set_autocast_dtype("cpu", torch.float16)
        found.append(run(torch.ones(2, 2)))
        torch.set_autocast_cache_enabled(False)
        return [*found, run(torch.ones(2, 2))]

    expected = outcomes(function)
    compiled = armature.compile(lambda t: (t + 1, function(t)), backend="eager", fullgraph=True)
    assert outcomes(lambda t: compiled(t)[1]) == expected


def test_autocast_inside_autocast_is_compiled_once() -> None:
    graphs = []

    def backend(graph: Any, inputs: object) -> Any:
        graphs.append(graph)
        return graph

    run = armature.compile(lambda t: (t + 1, nested(t)), backend=backend, fullgraph=True)
    for _ in range(2):
        assert run(torch.ones(2, 2))[1] == torch.float16
    assert len(graphs) == 1
