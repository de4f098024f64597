"""How a tensor reaches a frame: by each of these ways the frame is compiled, or there is a record that says why not.

Each frame is one of its own: a generator calls it, whose frame is never traced.
"""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import enum
import functools
import importlib
import itertools
import operator
import threading
import types
import typing
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import armature
from armature.pipeline.session import Outcome, session

X = torch.arange(3.0)
Pair = collections.namedtuple("Pair", ("tensor", "number"))


class Typed(typing.NamedTuple):
    tensor: Any
    number: int


class Slots:
    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


@dataclasses.dataclass
class Data:
    tensor: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    tensor: Any


@attrs.define
class Attrs:
    tensor: Any


class Plain:
    shared: Any = None

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    @property
    def by_property(self) -> Any:
        return self.tensor

    @functools.cached_property
    def kept(self) -> Any:
        return self.tensor

    def by_method(self) -> Any:
        return self.tensor

    @classmethod
    def by_class(cls) -> Any:
        return cls.shared


class Asking:
    def __init__(self, tensor: Any) -> None:
        self.held = {"tensor": tensor}

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["held"][name]


class Registered:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


pytree.register_pytree_node(Registered, lambda r: ([r.tensor], None), lambda parts, _: Registered(*parts))


class OwnList(list[Any]):
    pass


class OwnDict(dict[str, Any]):
    pass


class OwnTuple(tuple[Any, ...]):
    __slots__ = ()


class Member(enum.Enum):
    TENSOR = X


CONTEXT: contextvars.ContextVar[Any] = contextvars.ContextVar("CONTEXT")
LOCAL = threading.local()
GLOBAL: Any = None
HELD: dict[str, Any] = {}


def in_class(x: Any) -> Any:
    class Made(Plain):
        shared = x

    return Made


def in_global(x: Any) -> None:
    globals()["GLOBAL"] = x
    HELD["tensor"] = x


def in_context(x: Any) -> None:
    CONTEXT.set(x)
    LOCAL.tensor = x


def generated(x: Any) -> Iterator[Any]:
    yield x


def closing_over(x: Any) -> Callable[[], Any]:
    return lambda: x


def by_default(x: Any) -> Callable[[], Any]:
    def read(tensor: Any = x) -> Any:
        return tensor

    return read


def by_keyword_default(x: Any) -> Callable[[], Any]:
    def read(*, tensor: Any = x) -> Any:
        return tensor

    return read


def nested(x: Any) -> Any:
    for _ in range(6):
        x = [x]
    return x


def unnested(held: Any) -> Any:
    while type(held) is list:
        held = held[0]
    return held


attribute = operator.attrgetter("tensor")
item = operator.itemgetter(0)
by_key = operator.itemgetter("a")


def called(held: Any) -> Any:
    return held()


KEY = Plain(0)

# How the tensor is held, and how it is read from there.
WAYS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "itself": (lambda x: x, lambda held: held),
    "list": (lambda x: [x], lambda held: held[0]),
    "tuple": (lambda x: (x,), lambda held: held[0]),
    "dict": (lambda x: {"a": x}, lambda held: held["a"]),
    "set": (lambda x: {x}, lambda held: next(iter(held))),
    "frozenset": (lambda x: frozenset({x}), lambda held: next(iter(held))),
    "list of its own": (lambda x: OwnList([x]), lambda held: held[0]),
    "dict of its own": (lambda x: OwnDict(a=x), lambda held: held["a"]),
    "tuple of its own": (lambda x: OwnTuple([x]), lambda held: held[0]),
    "six lists": (nested, lambda held: unnested(held)),
    "namedtuple": (lambda x: Pair(x, 1), lambda held: held.tensor),
    "typed namedtuple": (lambda x: Typed(x, 1), lambda held: held.tensor),
    "namedtuple in a list": (lambda x: [Pair([x], 1)], lambda held: held[0].tensor[0]),
    "return type": (lambda x: torch.max(x.reshape(1, -1), 0) if torch.is_tensor(x) else (x,), lambda held: held[0]),
    "deque": (lambda x: collections.deque([x]), lambda held: held[0]),
    "ordered dict": (lambda x: collections.OrderedDict(a=x), lambda held: held["a"]),
    "defaultdict": (lambda x: collections.defaultdict(list, a=x), lambda held: held["a"]),
    "chain map": (lambda x: collections.ChainMap({}, {"a": x}), lambda held: held["a"]),
    "user dict": (lambda x: collections.UserDict({"a": x}), lambda held: held["a"]),
    "user list": (lambda x: collections.UserList([x]), lambda held: held[0]),
    "slots": (Slots, lambda held: held.tensor),
    "dataclass": (Data, lambda held: held.tensor),
    "frozen dataclass": (Frozen, lambda held: held.tensor),
    "attrs": (Attrs, lambda held: held.tensor),
    "namespace": (lambda x: types.SimpleNamespace(tensor=x), lambda held: held.tensor),
    "mapping proxy": (lambda x: types.MappingProxyType({"a": x}), lambda held: held["a"]),
    "exception": (ValueError, lambda held: held.args[0]),
    "object": (Plain, lambda held: held.tensor),
    "property": (Plain, lambda held: held.by_property),
    "cached property": (Plain, lambda held: held.kept),
    "method": (lambda x: Plain(x).by_method, lambda held: held()),
    "class attribute": (in_class, lambda held: held.shared),
    "class method": (lambda x: in_class(x).by_class, lambda held: held()),
    "__getattr__": (Asking, lambda held: held.tensor),
    "pytree": (Registered, lambda held: pytree.tree_leaves(held)[0]),
    "partial": (lambda x: functools.partial(operator.pos, x), lambda held: held()),
    "partial's arguments": (lambda x: functools.partial(operator.pos, x), lambda held: held.args[0]),
    "closure": (closing_over, lambda held: held()),
    "default": (by_default, lambda held: held()),
    "keyword default": (by_keyword_default, lambda held: held()),
    "cell": (lambda x: types.CellType(x), lambda held: held.cell_contents),
    "list iterator": (lambda x: iter([x]), lambda held: next(held)),
    "tuple iterator": (lambda x: iter((x,)), lambda held: next(held)),
    "dict values": (lambda x: {"a": x}.values(), lambda held: next(iter(held))),
    "reversed": (lambda x: reversed([x]), lambda held: next(held)),
    "map": (lambda x: map(operator.pos, [x]), lambda held: next(held)),
    "zip": (lambda x: zip([x], [1]), lambda held: next(held)[0]),
    "enumerate": (lambda x: enumerate([x]), lambda held: next(held)[1]),
    "chain": (lambda x: itertools.chain([x]), lambda held: next(held)),
    "generator": (generated, lambda held: next(held)),
    "weak reference": (lambda x: weakref.ref(held_by_test(x)), lambda held: held().tensor),
    "weak value dictionary": (lambda x: weakref.WeakValueDictionary(a=held_by_test(x)), lambda held: held["a"].tensor),
    "weak key dictionary": (lambda x: weakref.WeakKeyDictionary({KEY: x}), lambda held: held[KEY]),
    "global": (in_global, lambda held: GLOBAL),
    "container in a global": (in_global, lambda held: HELD["tensor"]),
    "context variable": (in_context, lambda held: CONTEXT.get()),
    "thread local": (in_context, lambda held: LOCAL.tensor),
    "array": (lambda x: x.numpy() if torch.is_tensor(x) else np.array(x), lambda held: held),
    "array as a tensor": (lambda x: x.numpy() if torch.is_tensor(x) else np.array(x), torch.from_numpy),
}


def held_by_test(x: Any) -> Plain:
    HELD["object"] = Plain(x)
    return HELD["object"]


def pass_on(held: Any, read: Callable[[Any], Any]) -> Any:
    return compute(held, read)


def compute(held: Any, read: Callable[[Any], Any]) -> Any:
    return read(held) * 2 + 1


def in_a_frame(fn: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[Any]:
    yield fn(*args)


def call_in_a_frame(fn: Callable[..., Any], *args: Any) -> Any:
    """The result of a call whose frame is looked at by itself."""
    return contextvars.copy_context().run(list, in_a_frame(fn, args))[0]


def same(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray):
        return isinstance(second, np.ndarray) and bool((first == second).all())
    return type(first) is type(second) and torch.equal(torch.as_tensor(first), torch.as_tensor(second))


def told(fn: Callable[..., Any]) -> tuple[bool, set[str]]:
    """Whether the whole function was compiled in one graph, and the records of why it was not."""
    place = (fn.__qualname__, fn.__code__.co_filename)
    records = [c for c in session().compilations if (c.function, c.file) == place]
    whole = any(c.outcome is Outcome.COMPILED and c.module is not None and not c.breaks for c in records)
    reasons = {event.type.id for c in records for event in c.breaks} | {c.reason for c in records if c.reason}
    return whole, reasons | {s.reason for s in session().skips if (s.function, s.file) == place}


# In pieces, and the break that is on record.
BREAKS = {
    "cell": "attribute-of-value",
    "chain": "next-of-iterator",
    "generator": "next-of-iterator",
}


def expect(way: str, whole: bool, reasons: set[str]) -> None:
    """One graph, or pieces with a break."""
    why = BREAKS.get(way, "")
    assert whole != bool(why) and (whole or any(reason.startswith(why) for reason in reasons)), reasons
    assert session().totals().operators >= 2


@pytest.mark.parametrize("frame", [compute, pass_on])
@pytest.mark.parametrize("way", WAYS)
def test_a_frame_that_a_tensor_reaches_is_compiled(way: str, frame: Callable[..., Any]) -> None:
    give, read = WAYS[way]
    expected = call_in_a_frame(frame, give(X), read)
    compiled = armature.compile(call_in_a_frame, backend="eager")
    assert same(compiled(frame, give(X), read), expected)
    expect(way, *told(frame))


@pytest.mark.parametrize("way", WAYS)
def test_a_frame_that_numbers_reach_first_is_compiled_for_tensors(way: str) -> None:
    give, read = WAYS[way]
    compiled = armature.compile(call_in_a_frame, backend="eager")
    for value in (3, 3, 4, 5):
        given = give(value)
        assert same(compiled(compute, given, read), value * 2 + 1) or way.startswith("array")
    assert way.startswith("array") or not session().totals().operators, "numbers are left to Python"
    assert same(compiled(compute, give(X), read), X * 2 + 1) or way == "array"
    expect(way, *told(compute))


class Operators:
    ones = staticmethod(torch.ones)

    def __init__(self) -> None:
        self.make = torch.ones


def closing(op: Callable[..., Any]) -> Callable[[int], Any]:
    return lambda n: op(n) + n


def defaulting(n: int, op: Callable[..., Any] = torch.ones) -> Any:
    return op(n) + n


def only_by_keyword(n: int, *, op: Callable[..., Any] = torch.ones) -> Any:
    return op(n) + n


def of_argument(n: int, op: Callable[..., Any]) -> Any:
    return op(n) + n


def of_table(n: int, table: dict[str, Any]) -> Any:
    return table["ones"](n) + n


def of_object(n: int, held: Any) -> Any:
    return held.make(n) + n


def of_class(n: int) -> Any:
    return Operators.ones(n) + n


def of_library(n: int, library: Any) -> Any:
    return library.ones(n) + n


def looked_up(n: int) -> Any:
    return importlib.import_module("torch").ones(n) + n


def reduced(n: int, op: Callable[..., Any]) -> Any:
    return functools.reduce(lambda sum, _: sum + op(n), range(3), n)


def make_ones(n: int) -> Any:
    return torch.ones(n)


def of_helper(n: int) -> Any:
    return make_ones(n) + n


def of_helper_in_a_table(n: int) -> Any:
    return HELPERS["make"](n) + n


HELPERS = {"make": lambda n: make_ones(n)}

FACTORIES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "closure": (closing(torch.ones), ()),
    "closure over a helper": (closing(make_ones), ()),
    "default": (defaulting, ()),
    "keyword default": (only_by_keyword, ()),
    "argument": (of_argument, (torch.ones,)),
    "operator of the dispatcher": (of_argument, (lambda n: torch.ops.aten.ones([n]),)),
    "method of the class": (of_argument, (torch.Tensor.new_ones.__get__(X),)),
    "partial": (of_argument, (functools.partial(torch.ones, dtype=torch.float64),)),
    "table": (of_table, ({"ones": torch.ones},)),
    "object": (of_object, (Operators(),)),
    "class": (of_class, ()),
    "library": (of_library, (torch,)),
    "library looked up": (looked_up, ()),
    "reduced": (reduced, (torch.ones,)),
    "helper": (of_helper, ()),
    "helper in a table": (of_helper_in_a_table, ()),
}
# Not compiled: nothing shows that a call of the library makes tensors.
NOT_SEEN = {"library looked up": "it has met no tensor before a graph break"}


@pytest.mark.parametrize("way", FACTORIES)
def test_a_frame_that_is_given_numbers_and_makes_tensors_is_compiled(way: str) -> None:
    fn, more = FACTORIES[way]
    compiled = armature.compile(call_in_a_frame, backend="eager")
    for n in (2, 3, 3):
        assert same(compiled(fn, n, *more), call_in_a_frame(fn, n, *more))
    whole, reasons = told(fn)
    assert whole or any(reason.startswith(NOT_SEEN[way]) for reason in reasons), reasons
    assert whole == (session().totals().graphs > 0)
