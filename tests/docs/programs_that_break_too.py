"""More programs that break the graph here too, by the code of torch.compile's type."""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
import weakref
from typing import NamedTuple

import torch
import torch._prims_common as pc
import torch.distributed as dist
import torch.utils._pytree as pytree
import torch.utils.checkpoint
from torch import nn
from torch._dynamo.decorators import leaf_function
from torch._higher_order_ops.strict_mode import strict_mode
from torch.autograd.graph import get_gradient_edge
from torch.distributed.tensor import Shard
from torch.nn import functional as F

from tests.docs.programs_decided import DELEGATE

NT = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


class P:
    pass


OBJ = P()
OBJ.a = 1


@torch.compiler.disable
def disabled(x):
    return x + 1


HANDLE = None


def keep(y):
    global HANDLE
    HANDLE = y.register_hook(lambda g: g)


MODULE = nn.Linear(3, 3)


ENG = torch.autograd.Variable._execution_engine


@torch._dynamo.nonstrict_trace
def nonstrict(*a):
    return a[-1] + 1


@torch._dynamo.nonstrict_trace
def nonstrict_obj(x):
    return P()


@dataclasses.dataclass(frozen=True)
class Const:
    n: int


pytree.register_constant(Const)


class Ctx:
    def __init__(self, t, o):
        self.t, self.o = t, o


pytree.register_pytree_node(Ctx, lambda c: ([c.t], c.o), lambda v, o: Ctx(v[0], o))


LIST = nn.ModuleList([nn.Linear(3, 3)])


class MyShard(Shard):
    def __getattr__(self, n):
        return 3


PL = MyShard(0)


W = torch.ones(2, 3, requires_grad=True)


EXT = W * 2


@torch._dynamo.assume_constant_result
def assumed(x):
    raise RuntimeError("a")


@leaf_function
def leaf(x):
    return (x + 1,)


@leaf_function
def leafm(m, x):
    return (m(x).detach(),)


class Holder:
    val = 1


EDGE = get_gradient_edge(EXT)


class NTup(NamedTuple):
    a: int


def base():
    return Holder


PROFILE = torch.classes.profiling._ScriptProfile()


HELD = []


async def agen2(x):
    yield x + 1


def gb0008(x):
    return MODULE.__sizeof__() > 0 and x + 1


def gb0037(x):
    return torch.bincount(x.long().abs().flatten())


def gb0044(x):
    return x + (NT * 2).to_padded_tensor(0.0).sum()


LIBRARY = torch.library.Library("armature_undecided", "FRAGMENT")
LIBRARY.define("without_fake(Tensor x) -> Tensor")
LIBRARY.impl("without_fake", lambda x: torch.tensor(x.tolist()) + 1, "CPU")


def gb0090(x):
    return torch.ops.armature_undecided.without_fake(x)


def gb0099(x):
    return list(map(disabled, [x]))


def gb0129(x):
    s = x.to_sparse()
    s.sparse_resize_((4, 4), 2, 0)
    return s.to_dense()


def gb0130(x):
    s = x.to_sparse()
    s.sparse_resize_and_clear_((4, 4), 2, 0)
    return s.to_dense()


def gb0147(x):
    return x + (sys.getsizeof([]) > 0)


def gb0233(x):
    return torch.nested.nested_tensor([x[0], x[1]], layout=torch.strided).to_padded_tensor(0.0)


def gb0243(x):
    return F.pad(x, torch.nn.modules.utils._pair(1)), len(torch.nn.modules.utils._pair(OBJ))


def gb0296(x):
    print(OBJ.__class__, end="")
    return x + 1


def gb0442(x):
    y = (x * W).sum()
    try:
        y.backward(inputs=[])
    except RuntimeError:
        return x + 1


def gb1042(x):
    p = x.clone().requires_grad_()
    (p * p).sum().backward(inputs=[p])
    return p.grad


def gb7054(x):
    p = x.clone().requires_grad_()
    q = p * 2
    q.retain_grad()
    (q * q).sum().backward(inputs=[q])
    return q.grad


def gb6210(x):
    return leafm(nn.Identity(), x)[0]


def gb6215(x):
    return x + (x.sum == x.sum) + (OBJ.__init__ == OBJ.__init__)


def gb7444(x):
    q = x * W
    q.register_hook(lambda g: g * 2 if g.is_contiguous() else g * 3)
    return q.detach()


def gb7650(x):
    g = torch.Generator().manual_seed(3)
    return x + torch.rand(3, generator=g)


def gb8977(x):
    class L(base()):
        pass

    return x + L().val


def gb0079(x):
    try:
        agen2(x).asend(None).send(None)
    except StopIteration as s:
        return s.value


def gb6604(x):
    try:
        raise ValueError
    except* ValueError:
        y = x + 1
    return y


def gb0101(x):
    y = MODULE(x)
    keep(y)
    return y.detach()


def gb0121(x):
    return x + (MODULE.__sizeof__() > 0)


def gb0146(x):
    return x + (torch.cuda.Event(enable_timing=True) is None)


def gb0165(x):
    return x + ENG.is_checkpoint_valid()


def gb0166(x):
    try:
        ENG.queue_callback(lambda: None)
    except RuntimeError:
        return x + 1


def gb0212(x):
    HELD.append(torch.profiler.profile())
    return x + 1


def gb0236(x):
    return nonstrict(OBJ, x)


def gb0238(x):
    return nonstrict(Const(2), x)


def gb0239(x):
    return nonstrict(Ctx(x, OBJ), x)


def gb0251(x):
    return x + 1, type(nonstrict_obj(x)).__name__


def gb3840(x):
    return leaf(x)[0]


def gb4297(x):
    torch._dynamo.skip_frame()
    return x + 1


def gb4636(x):
    y = x + 1
    torch._dynamo.step_unsupported()
    return y + 1


def gb5195(x):
    try:
        return pc.elementwise_dtypes("a", type_promotion_kind=pc.ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)
    except Exception:
        return x + 1


def gb0248(x):
    try:
        torch.get_device_module(1, 2)
    except TypeError:
        return x + 1


def gb0285(x):
    try:
        torch.accelerator.current_stream(1, 2)
    except TypeError:
        return x + 1


def gb1140(x):
    try:
        return torch.autograd.grad(5, x)
    except (TypeError, AttributeError, RuntimeError, AssertionError):
        return x + 1


def gb0249(x):
    try:
        torch.accelerator.current_stream(OBJ)
    except (TypeError, RuntimeError):
        return x + 1


def gb0286(x):
    try:
        torch.get_device_module(OBJ)
    except (TypeError, RuntimeError):
        return x + 1


def gb5748(x):
    return torch.autograd.grad((x * EXT).sum(), EDGE, retain_graph=True)[0]


def gb7489(x):
    try:
        return x.add(OBJ)
    except TypeError:
        return x + 1


def gb0265(x):
    try:
        return PROFILE.not_there(x)
    except (AttributeError, RuntimeError):
        return x + 1


def gb0266(x):
    PROFILE.enable()
    PROFILE.disable()
    return x + 1


def gb0267(x):
    try:
        return x + PROFILE.attr
    except (AttributeError, RuntimeError):
        return x + 1


def gb0279(x):
    a = torch.fx.traceback.annotate({"a": 1})
    print("", end="")
    with a:
        return x + 1


def gb0281(x):
    return LIST[(x[0, 0] > 5).long()](x).detach()


def gb0282(x):
    return x + PL.other + PL.dim


def gb0283(x):
    s = torch.Stream(device="cpu")
    return x + 1, weakref.ref(s)() is s


def gb0307(x):
    try:
        return torch.ops.higher_order.run_const_graph(None, x)
    except AssertionError:
        return x + 1


def gb0327(x):
    return DELEGATE(MODULE, x, foo=1)


def gb6017(x):
    return DELEGATE(5, x)


def gb0345(x):
    try:
        return strict_mode(lambda y: y + 1, x)
    except Exception:
        return x + 1


def gb0372(x):
    return torch.autograd.grad((x * EXT).sum(), W, retain_graph=True)[0]


def gb7299(x):
    y = x.clone().requires_grad_()
    z = (y * 2).detach()
    try:
        return torch.autograd.grad(z.sum(), y)[0]
    except RuntimeError:
        return x + 1


def gb6663(x):
    try:
        return torch.autograd.grad("a", x)
    except (TypeError, AttributeError, RuntimeError, AssertionError):
        return x + 1


def gb2922(x):
    try:
        return x * assumed(x)
    except RuntimeError:
        return x + 1


def gb5173(x):
    return x + torch.ones(2, 3, device="meta")


def gb8887(x):
    try:
        NTup(1).__setattr__("a")
    except TypeError:
        return x + 1


def gb2483(x):
    return x + 1, str(re.compile("a"))


def gb6053(x):
    return x + 1, repr(re.compile("a")), repr(itertools.count(3))


def gb2696(x):
    dist.isend(x, 1).wait()
    return x + 1


def gb9300(x):
    for w in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1)]):
        w.wait()
    return x + 1
