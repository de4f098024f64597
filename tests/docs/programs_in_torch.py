"""More programs that are one graph here, by the code of torch.compile's type: modules, operators, objects of C."""

from __future__ import annotations

import collections
import dataclasses
import fractions
import functools
import operator
import types
from typing import Any

import numpy as np
import torch
import torch.utils.checkpoint
from torch import nn
from torch._dynamo.comptime import comptime
from torch._higher_order_ops import wrap
from torch._higher_order_ops import wrap as W
from torch._higher_order_ops.strict_mode import strict_mode
from torch._higher_order_ops.while_loop import while_loop


class Derived:
    def __init__(self):
        self.a = 1

    def drop(self, name):
        super().__delattr__(name)


GIVEN = Derived()

WEIGHT = torch.ones(3, requires_grad=True)

REGION = torch.compiler.nested_compile_region(functools.wraps(torch.relu)(lambda *a: torch.relu(*a)))

REGION2 = torch.compiler.nested_compile_region(lambda x: x + 1)


class Uninit(nn.Module):
    def __init__(self):
        self.n = 1


@dataclasses.dataclass
class Point:
    x: Any


class Plain:
    pass


PLAIN = Plain()

MODULE = nn.Linear(3, 3)

LSTM = nn.LSTM(3, 3)

W1 = torch.ones(3, requires_grad=True)


class NoFn(torch.autograd.Function):
    forward = staticmethod(functools.partial(lambda k, ctx, x: x * k, 2))

    @staticmethod
    def backward(ctx, g):
        return g


class KwOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, *, k=2):
        return x * k

    @staticmethod
    def backward(ctx, g):
        return g


class Saves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_backward(x, x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * len(ctx.saved_tensors)


class Sub(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 3)

    def forward(self, x):
        return x + self.l.weight.shape[0]


class GetAttr(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 2

    __getattr__ = functools.partialmethod(nn.Module.__getattr__)


GA = GetAttr()


class Callable_:
    def __call__(self, x):
        return x + 1


class Holder:
    call = Callable_()


class Slotted:
    __slots__ = ("n",)


Plain.n = 1


class Meta(type):
    def __getattribute__(cls, name):
        return super().__getattribute__(name)


class Meta2(metaclass=Meta):
    n = 2


def gb0002(x: Any) -> Any:
    assert x.shape[0] < 100, "large"
    return x + 1


def gb0004(x: Any) -> Any:
    GIVEN.b = 2
    GIVEN.drop("b")
    return x + hasattr(GIVEN, "b")


def gb0013(x: Any) -> Any:
    h = MODULE.register_forward_hook(lambda *a: None)
    y = MODULE(x).detach()
    h.remove()
    return y


def gb0014(x: Any) -> Any:
    return LSTM(x[None])[0].detach()


def gb0017(x: Any) -> Any:
    return REGION2(x)


def gb0023(x: Any) -> Any:
    return x + operator.lt(1, 2) + operator.eq("a", x.dim())


def gb0034(x: Any) -> Any:
    assert x.sum() < 100, "large"
    return x + 1


def gb0042(x: Any) -> Any:
    return REGION(x)


def gb0047(x: Any) -> Any:
    return (lambda y, *a, k=1, **kw: y + len(a) + k + len(kw))(x, 1, 2, k=3, z=4)


def gb0084(x: Any) -> Any:
    made = Derived()
    made.drop("".join(["a"]))
    return x + hasattr(made, "a")


def gb0085(x: Any) -> Any:
    return NoFn.apply(x)


def gb0105(x: Any) -> Any:
    return torch.from_numpy(x.numpy() + 1)


def gb0108(x: Any) -> Any:
    y = (x * WEIGHT) + 1
    y.retain_grad()
    return y


def gb0119(x: Any) -> Any:
    try:
        Uninit().weight
    except AttributeError:
        return x + 1
    return x


def gb0138(x: Any) -> Any:
    return Saves.apply(x)


def gb0141(x: Any) -> Any:
    return x + (id(x) == id(x))


def gb0161(x: Any) -> Any:
    return x + len(list(MODULE.children()))


def gb0162(x: Any) -> Any:
    return Sub()(x).detach()


def gb0168(x: Any) -> Any:
    return torch.add(*[x, x], **{"alpha": 2})


def gb0178(x: Any) -> Any:
    try:
        return x + 1 // 0
    except ZeroDivisionError:
        return x + 1


def gb0180(x: Any) -> Any:
    return x * len(dataclasses.fields(Point(x)))


def gb0188(x: Any) -> Any:
    return x + nn.ReLU().training


def gb0194(x: Any) -> Any:
    return x + isinstance(PLAIN, torch.Tensor)


def gb0211(x: Any) -> Any:
    return x + GA.n


def gb0229(x: Any) -> Any:
    return nn.Parameter(x) + 1


def gb0230(x):
    torch.use_deterministic_algorithms(True, warn_only=True)
    y = x + 1
    torch.use_deterministic_algorithms(False)
    return y


def gb0231(x: Any) -> Any:
    return torch.from_numpy(np.ones(3)) + 1


def gb0255(x: Any) -> Any:
    return Holder().call(x)


def gb0261(x: Any) -> Any:
    m = types.MethodType(functools.partial(lambda a: a + 1), 5)
    return x + m()


def gb0272(x: Any) -> Any:
    s = Slotted()
    s.n = 3
    return x + len({id(s): 1})


def gb0293(x: Any) -> Any:
    return x + torch.from_numpy(np.sin(np.ones(3)))


def gb0330(x: Any) -> Any:
    return W.wrap_with_set_grad_enabled(True, lambda y: y + 1, x)


def gb0331(x: Any) -> Any:
    return wrap.wrap_with_set_grad_enabled(x.dim() == 2, lambda y: y + 1, x)


def gb0332(x: Any) -> Any:
    return wrap.wrap_with_set_grad_enabled(True, lambda y: y + x, x)


def gb0333(x: Any) -> Any:
    return W.wrap_with_autocast("cpu", None, True, None, lambda y: y + 1, x)


def gb0334(x: Any) -> Any:
    return wrap.wrap_with_autocast("cpu", None, True, None, lambda y: y + x, x)


def gb0337(x: Any) -> Any:
    return strict_mode(lambda y: y + 1, (x,))


def gb0339(x: Any) -> Any:
    return while_loop(lambda y: False, lambda y: (y + 1,), (x + 1,))


def gb0344(x: Any) -> Any:
    return wrap.wrap_with_autocast("cpu", None, x.dim() == 2, None, lambda y: y + 1, x)


def gb0367(x: Any) -> Any:
    return x + (operator.itemgetter(1) == operator.itemgetter(1))


def gb0371(x: Any) -> Any:
    return torch.autograd.grad((W1 * x).sum(), W1)[0] + x


def gb0459(x: Any) -> Any:
    return x if f"{collections.defaultdict(list, a=[1])}" == "" else x + 1


def gb0682(x: Any) -> Any:
    return x + len({PLAIN.__class__: 1, PLAIN.__init__: 2})


def gb0808(x: Any) -> Any:
    return x + operator.length_hint([1])


def gb1275(x: Any) -> Any:
    return x if repr({"a": 1}.keys()) == "" else x + 1


def gb1584(x: Any) -> Any:
    def inner():
        return x

    return x if repr(inner) == "" else x + 1


def gb3775(x: Any) -> Any:
    return x + int("3") + int(2.5)


def gb4240(x: Any) -> Any:
    return x + collections.ChainMap({"a": 1})["a"]


def gb4372(x: Any) -> Any:
    return KwOnly.apply(x)


def gb4749(x: Any) -> Any:
    try:
        return x + len({[]: 1})
    except TypeError:
        return x + 1


def gb4880(x: Any) -> Any:
    return x + types.MappingProxyType({"a": 1})["a"] + collections.UserDict(a=1)["a"]


def gb5458(x: Any) -> Any:
    return x + Meta2.n


def gb5904(x: Any) -> Any:
    return x + collections.UserList([1])[0] + "abc".__getitem__(0).__len__()


def gb7286(x: Any) -> Any:
    return x + float(np.float64(2)) + float("2")


def gb7324(x: Any) -> Any:
    return (x + 1).requires_grad_()


def gb7510(x: Any) -> Any:
    return x + (+collections.Counter("ab"))["a"]


def gb7786(x: Any) -> Any:
    d = collections.UserDict()
    d["a"] = 1
    m = memoryview(bytearray(b"abc"))
    m[0] = 1
    return x + m[0]


def gb8435(x: Any) -> Any:
    return x + memoryview(b"abc")[0]


def gb8985(x: Any) -> Any:
    y = (x + 1).requires_grad_()
    return y * 2


def gb9198(x: Any) -> Any:
    return x if repr(object()) == "" else x + 1


def gb9548(x: Any) -> Any:
    return x + abs(np.float32(-2.0)).item()


def gb9648(x: Any) -> Any:
    return x + (slice(1, 2) == slice(1, 2)) + (range(3) == range(3))


def gb0110(x: Any) -> Any:
    return torch.empty_like(x).uniform_(**{"from": 2, "to": 3}) * 0 + x


def gb0074(x: Any) -> Any:
    return torch.cond(x.sum() < 9, LAYER, lambda y: y + 1, (x,)).detach()


LAYER = nn.Linear(3, 3)


def gb0300(x: Any) -> Any:
    return x + np.finfo(np.float32).bits


def gb0027(x: Any) -> Any:
    made = [x + 1]
    return x * (made[0] is x)


def gb0030(x: Any) -> Any:
    comptime.graph_break()  # does nothing but while torch.compile traces
    return x + 1


def gb0264(x: Any) -> Any:
    return torch.nn.Parameter(x).detach() + 1


def gb1381(x: Any) -> Any:
    weight = torch.ones(2, 3, requires_grad=True)
    loss = (weight * x).sum()
    (first,) = torch.autograd.grad(loss, weight, retain_graph=True)
    (second,) = torch.autograd.grad(loss, weight)
    return first + second


def gb4927(x: Any) -> Any:
    weight = torch.ones(2, 3, requires_grad=True)
    made = weight * x
    (found,) = torch.autograd.grad(made.sum(), weight, retain_graph=True)
    return found, made


class Scaled(torch.Tensor):
    @staticmethod
    def __new__(cls, x, scale):
        made = torch.Tensor._make_subclass(cls, x)
        made.scale = scale
        return made


def gb0026(x: Any) -> Any:
    return (Scaled(x, 3) * 2).as_subclass(torch.Tensor)


def gb0116(x: Any) -> Any:
    return x + 1, fractions.Fraction(1, 2)


def gb1724(x: Any) -> Any:
    y = x.clone().requires_grad_()
    return torch.autograd.grad((y * y).sum(), {"a": y})["a"]
