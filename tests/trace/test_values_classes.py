"""Objects of user classes: attribute lookup, operators, inheritance, metaclasses, subclasses of builtin types."""

# ruff: noqa: B010, C416, PLC0415, SIM118, UP031 - it is what is tested

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.testing.differential import difference
from tests.support.resuming import resumes
from tests.support.tracing import check, programs

X = torch.linspace(-1.0, 1.0, 6).reshape(2, 3)


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a: Any) -> None:
        self.a = a


def slots(t):
    s = Slots(t)
    s.a = s.a + 1
    try:
        s.b
    except AttributeError as error:
        found = str(error)
    s.b = 1
    del s.b
    try:
        s.c = 3
    except AttributeError as error:
        return s.a, found, hasattr(s, "b"), str(error)


class Props:
    def __init__(self) -> None:
        self._v = 1

    @property
    def v(self) -> int:
        return self._v

    @v.setter
    def v(self, value: int) -> None:
        self._v = value * 10

    @v.deleter
    def v(self) -> None:
        self._v = -1

    @property
    def fixed(self) -> int:
        return 5


def properties(t):
    p = Props()
    p.v = 3
    first = p.v
    p.v += 1
    second = p.v
    del p.v
    try:
        p.fixed = 1
    except AttributeError as error:
        return t * first, second, p.v, str(error), Props.v.fget(p)


class Positive:
    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        return self if obj is None else getattr(obj, self.name)

    def __set__(self, obj: Any, value: int) -> None:
        if value < 0:
            raise ValueError(f"{self.name} is negative")
        setattr(obj, self.name, value)

    def __delete__(self, obj: Any) -> None:
        delattr(obj, self.name)


class NonData:
    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        return "class" if obj is None else "instance"


class Described:
    n = Positive()
    k = NonData()

    def __init__(self, n: int) -> None:
        self.n = n


def descriptors(t):
    d = Described(3)
    d.n += 1
    try:
        d.n = -1
    except ValueError as error:
        text = str(error)
    k = d.k
    d.__dict__["k"] = "own"
    value = d.n
    del d.n
    return t * value, text, k, d.k, Described.k, hasattr(d, "n"), isinstance(Described.n, Positive)


class Meta(type):
    registry: dict[str, type] = {}

    def __new__(mcs, name: str, bases: Any, namespace: Any) -> Any:
        made = super().__new__(mcs, name, bases, namespace)
        made.tag = name.lower()
        return made

    def __call__(cls, *args: Any) -> Any:
        made = super().__call__(*args)
        made.built_by = "meta"
        return made

    def __len__(cls) -> int:
        return 7

    def __getitem__(cls, key: Any) -> Any:
        return (cls.tag, key)

    def __contains__(cls, item: Any) -> bool:
        return item == cls.tag

    def __iter__(cls) -> Any:
        return iter([cls.tag, 1])

    @property
    def label(cls) -> str:
        return "label " + cls.tag

    def __instancecheck__(cls, obj: Any) -> bool:
        return obj == 5 or super().__instancecheck__(obj)


class Made(metaclass=Meta):
    def __init__(self, v: Any) -> None:
        self.v = v


def metaclasses(t):
    m = Made(t)
    return (
        m.v,
        m.built_by,
        Made.tag,
        len(Made),
        Made["k"],
        "made" in Made,
        list(Made),
        Made.label,
        isinstance(5, Made),
        isinstance(m, Made),
        type(Made) is Meta,
    )


class A:
    name = "A"

    def who(self) -> list[str]:
        return ["A"]

    @classmethod
    def make(cls) -> Any:
        return cls()

    @staticmethod
    def plain(v: Any) -> Any:
        return v + 1

    @property
    def prop(self) -> str:
        return "A.prop"


class B(A):
    name = "B"

    def who(self) -> list[str]:
        return ["B", *super().who()]

    @property
    def prop(self) -> str:
        return super().prop + "/B"


class C(A):
    def who(self) -> list[str]:
        return ["C", *super().who()]

    @classmethod
    def make(cls) -> Any:
        made = super().make()
        made.by = "C"
        return made


class D(B, C):
    def who(self) -> list[str]:
        return ["D", *super().who(), self.name]

    @staticmethod
    def plain(v: Any) -> Any:
        return A.plain(v) * 2


def inheritance(t):
    d = D.make()
    return (
        D.plain(t),
        d.who(),
        d.by,
        d.prop,
        isinstance(d, C),
        D.__mro__ == (D, B, C, A, object),
        D.__bases__ == (B, C),
        d.__class__ is D,
        A.who(d),
        type(d).__name__,
        D.__name__,
        d.__class__.__qualname__,
        issubclass(D, (int, A)),
    )


class Mixin:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.mixed = kwargs.pop("mixed", 0)
        super().__init__(*args, **kwargs)


class Core:
    def __init__(self, v: Any) -> None:
        self.v = v


class Both(Mixin, Core):
    pass


def cooperative_init(t):
    b = Both(t, mixed=3)
    return b.v * b.mixed


class Fallback:
    def __init__(self) -> None:
        self.real = 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("x_"):
            return name[2:]
        raise AttributeError(f"no {name}")


def getattr_fallback(t):
    f = Fallback()
    try:
        f.missing
    except AttributeError as error:
        return t * f.real, f.x_abc, hasattr(f, "y"), hasattr(f, "x_y"), str(error), getattr(f, "z", 9)


class Intercept:
    def __init__(self) -> None:
        self.v = 2

    def __getattribute__(self, name: str) -> Any:
        if name == "magic":
            return 42
        return super().__getattribute__(name)

    def method(self) -> int:
        return self.v * 2


class InterceptObject:
    v = 3

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        return value * 2 if name == "v" else value


def getattribute(t):
    i = Intercept()
    return t * i.magic, i.v, i.method(), hasattr(i, "nope"), InterceptObject().v


class Watched:
    def __init__(self) -> None:
        object.__setattr__(self, "log", [])
        self.a = 1

    def __setattr__(self, name: str, value: Any) -> None:
        self.log.append(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self.log.append("-" + name)
        object.__delattr__(self, name)


def setattr_hooks(t):
    w = Watched()
    w.b = t
    setattr(w, "c", 2)
    del w.c
    return w.b, w.log, hasattr(w, "c")


class Vector:
    def __init__(self, *v: Any) -> None:
        self.v = v

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Vector):
            return NotImplemented
        return Vector(*(a + b for a, b in zip(self.v, other.v)))

    def __mul__(self, k: Any) -> Any:
        return Vector(*(a * k for a in self.v))

    __rmul__ = __mul__

    def __matmul__(self, other: Vector) -> Any:
        return sum(a * b for a, b in zip(self.v, other.v))

    def __iadd__(self, other: Vector) -> Any:
        self.v = (*self.v, *other.v)
        return self

    def __neg__(self) -> Any:
        return self * -1

    def __abs__(self) -> int:
        return 99

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vector) and self.v == other.v

    def __hash__(self) -> int:
        return hash(self.v)

    def __lt__(self, other: Vector) -> bool:
        return len(self.v) < len(other.v)

    def __len__(self) -> int:
        return len(self.v)

    def __bool__(self) -> bool:
        return any(self.v)

    def __getitem__(self, i: Any) -> Any:
        return self.v[i]

    def __iter__(self) -> Any:
        return iter(self.v)

    def __contains__(self, item: Any) -> bool:
        return item in self.v

    def __call__(self, k: int) -> Any:
        return self.v[k]

    def __repr__(self) -> str:
        return f"Vector{self.v}"

    def __format__(self, spec: str) -> str:
        return f"<{spec}>"

    def __int__(self) -> int:
        return 11

    def __float__(self) -> float:
        return 1.5

    def __index__(self) -> int:
        return 1

    def __round__(self, n: int = 0) -> int:
        return 100 + n

    def __invert__(self) -> str:
        return "inverted"

    def __divmod__(self, other: Any) -> Any:
        return "divmod", other

    def __rsub__(self, other: Any) -> Any:
        return "rsub", other

    def __reversed__(self) -> Any:
        return iter(self.v[::-1])

    def __pow__(self, n: int, mod: Any = None) -> Any:
        return ("pow", n)

    def __floordiv__(self, n: Any) -> Any:
        return ("floordiv", n)


def operators(t):
    a, b = Vector(1, 2), Vector(3, 4)
    a2 = Vector(1)
    a2 += b
    return (
        (a + b).v, (2 * a).v, (a * t).v[0], a @ b, a2.v, (-a).v, abs(a), a == Vector(1, 2), a != b, a < a2, len(a), bool(Vector(0)), a[1], a[:1], list(a), 2 in a, a(0), repr(a), str(a), f"{a:>3}",
        f"{a}", int(a), float(a), [5, 6][a], round(a), round(a, 1), ~a, divmod(a, 2), 5 - a, list(reversed(a)), hash(a) == hash(Vector(1, 2)), {a: 1}[Vector(1, 2)], [*a], max([a, a2]).v, sum([a, b], Vector(0, 0)).v,
        a**2, a // 3, "yes" if a else "no", not a, a in [Vector(1, 2)], a > b,
    )  # fmt: skip


class Base:
    items: list[int] = []
    table: dict[str, Any] = {}
    count = 0


class Ints(list):
    def __init__(self, items: Any = (), tag: str = "") -> None:
        super().__init__(items)
        self.tag = tag

    def total(self) -> Any:
        return sum(self)

    def insert(self, position: Any, item: Any) -> None:
        super().insert(position, item * 2)


def list_subclass(t):
    a = Ints([1, 2], tag="x")
    a.insert(2, 3)
    b = Ints([t])
    b[0] = b[0] * 2
    a.extend([5])
    return (
        b[0],
        a.total(),
        a.tag,
        len(a),
        a[1],
        list(a)[1:],
        isinstance(a, list),
        a[1:] == [2, 6, 5],
        [v for v in a][-1],
        a.index(6),
        6 in a,
        bool(Ints()),
        a.pop(),
        sorted(Ints([3, 1])),
        Ints([1]) == [1],
    )


class Bag(dict):
    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __missing__(self, key: Any) -> Any:
        if key == "auto":
            return "missing"
        raise KeyError(key)


def dict_subclass(t):
    b = Bag(a=1, t=t)
    b.c = 3
    b["d"] = 4
    b.update(e=5)
    return (
        b.t * b.a,
        b["c"],
        b.d,
        len(b),
        list(b),
        "e" in b,
        b["auto"],
        hasattr(b, "zz"),
        isinstance(b, dict),
        b.get("q", 7),
        dict(b)["c"],
        b.pop("e"),
        {**b}["a"],
        b == {"a": 1},
        [k for k in b.keys()],
        b.setdefault("n", 2),
    )


class Triple(tuple):
    def __new__(cls, *items: Any) -> Any:
        made = super().__new__(cls, items)
        return made

    def total(self) -> Any:
        return self[0] + self[1] + self[2]

    def __getnewargs__(self) -> Any:
        return tuple(self)


def tuple_subclass(t):
    p = Triple(1, 2, t)
    p.extra = 3
    return p.total(), len(p), p[0], isinstance(p, tuple), p.extra, list(p)[1], p[:2], Triple(1, 2)[:2] == (1, 2)


class Name(str):
    def shout(self) -> str:
        return self.upper() + "!"

    @property
    def size(self) -> int:
        return len(self)


class Meters(int):
    def __new__(cls, v: int, unit: str = "m") -> Any:
        made = int.__new__(cls, v)
        made.unit = unit
        return made

    def __add__(self, other: int) -> Any:
        return Meters(int(self) + int(other), self.unit)


class Ratio(float):
    def percent(self) -> float:
        return self * 100


def scalar_subclasses(t):
    n, m, r = Name("ab"), Meters(3, "km"), Ratio(0.5)
    return (
        t * m,
        n.shout(),
        n.size,
        n + "c",
        n == "ab",
        {"ab": 1}[n],
        isinstance(n, str),
        m + 2 == 5,
        (m + 2).unit,
        m * 2,
        int(m),
        m > 2,
        r.percent(),
        r + 1,
        [1, 2, 3, 4][m],
        f"{n}{m}",
        m.unit,
        range(m)[-1],
        str(n),
        hash(n) == hash("ab"),
        n in ("ab",),
        len(n),
    )


class ModelOutput(collections.OrderedDict):
    """As in transformers: a dataclass that is an ordered dict."""

    def __init_subclass__(cls) -> None:
        cls.registered = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def __post_init__(self) -> None:
        fields = dataclasses.fields(self)
        first = getattr(self, fields[0].name)
        others_none = all(getattr(self, field.name) is None for field in fields[1:])
        if others_none and not isinstance(first, torch.Tensor):
            if isinstance(first, dict):
                for key, value in first.items():
                    setattr(self, key, value)
        else:
            for field in fields:
                v = getattr(self, field.name)
                if v is not None:
                    self[field.name] = v

    def __delitem__(self, *args: Any, **kwargs: Any) -> None:
        raise Exception(f"You cannot use ``__delitem__`` on a {self.__class__.__name__} instance.")

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, str):
            inner_dict = dict(self.items())
            return inner_dict[k]
        return self.to_tuple()[k]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(self[k] for k in self.keys())


@dataclasses.dataclass
class BaseOutput(ModelOutput):
    last: Any = None
    hidden: tuple[Any, ...] | None = None
    loss: Any = None


@dataclasses.dataclass
class Extended(BaseOutput):
    logits: Any = None


def model_output(t):
    out = BaseOutput(last=t, hidden=(t, t + 1))
    out.loss = t.sum()
    more = Extended(last=t, logits=t * 2)
    return (
        out.last,
        out[0],
        out["hidden"][1],
        len(out),
        out.to_tuple()[1],
        out.loss,
        "loss" in out,
        list(out.keys()),
        out[1:],
        isinstance(out, dict),
        more.logits,
        more[1],
        list(more),
        out.get("hidden")[0],
        [k for k, v in out.items()],
        more.registered,
    )


def model_output_is_returned(t):
    return BaseOutput(last=t * 2, loss=t.sum())


def returned_objects(t):
    p = Props()
    p.v = 4
    bag = Bag(k=t)
    ints = Ints([1, t], tag="q")
    return vars(p), dict(bag), list(ints), Slots(t).a


def attribute_functions(t):
    p = Props()
    setattr(p, "dyn", t)
    return (
        p.dyn,
        p.v,
        hasattr(p, "dyn"),
        delattr(p, "dyn"),
        hasattr(p, "dyn"),
        vars(p),
        p.__dict__,
        sorted(n for n in dir(p) if not n.startswith("_")),
        getattr(p, "n" + "o", None),
    )


def dict_of_an_object(t):
    p = Props()
    p.__dict__["z"] = t
    p.__dict__.update(y=2)
    return p.z, p.y, list(p.__dict__), "z" in vars(p), p.__dict__ is vars(p)


def class_methods_of_builtins(t):
    return (
        dict.fromkeys([1, 2], t)[1],
        int.from_bytes(b"a", "big"),
        str.join(",", ["a", "b"]),
        list.append([], 1),
        str.upper("a"),
        dict.get({"a": 1}, "a"),
        float.fromhex("0x1"),
        bytes.fromhex("00"),
        object.__eq__(1, 1),
        int.__add__(1, 2),
        tuple.__len__((1,)),
        type.__call__(list, "ab"),
        torch.Tensor.add(t, 1),
        "x".__class__ is str,
    )


class Singleton:
    _made: Any = None

    def __new__(cls, *args: Any) -> Any:
        made = super().__new__(cls)
        made.args = args
        return made


def custom_new(t):
    s = Singleton(1, t)
    return s.args[1], type(s) is Singleton


class NewGivesAnother:
    def __new__(cls, v: Any) -> Any:
        return [v]

    def __init__(self, v: Any) -> None:
        raise AssertionError


def new_of_another_kind(t):
    return NewGivesAnother(t)


class WithInitSubclass:
    subclasses: list[str] = []

    def __init_subclass__(cls, tag: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.tag = tag


class Tagged(WithInitSubclass, tag="t"):
    pass


def init_subclass(t):
    return t, Tagged.tag, Tagged().tag


class Callback:
    def __init__(self) -> None:
        self.handlers: list[Any] = []

    def on(self, fn: Any) -> Any:
        self.handlers.append(fn)
        return fn

    def fire(self, v: Any) -> Any:
        for fn in self.handlers:
            v = fn(v)
        return v


def callbacks(t):
    c = Callback()

    @c.on
    def double(v):
        return v * 2

    c.on(torch.relu)
    c.on(c.fire.__class__ and (lambda v: v + 1))
    return c.fire(t)


def bound_methods(t):
    v = Vector(1, 2)
    call, get = v.__call__, v.__getitem__
    return (
        call(0),
        get(1),
        v.__add__(v).v,
        call.__self__ is v,
        call.__func__ is Vector.__call__,
        call.__name__,
        v.__len__(),
        t,
        Vector.__len__(v),
        v.__call__ == v.__call__,
    )


def conversions(t):
    v = Vector(1)
    return (
        list(range(v)),
        "abc"[v],
        [0] * v.__index__(),
        int(v),
        float(v),
        bool(v),
        str(v),
        t * float(v),
        "%s" % v,
        f"{v}",
        repr([v]),
        complex(1),
    )


NOT_YET: dict[str, str] = {}


@pytest.mark.parametrize("program", programs(globals(), NOT_YET))
def test_like_eager(program: Callable[..., Any]) -> None:
    check(program, X)


def uses_ints(t, a):
    a.extend([1])
    a.tag = "new"
    return t * a[0], a.total(), len(a), a.tag


def uses_bag(t, b):
    b.z = t
    b["n"] = 1
    return t * b.a, "a" in b, len(b), list(b)


def uses_output(t, out):
    out.loss = t
    return out.last * t, out[0], len(out), list(out.keys())


def uses_triple(t, p):
    return t * p[0], p.total(), len(p)


def uses_name(t, n):
    return t, n.shout(), n + "x", n == "name", len(n), n.size


def uses_meters(t, m):
    return t * m, m + 1 == 4, m.unit, m > 2


def uses_vector(t, v):
    v += Vector(5)
    return t * v[0], len(v), v == Vector(1, 2, 5)


def uses_props(t, p):
    p.v = 7
    p.extra = t
    del p.extra
    return t * p.v


def uses_described(t, d):
    d.n += 2
    return t * d.n, d.k


def uses_dict_of(t, p):
    p.__dict__["q"] = t
    vars(p)["r"] = 1
    return p.q, p.r


def uses_watched(t, w):
    w.z = 1
    return t, w.log


@pytest.mark.parametrize(
    ("program", "make"),
    [
        (uses_ints, lambda: Ints([1, 2], "t")), (uses_bag, lambda: Bag(a=2)), (uses_output, lambda: BaseOutput(last=X, loss=X)), (uses_triple, lambda: Triple(1, 2, 3)),
        (uses_name, lambda: Name("name")), (uses_meters, lambda: Meters(3, "km")), (uses_vector, lambda: Vector(1, 2)), (uses_props, Props), (uses_described, lambda: Described(1)),
        (uses_dict_of, Props), (uses_watched, Watched),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)  # fmt: skip
def test_objects_of_the_caller(program: Callable[..., Any], make: Callable[[], Any]) -> None:
    check(program, X, make())


def test_an_operator_that_no_operand_has_is_left_to_python() -> None:
    def fn(t):
        pair = Vector(1, 2)
        try:
            pair + 1
        except TypeError as error:
            return t * 2, str(error)

    assert difference(fn(X), armature.compile(fn, backend="eager")(X)) == 0.0


def test_class_attributes_are_written() -> None:
    def fn(t):
        Base.count += 1
        Base.items.append(Base.count)
        Base.table["last"] = t
        Base.fresh = "new"
        return t * Base.count

    from tests.support.tracing import trace

    traced = trace(fn, X)
    assert (Base.count, Base.items, hasattr(Base, "fresh")) == (0, [], False)
    assert torch.equal(traced.run(X), X)
    assert (Base.count, Base.items, Base.fresh) == (1, [1], "new")
    assert torch.equal(Base.table["last"], X)


class Named:
    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"_{name}"

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        return self if obj is None else getattr(obj, self.name, 0)

    def __set__(self, obj: Any, value: Any) -> None:
        setattr(obj, self.name, value + 1)


NAMED = Named()


def test_descriptors_in_classes_made_in_the_frame() -> None:
    def fresh(t):
        class Holder:
            held = Named()

        holder = Holder()
        before, holder.held = holder.held, 2
        return t * holder.held, before, Holder.held.name

    def of_the_program(t):
        class Holder:
            other = NAMED

        return t + 1, Holder.other.name, Holder().other

    def set_later(t):
        class Holder:
            pass

        made = Named()
        made.name = "_x"
        Holder.held = made
        holder = Holder()
        holder.held = 4
        return t * holder.held

    def method_set_later(t):
        class Holder:
            pass

        Holder.count = lambda *args: len(args)
        return t * Holder().count(1, 2)

    for fn in (fresh, of_the_program, set_later, method_set_later):
        compiled = armature.compile(fn, backend="eager")
        NAMED.__dict__.pop("name", None)
        expected = fn(X)
        NAMED.__dict__.pop("name", None)
        assert difference(expected, compiled(X)) == 0.0


class Place(enum.Enum):
    FIRST = (1, [2])

    def __init__(self, number: int, items: list[int]) -> None:
        self.number = number
        self.items = items

    @property
    def total(self) -> int:
        return self.number + len(self.items)


def test_attributes_of_enum_members() -> None:
    def fn(t):
        place = Place.FIRST
        return t * place.number, place.total, getattr(place, "number", 7), hasattr(place, "other"), place.items

    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    assert difference(fn(X), compiled(X)) == 0.0
    assert compiled(X)[4] is Place.FIRST.items


class Keyed(dict):
    @classmethod
    def of(cls, keys):
        return super().fromkeys(keys, 2)


MAKES = Keyed.fromkeys


def by_super(t):
    made = Keyed.of(["a"])
    return t + made["a"], type(made) is Keyed


def by_an_alias(t):
    made = MAKES(["a"], 1)
    return t + made["a"], type(made) is Keyed


@pytest.mark.parametrize("function", [by_super, by_an_alias])
def test_class_methods_written_in_c(function):
    resumes(function, lambda: (torch.ones(2),))
