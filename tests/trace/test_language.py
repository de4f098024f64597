"""Python's own semantics: what a traced function gives is what the function gives."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch

from tests.support.tracing import check, trace

X = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)
Y = torch.linspace(2.0, 3.0, 12).reshape(3, 4)


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def factor(self) -> int:
        return self.value * 10


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor

    def total(self) -> torch.Tensor:
        return self.left + self.right


@dataclasses.dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor | None = None
    extra: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    width: int
    scale: float = 2.0


class Scaler:
    factor = 3

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by * self.factor

    @property
    def doubled(self) -> float:
        return self.by * 2

    @staticmethod
    def shift(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @classmethod
    def unit(cls) -> Scaler:
        return cls(1.0)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> float:
        if i >= 4:
            raise IndexError
        return self.by + i

    def __contains__(self, item: float) -> bool:
        return item == self.by

    def __add__(self, other: float) -> Scaler:
        return Scaler(self.by + other)

    def __radd__(self, other: float) -> Scaler:
        return Scaler(self.by + other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scaler) and other.by == self.by

    def __hash__(self) -> int:
        return hash(self.by)


class Loud(Scaler):
    def __init__(self, by: float) -> None:
        super().__init__(by)
        self.loud = True

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x) + 1


class Swallow:
    def __init__(self) -> None:
        self.entered = 0

    def __enter__(self) -> Swallow:
        self.entered += 1
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> bool:
        return kind is ValueError


FACTOR = 2.5
TABLE = {"relu": torch.relu, "tanh": torch.tanh, "depth": 3}
SCALER = Scaler(1.5)


def arithmetic(x, y):
    z = (x + y) * 2 - x / (y + 3) ** 2
    return -z // 1, z % 2, x @ y.T, abs(x), +x, ~(x > 0)


def in_place(x, y):
    z = x.clone()
    z += y
    z *= 2
    z[0] = 1.0
    z[:, 1:3] -= y[:, 1:3]
    return z


def comparisons(x, y):
    return x < y, x == y, (x != y).sum(), 1 < 2 < 3, (x >= 0) & (y <= 1), not [], [1, 2] == [1, 2], (1, 2) < (1, 3)


def unpacking(x, y):
    a, (b, *c), d = x, [y, 1, 2, 3], *[4]
    first, *rest = x.unbind(0)
    h, w = x.shape
    return a + b, c, d, first, rest, h * w


def indexing(x, y):
    return (
        x[0], x[:, 1], x[..., None], x[1:, ::2], x[-1, -1], x[[0, 2]], x[torch.tensor([1, 0])], x[None, :, 0],
        x[:, x.size(0)],
    )  # fmt: skip


def control(x, y):
    total = 0
    for i in range(10):
        if i % 2:
            continue
        if i > 6:
            break
        total += i
    else:
        total = -1
    n = 0
    while n < 5:
        n += 1
    else:
        n *= 10
    return x * total + n if total > 3 else y


def comprehensions(x, y):
    scale = 2
    rows = [row * scale for row in x]
    keyed = {str(i): row for i, row in enumerate(rows) if i != 1}
    odd = {i for i in range(3) if i == 1}
    nested = [[i * j for j in range(i)] for i in range(4)]
    total = sum(v.sum() for v in keyed.values())
    return rows, keyed, odd, nested, total, any(i > 2 for i in range(4)), all(i > 2 for i in range(4))


def strings(x, y):
    name = "layer"
    key = f"{name}_{x.shape[0]:03d}!{'a'!r}"
    sep = ","
    parts = "a,b,c".split(sep)
    form, braces = "%s-%d", "{} {x}"
    text = form % (name, 3) + "/".join(parts).upper() + braces.format(1, x=2)
    assert x.dim() == 2, f"expected two dimensions, not {x.dim()} ({x})"
    return key, text, x * len(text), name in key, key.startswith("lay"), name[1:3]


def calls(x, y):
    def inner(a, b=2, *args, c, d=4, **kwargs):
        return a * b + sum(args) + c * d + len(kwargs)

    lam = lambda v, k=3: v + k  # noqa: E731
    args, kwargs = (x, 1), {"c": 5}
    return inner(x, c=1), inner(*args, 7, 8, **kwargs, e=1), lam(y), lam(y, k=1)


def closures(x, y):
    count = 0

    def bump(by):
        nonlocal count
        count += by
        return count

    bump(2)
    bump(3)
    makers = [lambda v, i=i: v + i for i in range(3)]
    return x * count, [make(y) for make in makers]


def generators(x, y):
    def numbers(n):
        got = 0
        for i in range(n):
            got = (yield i * 2) or got
        return got

    def outer():
        result = yield from numbers(3)
        yield result

    gen = numbers(5)
    first = next(gen)
    sent = gen.send(7)
    rest = list(gen)
    return x + first + sent, rest, list(outer()), sum(v for v in numbers(4))


def exceptions(x, y):
    log = []
    try:
        raise ValueError("wrong", 3)
    except (KeyError, ValueError) as error:
        log.append(error.args)
    else:
        log.append("else")
    finally:
        log.append("finally")
    try:
        try:
            {}["a"]
        except KeyError:
            raise RuntimeError("again") from None
    except RuntimeError as error:
        log.append(str(error))
    try:
        [1][3]
    except IndexError:
        log.append("index")
    try:
        log.append(1 // 1)
    except ZeroDivisionError:
        log.append("never")
    else:
        log.append("fine")
    with contextlib.suppress(KeyError):
        log.append("suppressed")
    return x, log


def contexts(x, y):
    log = []
    with Swallow() as outer:
        log.append(outer.entered)
        raise ValueError("swallowed")
    with contextlib.nullcontext(5) as five, Swallow():
        log.append(five)
    return x + len(log), log


def matching(x, y):
    found = []
    for subject in (1, (1, 2), {"k": 3, "z": 0}, [1, 2, 3], Frozen(4), "text", None):
        match subject:
            case 1:
                found.append("one")
            case (a, b):
                found.append(a + b)
            case {"k": v, **rest}:
                found.append((v, rest))
            case [_, *others]:
                found.append(others)
            case Frozen(width=w):
                found.append(w)
            case str() as s:
                found.append(s)
            case _:
                found.append("other")
    return x, found


def builtins(x, y):
    pairs = list(zip([1, 2, 3], "abc"))
    return (
        max(3, 1, 2), min([4, 2]), max([1, -3], key=abs), sum([1, 2], 3), sorted([3, 1, 2], reverse=True),
        list(reversed([1, 2])),
        pairs, list(map(lambda a, b: a + b, [1, 2], [3, 4])), list(filter(None, [0, 1, 2])), divmod(7, 2),
        round(2.567, 2), pow(2, 5),
        isinstance(x, torch.Tensor), isinstance(1, (int, str)), issubclass(bool, int), callable(len),
        hasattr(x, "shape"), abs(-3),
        getattr(x, "nothing", 5), type(x) is torch.Tensor, len(x), int("7"), float(3), str(4), bool([]),
        tuple(range(1)), list(range(2)),
        dict(zip("a", [1])), set(range(1)), frozenset([2]), enumerate, chr(65), ord("A"), bin(5),
        list(range(5, 0, -2)), slice(1, 2), repr("a"),
    )[:-1] + (x * max(1, 2),)  # fmt: skip


def containers(x, y):
    d = {"a": 1, "b": x}
    d["c"] = y
    d.update(e=4)
    popped = d.pop("a")
    d.setdefault("f", []).append(3)
    ordered = collections.OrderedDict(one=1)
    ordered["two"] = 2
    ordered.move_to_end("one")
    default = collections.defaultdict(list)
    default["k"].append(x)
    items = [3, 1, 2]
    items.sort()
    items.insert(0, 9)
    items.extend((7, 8))
    del items[1]
    items[1:2] = [5, 5]
    s = {1, 2} | {3}
    s.discard(1)
    merged = {**d, "z": 0}
    return (
        d,
        popped,
        ordered,
        dict(default),
        items,
        2 in s,
        len(s),
        merged,
        d.get("nope", 1),
        list(d),
        [*items, *range(2)],
    )


def objects(x, y):
    s = Scaler(2.0)
    t = s + 1.0
    u = 1.0 + s
    loud = Loud(0.5)
    loud.extra = 7
    return (
        s(x), t.by, u.by, s.doubled, Scaler.shift(y), Scaler.unit()(x), len(s), s[1], list(s), 2.0 in s, loud(x),
        loud.extra, loud.loud,
        s == Scaler(2.0), isinstance(loud, Scaler), SCALER(x), bool(s), getattr(s, "missing", None), Scaler.factor,
    )  # fmt: skip


def dataclass_output(x, y):
    config = Frozen(3)
    out = Output(loss=(x * config.scale).mean(), logits=y)
    out.extra.append(config.width)
    return dataclasses.replace(config, width=5).width, out


def named_tuples(x, y):
    p = Pair(x, right=y)
    values, indices = torch.max(x, dim=1)
    top = x.topk(2, dim=1)
    return p, p.total(), p._replace(left=y), p[0], values, indices, top.values, top, p.left is x


def enums(x, y):
    c = Color.RED
    return x * c.value, c is Color.RED, c == Color.BLUE, Color["BLUE"].name, Color(2).factor, c, {Color.RED: 1}[c]


def iterators(x, y):
    it = iter([1, 2, 3])
    a = next(it)
    rest = list(it)
    chained = list(itertools.chain([1], (2, 3)))
    sliced = list(itertools.islice(itertools.count(5), 3))
    product = list(itertools.product([1, 2], "ab"))
    folded = functools.reduce(lambda p, q: p * q, [1, 2, 3, 4])
    part = functools.partial(torch.add, alpha=2)
    named = {part: "part", functools.partial(torch.add, alpha=2): "another"}
    return (
        named[part],
        len(named),
        len({part, part}),
        a,
        rest,
        next(it, "end"),
        chained,
        sliced,
        product,
        folded,
        part(x, y),
        operator.add(x, y),
        operator.mul(2, 3),
    )


def numbers(x, y):
    return (
        math.sqrt(2),
        math.pi,
        x * math.floor(2.7),
        7 // 2,
        7 % -3,
        2**-1,
        1 << 4,
        5 & 3,
        5 ^ 1,
        ~5,
        0.1 + 0.2,
        1j * 2,
    )


def globals_used(x, y):
    return TABLE["relu"](x) * FACTOR * TABLE["depth"], SCALER.by, TABLE.get("none"), "tanh" in TABLE


def shapes(x, y):
    b, n = x.size()
    return (
        x.view(b * n), x.reshape(-1, 2), x.view(*x.shape, 1), x.new_zeros(b, n), torch.zeros(x.shape),
        torch.ones(*x.size()[:1], 2),
        x.shape[0] + x.size(-1), x.numel(), x.dim(), tuple(x.shape), x.dtype, x.device, x.T.shape, x.ndim,
        x.stride(), x.is_contiguous(),
        x.requires_grad, x.is_floating_point(), x.expand(2, -1, -1), x.permute(1, 0), x.shape == y.shape,
        list(x.shape), x.shape.numel(),
    )  # fmt: skip


def tensors(x, y):
    a, b = x.chunk(2, dim=1)
    parts = torch.split(x, [1, 3], dim=1)
    stacked = torch.stack([x, y]).sum(0, keepdim=True)
    return (
        a, b, parts, stacked, torch.cat((x, y), dim=-1), x.to(torch.float64), x.type_as(y), torch.where(x > 0, x, y),
        x.float(), x.mean(),
        torch.arange(4, dtype=x.dtype, device=x.device) + x, x.masked_fill(x < 0, float("-inf")),
        torch.tensor([1.0, 2.0]), x.long(),
        torch.einsum("ij,kj->ik", x, y), x.softmax(-1), torch.nn.functional.gelu(x), x.contiguous() is x,
        x.transpose(0, 1), x.mT,
    )  # fmt: skip


def imports(x, y):
    import math as m  # noqa: PLC0415

    from torch.nn import functional as nf  # noqa: PLC0415

    return nf.relu(x) * m.e


def walrus(x, y):
    if (n := x.size(0)) > 2 and (m := n * 2):
        return x * m
    return y


def identity(x, y):
    z = x
    out = [x, x]
    return z is x, x is y, None is None, out[0] is out[1], x in (x,), [x] * 2, {"same": z}


def recursion(x, y):
    def power(v, n):
        return v if n == 0 else power(v * 2, n - 1)

    return power(x, 4)


def star(x, y):
    def f(*args, **kwargs):
        return args, kwargs

    return f(1, *[x], k=2, **{"y": y})


def delete(x, y):
    a = [1, 2]
    del a[0]
    d = {"k": 1}
    del d["k"]
    b = 5
    del b
    return x, a, d


def grad_modes(x, y):
    w = x.clone().requires_grad_() if False else x
    with torch.no_grad():
        a = w * 2
        inside = torch.is_grad_enabled()
    with torch.enable_grad():
        b = w * 3
    return a, b, inside, torch.is_grad_enabled()


def decorated_context(x, y):
    @contextlib.contextmanager
    def scaled(by):
        log.append("in")
        try:
            yield x * by
        finally:
            log.append("out")

    log = []
    with scaled(3) as z:
        log.append("body")
    return z, log


PROGRAMS: list[Callable[..., Any]] = [
    arithmetic, in_place, comparisons, unpacking, indexing, control, comprehensions, strings, calls, closures, generators, exceptions,
    contexts, matching, builtins, containers, objects, dataclass_output, named_tuples, enums, iterators, numbers, globals_used, shapes,
    tensors, imports, walrus, identity, recursion, star, delete, grad_modes, decorated_context,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda fn: fn.__name__)
def test_like_eager(program: Callable[..., Any]) -> None:
    check(program, X, Y)


def test_arguments_of_every_kind() -> None:
    def fn(a, /, b, *args, c=2, d, **kwargs):
        return a + b * c - d + sum(args) + kwargs["e"]

    check(fn, X, Y, 1, 2, d=3, e=X)


def test_cells_of_arguments_and_free_variables() -> None:
    outer = torch.ones(3, 4)
    scale = 3

    def fn(x):
        def inner():
            return x * scale + outer

        x = x + 1
        return inner()

    check(fn, X)


def test_nested_containers_as_arguments() -> None:
    def fn(batch: dict[str, Any], options: tuple[Any, ...]) -> Iterator[Any]:
        x, (y, flag) = batch["x"], options
        return {"out": x + y if flag else x, "n": len(batch["list"]), "first": batch["list"][0]}

    check(fn, {"x": X, "list": [Y, 2]}, (Y, True))


def test_kept_default_objects() -> None:
    def fn(x, opts={"scale": 2}, table=(1, 2)):  # noqa: B006
        return x * opts["scale"] + table[1]

    check(fn, X)


def test_graph_holds_no_constant_work() -> None:
    traced = trace(numbers, X, Y)
    assert len(traced.targets()) == 1
