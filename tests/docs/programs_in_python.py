"""Programs that are one graph here, by the code of the type under which torch.compile breaks or may break them."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import inspect
import itertools
import types
import typing
import unittest
from typing import Any

import numpy as np
import torch
from torch import nn


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any
    y: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "y", self.y + 1)


@dataclasses.dataclass(frozen=True)
class FrozenPlain:
    x: Any
    y: int = 2


class Options(typing.TypedDict, total=False):
    scale: int


class Plain:
    pass


class Shown:
    def __repr__(self) -> str:
        return "shown"


class Sized:
    def __len__(self) -> int:
        return 3

    def __bool__(self) -> bool:
        return True


class Base:
    def __init__(self) -> None:
        self.a = 1

    scale = 3


class Derived(Base):
    def ask(self) -> int:
        return super().scale

    def drop(self) -> None:
        super().__delattr__("a")


class LooksUp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n = 2

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name)


MODULE = nn.Linear(3, 3)

LAYERS = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])

LOOKS_UP = LooksUp()

FEW = collections.deque([1, 2], maxlen=3)

PLAIN = Plain()


def numbers(x: Any) -> Any:
    yield x + 1
    yield x + 2


class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a)
        return a + b

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad, grad


class Marks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Any) -> Any:
        ctx.mark_dirty(a)
        return a.add_(1)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


class Vjp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Any) -> Any:
        return a * 2

    @staticmethod
    def vjp(ctx: Any, grad: Any) -> Any:
        return grad * 2


class Jvp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Any) -> Any:
        return a * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2

    @staticmethod
    def jvp(ctx: Any, a: Any) -> Any:
        return a * 2


class Hashed:
    def __hash__(self) -> int:
        return 3


def gb0003(x: Any) -> Any:
    return sum(numbers(x))


def gb0012(x: Any) -> Any:
    return x + sum(n for n in range(x.dim()))


def gb0020(x: Any) -> Any:
    a, b = "{x}", "{x}"
    return x * len(f"{a}{b}" + "{k}{k}".format(k=1))


def gb0021(x: Any) -> Any:
    return x * len(f"{x.dim()!r:>4}{Shown()}")


def gb0032(x: Any) -> Any:
    return x * ("n" in LOOKS_UP.__dict__) * LOOKS_UP.n


def gb0035(x: Any) -> Any:
    return x + 1 if Sized() else x


def gb0045(x: Any) -> Any:
    return x + x.is_inference()


def gb0046(x: Any) -> Any:
    return x + torch.is_inference_mode_enabled()


def gb0060(x: Any) -> Any:
    case = unittest.TestCase()
    case.assertEqual(x.dim(), 2)
    case.assertTrue(x.shape[0] == 2)
    return x + 1


def gb0061(x: Any) -> Any:
    return sum([*x, *x.split(1)])


def gb0062(x: Any) -> Any:
    first, *rest = x
    return first + len(rest)


def gb0063(x: Any) -> Any:
    first, second = x
    return first + second


def gb0073(x: Any) -> Any:
    return torch.cond(torch.tensor(True), lambda y: MODULE(y), lambda y: y + 1, (x,))


def gb0076(x: Any) -> Any:
    for n in range(x.dim()):
        last = n
    return x + last


def gb0097(x: Any) -> Any:
    FEW.append(1)
    return x + len(FEW)


def gb0107(x: Any) -> Any:
    return torch.zeros_like(x).random_(1, 2) + x


def gb0113(x: Any) -> Any:
    return x * Derived().ask()


def gb0114(x: Any) -> Any:
    return sum(itertools.accumulate([x, x + 1], lambda a, b: a * b))


def gb0115(x: Any) -> Any:
    return x + sum(len(list(found)) for _, found in itertools.groupby([1, 1, 2], lambda n: n % 2))


def gb0118(x: Any) -> Any:
    return x + next(iter([1, 2]))


def gb0132(x: Any) -> Any:
    return sum(itertools.accumulate([x, x], func=torch.mul))


def gb0136(x: Any) -> Any:
    return x + range(2, 5).start + range(3).index(1)


def gb0137(x: Any) -> Any:
    return x + slice(1, 2).start + len(slice(1, 2).indices(5))


def gb0143(x: Any) -> Any:
    held = [1, 2, 3]
    held[1:] = (n for n in (4, 5, 6))
    return x + sum(held)


def gb0144(x: Any) -> Any:
    return Jvp.apply(x)


def gb0145(x: Any) -> Any:
    return Vjp.apply(x)


def gb0150(x: Any) -> Any:
    return x + hasattr(torch, "relu") + hasattr(numbers, "__code__")


def gb0151(x: Any) -> Any:
    return x + len(inspect.signature(numbers).parameters)


def gb0152(x: Any) -> Any:
    return x + len(list(itertools.groupby([PLAIN, PLAIN])))


def gb0153(x: Any) -> Any:
    return LAYERS[0:1][0](x).detach()


def gb0159(x: Any) -> Any:
    return x + len(np.__version__)


def gb0171(x: Any) -> Any:
    assert x.dim() == 2, 5
    return x + 1


def gb0174(x: Any) -> Any:
    return typing.cast(Any, x) + 1


def gb0176(x: Any) -> Any:
    y = x + 1
    return x + (id(y) == id(y))


def gb0183(x: Any) -> Any:
    return x + len(dict.fromkeys(n for n in "aab"))


def gb0184(x: Any) -> Any:
    return x * len(str(Shown()))


def gb0186(x: Any) -> Any:
    return functools.partial(torch.add, **{"other": 1})(x)


def gb0189(x: Any) -> Any:
    MODULE.note = 3
    return x + MODULE.note


def gb0190(x: Any) -> Any:
    return getattr(x, "".join(["si", "n"]))() + 1


def gb0192(x: Any) -> Any:
    return x + next(itertools.cycle(range(100_000)))


def gb0195(x: Any) -> Any:
    return x + issubclass(type(x), torch.Tensor) + issubclass(Derived, (int, Base))


def gb0197(x: Any) -> Any:
    held: list[Any] = [x]
    held.append(held)
    return held[1][0] + 1


def gb0198(x: Any) -> Any:
    held = {"a": 1}
    view = types.MappingProxyType(held)
    held["b"] = 2
    return x + len(view)


def gb0200(x: Any) -> Any:
    n = x.dim()
    return x * len({n, 1, 2})


class Twice(collections.namedtuple("Both", "first second")):
    """A named tuple with a `__new__` of its own."""

    __slots__ = ()

    def __new__(cls, value: Any) -> Any:
        return super().__new__(cls, value, second=value * 2)


def gb0201(x: Any) -> Any:
    made = Twice(x)
    return made, made.second + made[0]


def gb0202(x: Any) -> Any:
    return x + len(list(MODULE.named_parameters(prefix=str(x.dim()))))


def gb0203(x: Any) -> Any:
    return x + len({PLAIN: 1, (1, 2): 2}.keys())


def gb0204(x: Any) -> Any:
    return x + len(types.MappingProxyType({PLAIN: 1}))


def gb0206(x: Any) -> Any:
    y = x + 1
    y.requires_grad = False
    return y * 2


def gb0217(x: Any) -> Any:
    return x + hasattr(x, "not_there") + hasattr(MODULE, "weight")


def gb0222(x: Any) -> Any:
    return x + len({x, x})


def gb0224(x: Any) -> Any:
    return x + torch.sym_max(x.shape[0], x.shape[1])


def gb0225(x: Any) -> Any:
    return torch.ones(3, requires_grad=True).detach() + x


def gb0237(x: Any) -> Any:
    return nn.Parameter(x, requires_grad=x.dim() == 5) + 1


def gb0240(x: Any) -> Any:
    out = torch.empty(0)
    torch.add(x, 1, out=out)
    return out + 1


def gb0242(x: Any) -> Any:
    out = torch.empty(3, 2).t()
    torch.add(x, 1, out=out)
    return out + 1


def gb0253(x: Any) -> Any:
    made = numbers(x)
    first = next(made)
    made.close()
    return first


def gb0254(x: Any) -> Any:
    made = Plain()
    setattr(made, "".join(["a", "b"]), 2)
    return x + made.ab


def gb0257(x: Any) -> Any:
    options: Options = Options(scale=2)
    return x * options.get("scale", 1)


def gb0259(x: Any) -> Any:
    return sum(collections.deque(x))


def gb0262(x: Any) -> Any:
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        return x + 1


def gb0263(x: Any) -> Any:
    def managed() -> Any:
        yield 1

    with contextlib.contextmanager(managed)() as n:
        return x + n


def gb0270(x: Any) -> Any:
    return x + len(vars())


def gb0271(x: Any) -> Any:
    n = len(Base.__dict__)
    Base.scale = 3
    return x + n * 0


def gb0288(x: Any) -> Any:
    torch._check(x.shape[0] == 2, lambda: f"it is {x}")
    return x + 1


def gb0289(x: Any) -> Any:
    return x + (typing.get_origin(list[int]) is list) + len(typing.Optional[int].__args__)


def gb0328(x: Any) -> Any:
    return torch.func.functional_call(MODULE, dict(MODULE.named_parameters()), (x,)).detach()


def gb0351(x: Any) -> Any:
    return torch.utils.checkpoint.checkpoint(lambda a, n: a * n, x, 2, use_reentrant=False)


def gb0364(x: Any) -> Any:
    return x + len({Hashed(): 1})


def gb0368(x: Any) -> Any:
    return Frozen(x + 1)


def gb0369(x: Any) -> Any:
    return FrozenPlain(x + 1)


def gb0755(x: Any) -> Any:
    return x + -True + +True + abs(-2)


def gb0781(x: Any) -> Any:
    held = bytearray(b"abc")
    held[0] = 65
    return x + held[0]


def gb0871(x: Any) -> Any:
    return x + hash(Hashed())


def gb2019(x: Any) -> Any:
    return Marks.apply(x.clone())


def gb2533(x: Any) -> Any:
    @contextlib.contextmanager
    def managed() -> Any:
        yield 1

    with managed() as n:
        return x + n


def gb2544(x: Any) -> Any:
    held = [1]
    held += (2, 3)
    return x + len(held)


def gb2549(x: Any) -> Any:
    return x + next(itertools.islice(itertools.count(), 5, None))


def gb2852(x: Any) -> Any:
    return x * len(repr(Shown()))


def gb2861(x: Any) -> Any:
    return x + (hash((1, "a")) == hash((1, "a")))


def gb3934(x: Any) -> Any:
    return x + len([1] + [2]) + len((1,) + (2,)) + len(collections.deque([1]) + collections.deque([2]))


def gb4608(x: Any) -> Any:
    return x + (Plain() == Plain())


def gb4778(x: Any) -> Any:
    y = x + 1
    return lambda: y


def gb5380(x: Any) -> Any:
    return x * len(repr({1}))


def gb5565(x: Any) -> Any:
    return x + ((x.shape[0], 1) < (3, 1))


def gb6012(x: Any) -> Any:
    return x * len(Sized())


def gb6025(x: Any) -> Any:
    return sum(list(x))


def gb6297(x: Any) -> Any:
    return Both.apply(x, x)


def gb6622(x: Any) -> Any:
    return x + ([1, PLAIN] == [1, PLAIN])


def gb7637(x: Any) -> Any:
    made = Plain()
    made.__dict__[1] = 2
    return x + len(made.__dict__)


def gb7968(x: Any) -> Any:
    return x * len(repr([Shown(), 1]))


def gb8315(x: Any) -> Any:
    return x * len(repr({"a": Shown()}))


def gb8335(x: Any) -> Any:
    return (y for y in (x, x + 1))


def gb9158(x: Any) -> Any:
    torch._check(x.shape[0] == 2, lambda: f"it is {x.shape}")
    return x + 1


def gb9277(x: Any) -> Any:
    return numbers.__get__(x)().__next__() + 1


def gb9458(x: Any) -> Any:
    return x + len([1] * 3) + len("ab" * 2) + len((1,) * x.dim())


def gb9528(x: Any) -> Any:
    n = x.dim()

    def inner() -> int:
        return n

    return x + 1, inner


def gb9561(x: Any) -> Any:
    held = [1]
    held *= x.dim()
    return x + len(held)


def gb9840(x: Any) -> Any:
    torch._check(x.shape[0] == 2, str)
    return x + 1
