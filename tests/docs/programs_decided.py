"""More programs that are one graph here, by the code of torch.compile's type."""

from __future__ import annotations

import importlib.util
import types
import weakref

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import nn
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.map import map as hop_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.strict_mode import strict_mode
from torch._library.opaque_object import MemberType, register_opaque_type
from torch._opaque_base import OpaqueBase
from torch.fx.experimental.symbolic_shapes import guard_scalar
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

import armature


class Doubler:
    def __call__(self, x):
        return x * 2


class Base6:
    thing = Doubler()


class Derived6(Base6):
    def run(self, x):
        return super().thing(x)


D6 = Derived6()


class P:
    pass


OBJ = P()
OBJ.a = 1


def add1(self, n):
    return self + n


REF = weakref.ref(OBJ)


class Sub(torch.Tensor):
    def mean(self):
        return self * 3

    @property
    def itemsize(self):
        return 77


class Doubling(dict):
    def __setitem__(self, k, v):
        super().__setitem__(k, v * 2)


def counter():
    n = 0

    def inc():
        nonlocal n
        n += 1
        return n

    return inc


PAR = nn.Parameter(torch.ones(3))
PAR.grad = torch.ones(3)
PAR.data = PAR.data.double()


class CallableGet:
    def __call__(self, name):
        return 7


class WithGet:
    __getattr__ = CallableGet()


WG = WithGet()


class Slotted:
    __slots__ = ("a",)


SL = Slotted()


class CallB:
    def __call__(self, ctx, g):
        return g * 2


class CB(torch.autograd.Function):
    backward = CallB()

    @staticmethod
    def forward(ctx, x):
        return x + 1


LEARNED = torch.ones(2, 3, requires_grad=True)


class Op(OpaqueBase):
    def __init__(self, n):
        self.n = n

    def get(self):
        return self.n

    @property
    def prop(self):
        return self.n

    def other(self):
        return Op(3)


register_opaque_type(
    Op, typ="reference", members={"get": MemberType.USE_REAL, "n": MemberType.USE_REAL, "other": MemberType.USE_REAL}
)


OP = Op(2)


class Op2(OpaqueBase):
    def __init__(self, n):
        self.n = n


register_opaque_type(Op2, typ="reference")


OP2 = Op2(4)


class Op3(OpaqueBase):
    def __getattr__(self, n):
        return 5


register_opaque_type(Op3, typ="reference", members={"x": MemberType.USE_REAL})


OP3 = Op3()


BUF = nn.Linear(3, 3)
BUF.register_buffer("count", torch.zeros(2, 3))


EMB = nn.Embedding(5, 3, sparse=True)


class Slot2:
    __slots__ = ("a",)


class Holder:
    val = 1


HOLD = Holder()


INNER = armature.compile(lambda y: y * 2 + 1, backend="eager")


class Delegate(torch._ops.HigherOrderOperator):
    def __init__(self):
        super().__init__("executorch_call_delegate2")

    def __call__(self, *a, **k):
        return super().__call__(*a, **k)


DELEGATE = Delegate()


for k in (torch._C.DispatchKey.CPU, torch._C.DispatchKey.AutogradCPU):
    DELEGATE.py_impl(k)(lambda *a, **k: a[1] + 1)


HELD = []


class NewArg:
    def __new__(cls, n):
        return super().__new__(cls)

    def __init__(self, n):
        self.n = n


def gb0006(x):
    return D6.run(x)


def gb0009(x):
    return x + len(list(map(importlib.util.find_spec, ["math"])))


LIBRARY = torch.library.Library("armature_decided", "FRAGMENT")
LIBRARY.define("untagged(Tensor x) -> Tensor")
LIBRARY.impl("untagged", lambda x: x + 1, "CompositeExplicitAutograd")


def gb0043(x):
    return torch.ops.armature_decided.untagged(x)


def gb0048(x):
    return x + (id(OBJ) == id(OBJ.__dict__))


def gb0059(x):
    return x + len(bytearray(b"ab")) + bytearray(b"ab")[0]


def gb0067(x):
    seen = []

    def branch(y):
        seen.append(y)
        return y + 1

    return checkpoint(branch, x, use_reentrant=False), len(seen)


def gb0068(x):
    return strict_mode(lambda y: y + y.stride(0), (x,))


def gb0071(x):
    return types.MethodType(add1, x)(1)


def gb0081(x):
    try:
        return x.not_there()
    except AttributeError:
        return x + 1


def gb0089(x):
    try:
        try:
            raise ValueError
        except ValueError:
            raise KeyError("a")
    except KeyError:
        return x + 1


def gb0093(x):
    return x + 1, REF().a


def gb0095(x):
    try:
        raise ValueError
    except ValueError as e:
        e.__traceback__ = e.__traceback__
        return x + 1


def gb0102(x):
    return strict_mode(lambda y: y.data + 1, (x,))


def gb0103(x):
    return x.as_subclass(Sub).mean().as_subclass(torch.Tensor)


def gb0131(x):
    d = Doubling()
    d["a"] = x
    return d["a"]


def gb0148(x):
    return x.unsqueeze_(0) + 1


def gb0164(x):
    return x * x.as_subclass(Sub).itemsize


def gb0169(x):
    c = counter()
    return x + c() + c()


def gb0181(x):
    return (x * PAR).detach()


def gb0205(x):
    ctx = torch.autograd.function.FunctionCtx()
    ctx.save_for_backward(x)
    return x + len(ctx.to_save)


def gb0214(x):
    n = x.shape[0]
    return x + (n == "a") + (n in (1, "a", 2)) + (n != "b")


gb0214.dynamic = True


def gb0215(x):
    return x + (x == "a") + (x is None) + (x != (1,))


def gb0228(x):
    return nn.Parameter(x.clone()).detach() * 2


def gb0235(x):
    return nn.Parameter(x[:, : x.shape[0]]).detach() * 2


gb0235.dynamic = True


def gb0241(x):
    v, i = torch.empty(3, 2).t(), torch.empty(3, 2, dtype=torch.long).t()
    torch.sort(x, out=(v, i))
    return v + i


def gb0244(x):
    return nn.Parameter(torch.ones(3)).detach() + x


def gb0247(x):
    out = torch.empty(0)
    torch.add(x, 1, out=out)
    return out


def gb0256(x):
    return x + WG.anything


def gb0274(x):
    enter = torch.no_grad().__enter__
    enter()
    torch.set_grad_enabled(True)
    return x + 1


def gb0276(x):
    try:
        r = weakref.ref(SL)
    except TypeError:
        r = None
    return x + (r is None)


def gb0304(x):
    return torch.ops.higher_order.while_loop(lambda y, n: y.sum() < 0, lambda y, n: (y + 1,), (x,), (2,))[0]


def gb0314(x):
    return checkpoint(lambda y: (y + 1, "a"), x, use_reentrant=False)[0]


def gb0316(x):
    try:
        return torch.ops.higher_order.associative_scan(lambda a, b: a + b, (x,), 5)
    except AssertionError:
        return x + 1


def gb0322(x):
    try:
        return scan(lambda c, y: (c, y + 1), [], x)
    except RuntimeError:
        return x + 1


def gb0323(x):
    return torch.ops.higher_order.scan(lambda c, y, n: (c + n, y + n), (x[0],), (x,), (x[1],))[0]


def gb0325(x):
    try:
        return hop_map(lambda y: y + 1, x, foo=1)
    except TypeError:
        return x + 1


def gb0335(x):
    try:
        return hints_wrapper(lambda y: y + 1, (x,), {})
    except TypeError:
        return x + 1


def gb0341(x):
    try:
        return torch.ops.higher_order.associative_scan(lambda a, b: a + b)
    except TypeError:
        return x + 1


def gb0342(x):
    try:
        return scan(5, x[0], x)
    except RuntimeError:
        return x + 1


def gb0352(x):
    return CB.apply(x * LEARNED).detach()


def gb0355(x):
    try:
        return torch.func.grad(lambda y: (y.sum(), y))(x)
    except RuntimeError:
        return x + 1


def gb0356(x):
    q = torch.ones(1, 1, 128, 16)
    b = torch.ones(128, requires_grad=True)
    return x + flex_attention(q, q, q, score_mod=lambda s, bb, h, i, j: s + b[i]).sum().detach()


def gb0360(x):
    return x + guard_scalar(x.shape[0])


gb0360.dynamic = True


def gb0362(x):
    return x + OP2.n


def gb0363(x):
    return x + Op(5).n


def gb0370(x):
    HELD.append(torch.profiler.record_function("a"))
    return x + 1


def gb1177(x):
    def body(y):
        BUF.count = y
        return y + 1

    return checkpoint(body, x, use_reentrant=False), BUF.count


def gb1297(x):
    ring = []
    ring.append(ring)
    return x + len(ring[0][0])


def gb1380(x):
    return strict_mode(lambda y: y[0] + 1, (x,))


def gb1501(x):
    return EMB(x.long().abs()).detach() + 1


def gb1739(x):
    OP.n = 9
    r = x + OP.n
    OP.n = 2
    return r


def gb1752(x):
    return x + sum(i for i in memoryview(b"ab"))


def gb2078(x):
    return x + OP.prop


def gb3241(x):
    s = Slot2()
    s.a = 1
    del s.a
    return x + hasattr(s, "a")


def gb4347(x):
    try:
        next([1])
    except TypeError:
        return x + 1


def gb4393(x):
    try:
        issubclass(5, int)
    except TypeError:
        return x + 1


def gb4413(x):
    def body(y):
        HOLD.val = 5
        return y + HOLD.val

    r = checkpoint(body, x, use_reentrant=False)
    HOLD.val = 1
    return r


def gb7502(x):
    o = NewArg(2)
    o.z = x
    return x + o.n, o.z


def gb7685(x):
    try:
        return x + Op.nothing
    except AttributeError:
        return x + 1


def gb8656(x):
    return x + OP3.x


def gb8843(x):
    return x + OP.other().n


def gb9186(x):
    y = x.clone().requires_grad_()
    return torch.autograd.grad((y * y).sum(), y)[0]


def gb9567(x):
    return x + len(Op.__dict__["prop"].fget.__name__) + (Op.prop is not None)


def gb9741(x):
    return torch.vmap(INNER)(x)


def gb9860(x):
    op = dist.P2POp(dist.isend, x, 1)
    op.tag = 3
    op.tensor = x + 1
    return op.tensor, op.tag


def gb1750(x):
    op = dist.P2POp(dist.isend, x, 1)
    return x + 1, op.peer


def gb3343(x):
    HELD.append(dist.P2POp(dist.isend, x, 1))
    return x + 1
