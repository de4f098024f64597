"""Programs that break the graph here too, by the code of torch.compile's type; ours that covers it is another one."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import logging
import operator
from typing import Any

import numpy as np
import torch
import torch.utils.checkpoint
from torch import nn
from torch._higher_order_ops import wrap
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as hop_map
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F


class Derived:
    def __init__(self):
        self.a = 1

    def drop(self, name):
        super().__delattr__(name)


SCRIPTED = torch.jit.script(nn.Linear(3, 3))

log = logging.getLogger("q")
log.addHandler(logging.NullHandler())
log.propagate = False

OPT = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1)

MODULE = nn.Linear(3, 3)


@torch._dynamo.nonstrict_trace
def nonstrict(x):
    return x + 1


class Mat(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx._materialize_non_diff_grads = False
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g


class DirtyNot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.add_(1)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g


class Escapes(torch.autograd.Function):
    kept = []

    @staticmethod
    def forward(ctx, x):
        Escapes.kept.append(ctx)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g


class Sc(torch.Tensor):
    pass


BH = nn.Linear(3, 3)
BH.register_full_backward_hook(lambda *a: None)


class Un:
    __hash__ = None


class Un2:
    pass


class Plain:
    pass


def numbers(x: Any) -> Any:
    yield x + 1
    yield x + 2


def gb0019(x: Any) -> Any:
    return Escapes.apply(x)


def gb0028(x: Any) -> Any:
    try:
        raise 5
    except TypeError:
        return x + 1


def gb0038(x: Any) -> Any:
    return x + len([1, 2, 3][: torch.tensor(2)])


def gb0040(x: Any) -> Any:
    return torch.cond(torch.tensor(True), lambda y: y, lambda y: y + 1, (x,))


def gb0041(x: Any) -> Any:
    return torch.cond(torch.tensor(True), lambda y: y.add_(1), lambda y: y + 1, (x.clone(),))


def gb0049(x: Any) -> Any:
    return torch.ops.aten.not_there(x)


def gb0078(x: Any) -> Any:
    return nonstrict(x)


def gb0083(x: Any) -> Any:
    return BH(x).detach()


def gb0100(x: Any) -> Any:
    global HANDLE
    y = MODULE(x)
    HANDLE = y.register_hook(lambda g: g)
    return y.detach()


def gb0109(x: Any) -> Any:
    return x * x.tolist()[0][0]


def gb0140(x: Any) -> Any:
    return Mat().name() and x


def gb0142(x: Any) -> Any:
    with memoryview(b"abc") as v:
        return x + len(v)


def gb0154(x: Any) -> Any:
    try:
        return x + len(list(itertools.accumulate([1], first=2)))
    except TypeError:
        return x + 1


def gb0155(x: Any) -> Any:
    try:
        return x + len(list(itertools.groupby([1], first=2)))
    except TypeError:
        return x + 1


def gb0182(x: Any) -> Any:
    try:
        return x == torch.ones(7)
    except RuntimeError:
        return x + 1


def gb0209(x: Any) -> Any:
    with torch.autograd._unsafe_preserve_version_counter(x):
        return x + 1


def gb0218(x: Any) -> Any:
    return x + [1, 2][(x[0, 0] > 0).long()]


def gb0221(x: Any) -> Any:
    @contextlib.contextmanager
    def managed() -> Any:
        return numbers(1)

    with managed() as n:
        return x + n


def gb0223(x: Any) -> Any:
    return torch.compile(MODULE, "eager")(x)


def gb0227(x: Any) -> Any:
    return nn.Parameter(x.as_subclass(Sc))


def gb0246(x: Any) -> Any:
    return F.one_hot((x > 0).long())


def gb0250(x: Any) -> Any:
    return x * len(x.numpy().astype(object))


def gb0258(x: Any) -> Any:
    try:
        return x + len(collections.deque(1, 2, 3))
    except TypeError:
        return x + 1


def gb0260(x: Any) -> Any:
    try:
        functools.partial()
    except TypeError:
        return x + 1
    return x


def gb0268(x: Any) -> Any:
    try:
        return x + len(list(itertools.product([1], first=2)))
    except TypeError:
        return x + 1


def gb0277(x: Any) -> Any:
    return (x.to_sparse() * 2).to_dense()


def gb0278(x: Any) -> Any:
    return x + len(collections.Counter("aab")) + len(collections.OrderedDict.fromkeys("ab"))


def gb0287(x: Any) -> Any:
    return x + len(type.__dict__["__annotations__"].__get__(Derived))


def gb0290(x: Any) -> Any:
    return x, np.add.reduce(np.ones(3))


def gb0291(x: Any) -> Any:
    log.warning("a")
    return x + 1


def gb0294(x: Any) -> Any:
    return x + np.busday_count("2020-01", "2020-02")


def gb0298(x: Any) -> Any:
    return x + float(np.random.default_rng(0).random() * 0)


def gb0302(x: Any) -> Any:
    return torch.cond(torch.tensor(True), 5, lambda y: y + 1, (x,))


def gb0303(x: Any) -> Any:
    return while_loop(lambda y: y.sum() < 0, lambda y: y + 1)


def gb0308(x: Any) -> Any:
    return while_loop(lambda y: y < 0, lambda y: (y + 1,), (x,))


def gb0309(x: Any) -> Any:
    return torch.cond(torch.tensor(True), lambda y: y)


def gb0311(x: Any) -> Any:
    return torch.cond(torch.tensor(True), lambda y: y + 1, lambda y: y + 2, x)


def gb0312(x: Any) -> Any:
    return torch.cond(torch.tensor(True), lambda y: y + 1, lambda y: x + 2, ("a",))


def gb0313(x: Any) -> Any:
    return torch.cond(torch.tensor(True), lambda y: y + 1, lambda y: (y + 2, y + 1), (x,))


def gb0315(x: Any) -> Any:
    return associative_scan(lambda a, b: a + b, 5, 0)


def gb0317(x: Any) -> Any:
    return associative_scan(lambda a, b: a + b, x[:0], 0, combine_mode="generic")


def gb0319(x: Any) -> Any:
    return associative_scan(lambda a, b: (a, b), x, 0, combine_mode="generic")


def gb0320(x: Any) -> Any:
    return scan(lambda c, y: (c + y, y), x[0], 5)


def gb0321(x: Any) -> Any:
    return scan(lambda c, y: (c + y, y), 5, x)


def gb0324(x: Any) -> Any:
    return scan(lambda c, y: (c + y, y.clone()), x[0], x[:0])


def gb0326(x: Any) -> Any:
    return hop_map(lambda y: y + 1, 5)


def gb0329(x: Any) -> Any:
    return wrap.wrap(lambda y: y + 1, x)


def gb0336(x: Any) -> Any:
    return out_dtype(torch.ops.aten.mm.default, torch.float32, x, x.t())


def gb0343(x: Any) -> Any:
    return scan(lambda c, y: c + y, x[0], x)


def gb0347(x: Any) -> Any:
    return Mat.apply(x)


def gb0349(x: Any) -> Any:
    return torch.cond(torch.tensor(True), lambda y: "a", lambda y: "b", (x,))


def gb0350(x: Any) -> Any:
    return torch.cond(torch.tensor(True), lambda y: 1.5, lambda y: 2.5, (x,))


def gb0357(x: Any) -> Any:
    return SCRIPTED(x).detach()


def gb0358(x: Any) -> Any:
    OPT.zero_grad()
    return x + 1


def gb0365(x: Any) -> Any:
    return x + (len({Un(): 1}) if 0 else hash(Un2()) != 0)


def gb0366(x: Any) -> Any:
    return x + len({operator.itemgetter(1): 1})


def gb1319(x: Any) -> Any:
    class Local:
        n = 2

    return x + Local().n


def gb2464(x: Any) -> Any:
    return DirtyNot.apply(x.clone())


def gb2977(x: Any) -> Any:
    return torch.jit.script_if_tracing(lambda y: y + 1)(x)


def gb4501(x: Any) -> Any:
    n = id([1])
    return x + 1, n == 0


def gb5849(x: Any) -> Any:
    made = Plain()
    made.__dict__ = {"a": 1}
    return x + made.a


def gb6735(x: Any) -> Any:
    return torch.library.wrap_triton(1, 2)


def gb7230(x: Any) -> Any:
    try:
        iter()
    except TypeError:
        return x + 1
    return x


def gb7596(x: Any) -> Any:
    return x * x.shape[(x[0, 0] > 0).long()]


def gb9522(x: Any) -> Any:
    return x + hasattr(range(3), "start") + hasattr(len, "__text_signature__")


def gb9672(x: Any) -> Any:
    return x + len(type.__dict__["__mro__"].__get__(Plain))


def gb0018(x):
    count = torch.nonzero(x > 0).size(0)
    return (lambda y, k: y * k)(x, count)


def gb0193(x):
    return x + 1, max(x.shape[0], "b")


def gb0245(x):
    return torch.nested.nested_tensor(x).to_padded_tensor(0.0)


def gb0318(x):
    return associative_scan(lambda a, b: {"z": a + b}, x, 0, combine_mode="generic")


class NoForward(torch.autograd.Function):
    forward = len

    @staticmethod
    def backward(ctx, grad):
        return grad


def gb0346(x):
    return NoForward.apply(x)


def gb0359(x):
    q = x.reshape(1, 1, 2, 3)
    return x + 1, torch.backends.cuda.SDPAParams(q, q, q, None, 0.0, False, False).dropout


@torch._dynamo.assume_constant_result
def assumed(x):
    return 3


def gb2520(x):
    return x * assumed(x)


def gb0096(x):
    torch.backends.an_attribute = 3
    return x + 1


def gb0301(x):
    return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), ("a",))


class NoBackward(torch.autograd.Function):
    backward = len

    @staticmethod
    def forward(ctx, x):
        return x + 1


LEARNED = torch.ones(2, 3, requires_grad=True)


def gb0348(x):
    return NoBackward.apply(x * LEARNED)
