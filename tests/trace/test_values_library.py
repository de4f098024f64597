"""Types and functions of the standard library and of attrs that programs use around tensors."""

# ruff: noqa: B019, RUF015, UP007, UP042, UP045 - it is what is tested

from __future__ import annotations

import abc
import collections
import copy
import dataclasses
import enum
import functools
import inspect
import itertools
import numbers
import operator
import random
import types
import typing
import weakref
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Optional, TypedDict, Union

import attrs
import pytest
import torch

import armature
from tests.support.tracing import check, programs, trace

X = torch.linspace(-1.0, 1.0, 6).reshape(2, 3)
T = typing.TypeVar("T")


class Pair(NamedTuple):
    left: Any
    right: Any = 2

    @property
    def total(self) -> Any:
        return self.left + self.right


Old = collections.namedtuple("Old", "a b", defaults=[7])


def named_tuples(t):
    p, q = Pair(t), Old(1, b=t)
    return (
        p,
        p.total,
        p[1],
        p._replace(right=3),
        p._fields,
        q,
        q.a,
        Old(5),
        p == Pair(t, 2),
        len(q),
        Old._make([1, 2]),
        q._asdict()["a"],
        Pair(1)._asdict(),
        isinstance(p, tuple),
        [*q][0],
        Pair._fields,
        p.left is t,
    )


@dataclasses.dataclass
class Config:
    width: int = 3
    scale: float = 0.5
    names: list[str] = dataclasses.field(default_factory=list)
    hidden: Any = dataclasses.field(default=None, repr=False, compare=False)
    kind: ClassVar[str] = "config"

    def __post_init__(self) -> None:
        self.area = self.width * 2


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    n: int
    m: int = 1


@dataclasses.dataclass
class Child(Config):
    depth: int = 1


@dataclasses.dataclass(slots=True, kw_only=True)
class Slotted:
    a: Any
    b: int = 0


def data_classes(t):
    c = Config(4, names=["a"])
    c.names.append("b")
    c.scale *= 2
    child = Child(depth=2)
    s = Slotted(a=t)
    s.b += 1
    return (
        t * c.scale, c.names, c.area, c.kind, child.width, child.depth, Frozen(1) == Frozen(1), Frozen(1) < Frozen(2), s.a, s.b, repr(Frozen(1)),
        [f.name for f in dataclasses.fields(c)], dataclasses.asdict(Frozen(3)), dataclasses.replace(Frozen(1), n=5).n, dataclasses.is_dataclass(c),
        dataclasses.astuple(Frozen(1)), Config() == Config(), {Frozen(1): "k"}[Frozen(1)], hash(Frozen(1)) == hash(Frozen(1)), Config(1) == Config(2),
    )  # fmt: skip


def frozen_data_class(t):
    f = Frozen(1)
    try:
        f.n = 2
    except dataclasses.FrozenInstanceError as error:
        return t, str(error), f.n


@attrs.define
class Attrs:
    a: Any
    b: int = attrs.field(default=2, converter=int)
    items: list[int] = attrs.field(factory=list)

    @b.validator
    def _positive(self, attribute: Any, value: int) -> None:
        if value < 0:
            raise ValueError("negative")


@attrs.frozen
class AttrsFrozen:
    a: int
    b: int = 1


def attrs_classes(t):
    v = Attrs(t, "5")
    v.items.append(v.b)
    v.a = v.a * 2
    f = AttrsFrozen(1)
    return (
        v.a,
        v.b,
        v.items,
        f.a + f.b,
        f == AttrsFrozen(1),
        attrs.evolve(f, a=3).a,
        [a.name for a in attrs.fields(AttrsFrozen)],
        attrs.asdict(f),
        {f: 1}[AttrsFrozen(1)],
    )


def attrs_validators(t):
    try:
        Attrs(t, -1)
    except ValueError as error:
        return t, str(error)


class Color(enum.Enum):
    RED = 1
    BLUE = "b"

    @property
    def loud(self) -> str:
        return self.name.upper() + "!"

    @classmethod
    def first(cls) -> Color:
        return cls.RED


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()


class Word(str, enum.Enum):
    HI = "hi"


class Mode(enum.StrEnum):
    FAST = "fast"


def enums(t):
    return (
        t * Level.HIGH, Level.LOW < Level.HIGH, Color.RED.value, Color.BLUE.loud, Color("b") is Color.BLUE, Color["RED"], Color.first(), [c.name for c in Color], len(Color),
        (Flags.A | Flags.B).value, Flags.A in (Flags.A | Flags.B), Word.HI == "hi", Word.HI.upper(), Mode.FAST, f"{Mode.FAST}", str(Color.RED), repr(Level.LOW), {Color.RED: 1}[Color.RED],
        Color.RED == Color.RED, Color.RED != Color.BLUE, isinstance(Color.RED, Color), Color.RED in Color, list(Level), Level.HIGH + 1, Level(3), Color.RED in (Color.RED,), hash(Color.RED) == hash(Color.RED),
        list(Color.__members__), type(Level.LOW).__name__, Level.HIGH.real, Flags.A | Flags.B,
    )  # fmt: skip


def enum_errors(t):
    try:
        Color(5)
    except ValueError as error:
        return t, str(error)


def ordered_dicts(t):
    d = collections.OrderedDict([("a", 1), ("b", t)])
    d["c"] = 3
    d.move_to_end("a")
    first = d.popitem(last=False)
    return (
        d,
        first,
        list(d),
        next(iter(d.items()))[0],
        d == collections.OrderedDict(c=3, a=1),
        list(reversed(d)),
        collections.OrderedDict(a=1, b=2) == collections.OrderedDict(b=2, a=1),
        collections.OrderedDict(a=1) == {"a": 1},
    )


def default_dicts(t):
    d = collections.defaultdict(list)
    d["a"].append(t)
    d["a"].append(1)
    n = collections.defaultdict(int, z=5)
    for c in "abca":
        n[c] += 1
    nested = collections.defaultdict(lambda: collections.defaultdict(int))
    nested["x"]["y"] += 2
    return d["a"], dict(n), "q" in n, n.get("q"), len(n), nested["x"]["y"], d.default_factory is list, n


def deques(t):
    q = collections.deque([1, 2, 3], maxlen=3)
    q.append(t)
    q.appendleft(0)
    q.rotate(1)
    r = collections.deque("ab")
    r.extend("cd")
    r.extendleft("xy")
    last, first = r.pop(), r.popleft()
    r.insert(1, "i")
    r.remove("a")
    r[0] = "z"
    return (
        list(q),
        q.maxlen,
        len(r),
        last,
        first,
        list(r),
        "b" in r,
        r[0],
        list(reversed(r)),
        r.count("b"),
        bool(collections.deque()),
        r.index("b"),
        collections.deque([1]) == collections.deque([1]),
        r,
    )


def counters(t):
    c = collections.Counter("abcab")
    c.update("a")
    c["z"] -= 1
    return (
        t * c["a"],
        c.most_common(2),
        c["missing"],
        sorted(c.elements()),
        (c + collections.Counter(a=1))["a"],
        (c - collections.Counter(a=5))["a"],
        c.total(),
        dict(c),
        sum(c.values()),
        len(c),
    )


def chain_maps(t):
    m = collections.ChainMap({"a": 1}, {"a": 2, "b": t})
    m["c"] = 3
    child = m.new_child({"a": 9})
    return m["a"], m["b"], "c" in m, len(m), child["a"], sorted(m), m.maps[0], m.get("zz", 5), m.parents["a"]


class Stack(collections.UserDict):
    """A mapping written in Python."""


def user_dicts(t):
    s = Stack(a=1)
    s["b"] = t
    return s["a"], len(s), "b" in s, list(s), s.get("q", 3)


def iterator_tools(t):
    return (
        list(itertools.chain([1], "a")), list(itertools.accumulate([1, 2, 3])), list(itertools.combinations("abc", 2)), list(itertools.islice(range(9), 1, 8, 3)),
        list(itertools.groupby("aab"))[0][0], [(k, list(g)) for k, g in itertools.groupby([1, 1, 2])], list(itertools.zip_longest([1], [2, 3])), list(itertools.product("ab", repeat=2)),
        list(itertools.repeat(t, 2)), list(itertools.takewhile(lambda v: v < 2, range(5))), list(itertools.starmap(pow, [(2, 3)])), list(itertools.pairwise([1, 2, 3])), next(itertools.count(5)),
        list(itertools.compress("abc", [1, 0, 1])), list(itertools.permutations([1, 2])), [list(i) for i in itertools.tee([1, 2])], list(itertools.islice(itertools.cycle("ab"), 3)),
        list(itertools.combinations_with_replacement("ab", 2)), list(itertools.chain.from_iterable([[1], [2]])), list(itertools.filterfalse(None, [0, 1])), list(itertools.dropwhile(bool, [1, 0, 1])),
        list(itertools.accumulate([t, t], lambda a, b: a * b)), {k: len(list(g)) for k, g in itertools.groupby(sorted("abab"))},
    )  # fmt: skip


@functools.cache
def cached_scale(n: int) -> int:
    return n * 2


@functools.cache
def cached_table(n: int) -> tuple[int, ...]:
    return tuple(range(n))


@functools.singledispatch
def describe(v: Any) -> str:
    return "any"


@describe.register
def _(v: int) -> str:
    return "int"


@describe.register(list)
def _(v: list[Any]) -> str:
    return f"list of {len(v)}"


@describe.register(torch.Tensor)
def _(v: torch.Tensor) -> str:
    return "tensor"


class Lazy:
    def __init__(self, n: int) -> None:
        self.n, self.calls = n, 0

    @functools.cached_property
    def squared(self) -> int:
        self.calls += 1
        return self.n**2

    @functools.lru_cache
    def cubed(self) -> int:
        return self.n**3

    @functools.partialmethod
    def none(self) -> None:
        return None

    def scale(self, by: int, plus: int = 0) -> int:
        return self.n * by + plus

    double = functools.partialmethod(scale, 2)

    @functools.singledispatchmethod
    def show(self, v: Any) -> str:
        return "other"

    @show.register
    def _(self, v: str) -> str:
        return "text " + v


@functools.total_ordering
class Version:
    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.n == other.n

    def __lt__(self, other: Version) -> bool:
        return self.n < other.n


def function_tools(t):
    add = functools.partial(torch.add, alpha=2)
    nested = functools.partial(functools.partial(pow, 2), 3)
    lazy = Lazy(3)
    return (
        add(t, t), nested(), functools.reduce(lambda a, b: a + b, [1, 2, 3], t), cached_scale(4), cached_table(3), describe(1), describe([1]), describe(t), describe("s"),
        lazy.squared, lazy.squared, lazy.calls, lazy.cubed(), lazy.double(), lazy.double(plus=1), lazy.show("x"), lazy.show(1), Version(1) >= Version(1), Version(2) > Version(1), Version(1) <= Version(0),
        add.keywords, add.func is torch.add, sorted([3, 1], key=functools.cmp_to_key(lambda a, b: a - b)), functools.partial(lambda a, b: a - b, b=1)(5), add.args,
    )  # fmt: skip


def partial_with_keywords_updated(t):
    def fn(a, b=1, *, c=2):
        return a * b + c

    return (
        functools.partial(fn, b=3)(t, c=4),
        functools.partial(fn, t)(2),
        functools.partial(functools.partial(fn, b=1), b=5)(t),
    )


def copies(t):
    nest = {"a": [1, {"b": t}], "c": (1, 2)}
    shallow, deep = copy.copy(nest), copy.deepcopy(nest["a"][0])
    shallow["d"] = 1
    nest["a"].append(2)
    other = copy.copy(Config(9))
    other.width = 1
    return (
        shallow,
        deep,
        nest,
        other.width,
        copy.copy([1, 2]),
        copy.deepcopy([1, [2]]),
        copy.deepcopy({"k": [1]}),
        copy.copy((1,)),
        copy.copy({1, 2}),
        copy.deepcopy("s"),
        copy.copy(None),
    )


def deep_copies_of_objects(t):
    a = Config(2, names=["x"])
    b = copy.deepcopy(a)
    b.names.append("y")
    return t, a.names, b.names, b.width, type(b) is Config, copy.deepcopy(Frozen(3)).n


def deep_copies_keep_sharing(t):
    shared = [1]
    a, b = copy.deepcopy([shared, shared])
    a.append(2)
    return t, b, shared


def simple_namespaces(t):
    n = types.SimpleNamespace(a=1, t=t)
    n.b = n.a + 1
    del n.a
    return (
        n.t * n.b,
        hasattr(n, "a"),
        vars(n)["b"],
        types.SimpleNamespace(x=1) == types.SimpleNamespace(x=1),
        n.__dict__.keys() == {"t", "b"},
    )


def mapping_proxies(t):
    d = {"a": 1}
    m = types.MappingProxyType(d)
    d["b"] = t
    return m["a"], m["b"], len(m), list(m), m.get("q"), "a" in m, dict(m)


class Options(TypedDict, total=False):
    width: int


def typing_helpers(t):
    o = Options(width=3)
    v = typing.cast(torch.Tensor, t)
    value: Optional[int] = typing.cast("int", 3)
    return (
        v * o["width"],
        value,
        typing.TYPE_CHECKING,
        isinstance([], list),
        typing.get_origin(list[int]) is list,
        typing.get_args(dict[str, int]),
        typing.Any is Any,
        list[int] == list[int],
        isinstance(1, Union[int, str]),
        typing.get_origin(Optional[int]) is Union,
        typing.get_type_hints(Options) == {"width": int},
    )


def typing_forms_not_made_before(t):
    """Classes of hints that count, collect and cache their parameters by code of their own."""
    pair = typing.cast(typing.Tuple[int, complex], (1, 2))  # noqa: UP006 - what is tested
    either = typing.cast(Union[bytes, typing.Tuple[bytes, ...]], b"")  # noqa: UP006
    mode = typing.cast(typing.Literal["same", "valid"], "same")
    return t * pair[0], either, mode, typing.get_args(typing.Tuple[()]) == ()  # noqa: UP006


class Box(typing.Generic[T]):
    def __init__(self, v: T) -> None:
        self.v = v


@typing.runtime_checkable
class HasArea(typing.Protocol):
    def area(self) -> int: ...


class Square(abc.ABC):
    @abc.abstractmethod
    def area(self) -> int: ...


class Unit(Square):
    def area(self) -> int:
        return 1


def generics_and_protocols(t):
    b = Box[int](3)
    return (
        t * b.v,
        isinstance(Unit(), HasArea),
        isinstance(3, HasArea),
        Unit().area(),
        isinstance(Unit(), Square),
        isinstance({}, Mapping),
        isinstance(1, numbers.Number),
        isinstance([], collections.abc.Sequence),
        isinstance(len, Callable),
        issubclass(list, collections.abc.Iterable),
    )


def abstract_class(t):
    try:
        Square()
    except TypeError as error:
        return t, "abstract" in str(error)


def own_random_generator(t):
    r = random.Random(3)
    return t * r.random(), r.randint(1, 10), r.choice([1, 2, 3]), r.uniform(0, 1), r.sample(range(10), 3)


def signatures(t):
    def fn(a, b=1, *args, c, **kw):
        return a

    return (
        t,
        list(inspect.signature(fn).parameters),
        inspect.signature(helper).parameters["b"].default,
        "c" in inspect.signature(fn).parameters,
        inspect.isfunction(fn),
        inspect.isclass(Config),
        inspect.ismethod(Unit().area),
        callable(fn),
    )


def helper(a: Any, b: int = 4) -> Any:
    return a * b


def signature_filters(t):
    given = {"a": t, "b": 3, "unknown": 1}
    wanted = {k: v for k, v in given.items() if k in inspect.signature(helper).parameters}
    return helper(**wanted)


class Node:
    def __init__(self, v: Any, parent: Any = None) -> None:
        self.v = v
        self.parent = None if parent is None else weakref.ref(parent)


def weak_references(t):
    root = Node(t)
    leaf = Node(1, root)
    return leaf.parent().v, leaf.parent() is root, root.parent


def hashes(t):
    return (
        hash("a") == hash("a"),
        hash((1, "b")) == hash((1, "b")),
        hash(Frozen(1)) == hash(Frozen(1)),
        hash(None) == hash(None),
        hash(True),
        t,
        hash(frozenset([1])) == hash(frozenset([1])),
        hash(1.5),
    )


NOT_YET: dict[str, str] = {}


@pytest.mark.parametrize("program", programs(globals(), NOT_YET))
def test_like_eager(program: Callable[..., Any]) -> None:
    check(program, X)


def test_writing_to_a_mapping_proxy_is_left_to_python() -> None:
    def fn(t):
        proxy = types.MappingProxyType({"b": t * 2})
        try:
            proxy["c"] = 1
        except TypeError as error:
            return proxy["b"] + 1, str(error)

    found, expected = armature.compile(fn, backend="eager")(X), fn(X)
    assert torch.equal(found[0], expected[0]) and found[1] == expected[1]


ROOT = Node(X)
LEAF = Node(2, ROOT)


def test_weak_reference_of_the_caller() -> None:
    def fn(t):
        return LEAF.parent().v * t

    traced = check(fn, X)
    assert traced.holds(fn, X)


def reads_config(t, c):
    return (
        t * c.width + c.scale,
        len(c.names),
        c == Config(3),
        dataclasses.replace(c, width=9).width,
        getattr(c, "nope", 1),
        c.area,
    )


def reads_named_tuple(t, p):
    return p.left * t + p.right, p[0], p._replace(left=1).left, len(p), p.total


def reads_enum(t, c):
    return t * 2 if c is Color.RED else t, c.name, c == Color.BLUE, c.loud


def reads_attrs(t, v):
    v.items.append(3)
    return t * v.b + v.a, v.items


def reads_namespace(t, n):
    n.count += 1
    return t * n.count


def reads_deque(t, q):
    q.append(t.dim())
    q.popleft()
    return t * q[0], len(q), list(q)


def reads_counter(t, c):
    c["a"] += 2
    return t * c["a"], c["zz"], c.most_common(1)


def reads_chain_map(t, m):
    return t * m["a"], "b" in m, len(m)


def reads_default_dict(t, d):
    d["new"].append(t)
    return len(d), sorted(d), d["old"]


def reads_ordered_dict(t, d):
    d["z"] = t
    d.move_to_end("a")
    return list(d), d["b"]


def reads_partial(t, fn):
    return fn(t), fn.func(t, 1), fn.keywords


def reads_proxy(t, m):
    return t * m["a"], list(m), len(m)


def counts_calls(t, lazy):
    return t * lazy.squared, lazy.calls, lazy.double(), lazy.cubed()


@pytest.mark.parametrize(
    ("program", "make"),
    [
        (reads_config, lambda: Config(names=["q"])), (reads_named_tuple, lambda: Pair(X)), (reads_enum, lambda: Color.RED), (reads_attrs, lambda: Attrs(1, 3)),
        (reads_namespace, lambda: types.SimpleNamespace(count=1)), (reads_deque, lambda: collections.deque([1, 2], maxlen=4)), (reads_counter, lambda: collections.Counter("aab")),
        (reads_chain_map, lambda: collections.ChainMap({"a": 1}, {"b": 2})), (reads_default_dict, lambda: collections.defaultdict(list, old=[1])),
        (reads_ordered_dict, lambda: collections.OrderedDict(a=1, b=2)), (reads_partial, lambda: functools.partial(helper, b=5)), (counts_calls, lambda: Lazy(3)),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)  # fmt: skip
def test_objects_of_the_caller(program: Callable[..., Any], make: Callable[[], Any]) -> None:
    check(program, X, make())


def test_mapping_proxy_of_the_caller() -> None:
    table = types.MappingProxyType({"a": 2, "b": 1})

    def fn(t):
        return reads_proxy(t, table)

    check(fn, X)


def test_random_numbers_of_the_process() -> None:
    def fn(t):
        return t * random.random(), random.randint(0, 10), random.choice([1, 2, 3])

    try:
        traced = trace(fn, X)
    except Exception as stop:  # a break, with nothing drawn
        state = random.getstate()
        with pytest.raises(type(stop)):
            trace(fn, X)
        assert random.getstate() == state
        return
    random.seed(1)
    mine = traced.run(X)
    random.seed(1)
    eager = fn(X)
    assert torch.equal(mine[0], eager[0])
    assert mine[1:] == eager[1:]


@pytest.mark.parametrize(
    "change",
    [lambda q: q["a"], lambda q: operator.setitem(q, [1], 2), lambda q: operator.delitem(q, "a"), lambda q: q.pop(0)],
)
def test_wrong_indices_of_deques(change: Callable[[Any], Any]) -> None:
    def program(t):
        q = collections.deque([1, 2])
        try:
            change(q)
        except TypeError as error:
            return t + len(q), str(error)

    compiled = armature.compile(program, backend="eager")
    assert str(compiled(torch.ones(1))) == str(program(torch.ones(1)))
