"""`torch.autograd.Function`: forward and backward are traced, whatever Python they are written in."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd.function import once_differentiable

import armature
from armature.trace.errors import GraphBreak
from tests.support.resuming import resumes
from tests.support.tensor_programs import compare, same
from tests.support.tracing import break_of, trace

Function = torch.autograd.Function
SLOPE = 0.25
LIMITS = {"low": -0.5, "high": 0.5}
WEIGHT = torch.linspace(0.5, 1.5, 3)
LEARNT = torch.linspace(0.5, 1.5, 3).requires_grad_()
LOG: list[int] = []


def both() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_(), torch.linspace(1, 2, 6).reshape(
        2, 3
    ).requires_grad_()


def first() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = both()
    return x, y.detach()


def neither() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = both()
    return x.detach(), y.detach()


def leaky(t: torch.Tensor, slope: float) -> torch.Tensor:
    return torch.where(t > 0, t, t * slope)


def gelu(t: torch.Tensor) -> torch.Tensor:
    return t * 0.5 * (1.0 + torch.tanh(0.79788456 * t * (1 + 0.044715 * t * t)))


class Helper(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return leaky(x, SLOPE)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        result = grad.clone()
        result[x <= 0] = 0
        return result + leaky(grad, SLOPE)


class Clamp(Function):
    @staticmethod
    def forward(ctx, x, *limits):
        ctx.mask = (x > LIMITS["low"]) & (x < LIMITS["high"])
        ctx.limits = limits
        return x.clamp(*limits)

    @staticmethod
    def backward(ctx, grad):
        grad[~ctx.mask] = 0
        return (grad, *[None for _ in ctx.limits])


class Intermediate(Function):
    @staticmethod
    def forward(ctx, x, y):
        exp, sin = x.exp(), y.sin()
        out = exp * sin
        ctx.save_for_backward(exp, None, sin, out, y)
        ctx.size = x.shape[0]
        return out

    @staticmethod
    def backward(ctx, grad):
        exp, nothing, sin, out, y = ctx.saved_tensors
        assert nothing is None
        gx = gy = None
        if ctx.needs_input_grad[0]:
            gx = grad * out
        if ctx.needs_input_grad[1]:
            gy = grad * exp * y.cos() * ctx.size / sin * sin
        return gx, gy


class Several(Function):
    @staticmethod
    def forward(ctx, x, sizes, name, y):
        ctx.sizes = sizes
        ctx.name_of = name
        parts = x.split(sizes, dim=1)
        ctx.other = y
        return parts[0] * 2, name, parts[1] * y[:, :1], len(sizes)

    @staticmethod
    def backward(ctx, first, nothing, second, none):
        assert nothing is None and none is None
        gy = torch.zeros_like(ctx.other)
        gy[:, 0] = second.sum(1)
        return torch.cat([first * 2, second * ctx.other[:, :1]], 1), None, None, gy


class Marked(Function):
    @staticmethod
    def forward(ctx, x):
        values, indices = x.sort(dim=1)
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices)
        rounded = values.round()
        ctx.mark_non_differentiable(indices, rounded)
        return values, indices, rounded

    @staticmethod
    def backward(ctx, grad, zero, also):
        (indices,) = ctx.saved_tensors
        assert not zero.is_floating_point() and also is not None
        return torch.zeros_like(grad).scatter(1, indices, grad + also)


class Dirty(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Absent(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, product, total):
        x, y = ctx.saved_tensors
        gx = gy = None
        if product is not None:
            gx, gy = product * y, product * x
        if total is not None:
            gx = total if gx is None else gx + total
            gy = total if gy is None else gy + total
        return gx, gy


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2


class Once(Cube):
    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        return grad * out


class SetUp(Function):
    @staticmethod
    def forward(x, power=2, scale=3.0):
        return scale * x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.power, ctx.scale = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, grad):
        x, output = ctx.saved_tensors
        return grad * ctx.power * ctx.scale * x ** (ctx.power - 1) + 0 * output, None, None


class Base(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = 3
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor


class Derived(Base):
    @staticmethod
    def forward(ctx, x):
        return Base.forward(ctx, x) + 1


class Nested(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Cube.apply(x) + 1

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return Exp.apply(grad) * Base.apply(x)


class AsksMode(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.scale = 5.0 if torch.is_grad_enabled() else 2.0
        return x * ctx.scale

    @staticmethod
    def backward(ctx, grad):
        return grad * (ctx.scale + (10 if torch.is_grad_enabled() else 1))


class NoGradBackward(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.no_grad():
            factor = x.cos()
        return grad * factor * x


class Identity(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad.neg() * ctx.alpha, None


class View(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.view(-1), x.view_as(x)

    @staticmethod
    def backward(ctx, flat, whole):
        return flat.view(ctx.shape) + whole * 2


class Twice(Function):
    @staticmethod
    def forward(ctx, x, y, z):
        return x * y + z, x

    @staticmethod
    def backward(ctx, grad, other):
        return grad * 2, grad * 3 + other, grad


class Captures(Function):
    @staticmethod
    def forward(ctx, x):
        return x * WEIGHT + LEARNT

    @staticmethod
    def backward(ctx, grad):
        return grad * WEIGHT * LEARNT


class Frees(Function):
    @staticmethod
    def forward(ctx, x, items):
        ctx.items = [x * item for item in items]
        return sum(ctx.items)

    @staticmethod
    def backward(ctx, grad):
        total = grad * 0
        for item in ctx.items:
            total += item
        return total, None


class Reshapes(Function):
    @staticmethod
    def forward(ctx, x):
        return x.t() * 1

    @staticmethod
    def backward(ctx, grad):
        if not grad.is_contiguous():
            grad = grad.contiguous()
        return grad.view(-1).view(3, 2).t()


class Stacked(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x @ y.t()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad @ y, grad.t() @ x


class Same(Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        return y, y, x, x

    @staticmethod
    def backward(ctx, first, second, third, fourth):
        return first * 2 + second * 3 + third * 4 + fourth * 5


class Vjp(Function):
    @staticmethod
    def forward(x):
        return x.sin(), x.cos()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def vjp(ctx, grad, other):
        sin, cos = ctx.saved_tensors
        return grad * cos - other * sin


class Columns(Function):
    @staticmethod
    def forward(ctx, x, keys):
        ctx.keys = keys
        ctx.index = {key: k for k, key in enumerate(keys)}
        return x.index_select(1, torch.tensor([ctx.index[key] for key in sorted(keys)]))

    @staticmethod
    def backward(ctx, grad):
        result = torch.zeros(grad.shape[0], 3)
        for key in ctx.keys:
            result[:, ctx.index[key]] = grad[:, sorted(ctx.keys).index(key)]
        return result, None


call_cube = Cube.apply


def closure_function(scale):
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            return x * scale

        @staticmethod
        def backward(ctx, grad):
            return grad * scale

    return Scaled


ByThree = closure_function(3.0)


def helper(x, y):
    return Helper.apply(x) * y


def clamp(x, y):
    return Clamp.apply(x * 1, -0.5, 0.5) + y


def intermediate(x, y):
    return Intermediate.apply(x, y)


def several(x, y):
    a, name, b, count = Several.apply(x, [1, 2], "name", y)
    return a, b, name, count


def marked(x, y):
    return Marked.apply(x * y)


def dirty(x, y):
    z = x * y
    out = Dirty.apply(z)
    return out, z, out is z


def absent_both(x, y):
    return Absent.apply(x, y)


def absent_one(x, y):
    return Absent.apply(x, y)[1] * 2


def once(x, y):
    return Once.apply(x) + y


def cube(x, y):
    return Cube.apply(x) * Exp.apply(y)


def set_up(x, y):
    return SetUp.apply(x), SetUp.apply(x, 3), SetUp.apply(y, 2, 2.0)


def set_up_by_keyword(x, y):
    try:
        return SetUp.apply(y, scale=2.0), x * 2
    except TypeError as error:  # torch 2.11
        return str(error), x * 3


def derived(x, y):
    return Derived.apply(x), Derived.apply(y).relu()


def nested(x, y):
    return Nested.apply(x) + y


def asks_mode(x, y):
    return AsksMode.apply(x) * AsksMode.apply(y)


def no_grad_backward(x, y):
    return NoGradBackward.apply(x) * y


def identity(x, y):
    z = Identity.apply(x, 0.5)
    return z, z is x, z * y


def identity_of_intermediate(x, y):
    z = x * y
    w = Identity.apply(z, 0.5)
    return w, w is z


def view(x, y):
    return View.apply(x)


def twice(x, y):
    return Twice.apply(x, x, y)


def captures(x, y):
    return Captures.apply(x) + y


def frees(x, y):
    z = y * 2
    return Frees.apply(x, [y, z, 3.0])


def reshapes(x, y):
    return Reshapes.apply(x).sum() + Reshapes.apply(y).mean(0, keepdim=True).expand(3, 2).sum()


def closures(x, y):
    return ByThree.apply(x) + y


def under_no_grad(x, y):
    with torch.no_grad():
        z = Identity.apply(x, 2), Helper.apply(x), View.apply(y)
    return z, Helper.apply(y)


def amp(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = Stacked.apply(x, y)
    return z.float()


def in_loop(x, y):
    for k in range(3):
        x = Identity.apply(Helper.apply(x), k)
    return x


def same_twice(x, y):
    a, b, c, d = Same.apply(x * y)
    return a, b, c, d, a is b, c is d


def vjp(x, y):
    return Vjp.apply(x)


def columns(x, y):
    return Columns.apply(x, ["b", "c", "a"]) + y


def alias(x, y):
    return call_cube(x) + call_cube(y)


def sizes_and_math(x, y):
    return Sizes.apply(x, y)


class Sizes(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.rows, ctx.columns = x.shape
        ctx.save_for_backward(y)
        return x * math.sqrt(2) * ctx.rows + y.sum() * ctx.columns

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        ones = torch.ones(ctx.rows, ctx.columns)
        return grad * ones * math.sqrt(2) * ctx.rows, grad.sum() * ctx.columns * y.new_ones(y.size(0), y.size(1))


PROGRAMS = [
    helper, clamp, intermediate, several, marked, dirty, absent_both, absent_one, once, cube, set_up, derived, nested,
    asks_mode, no_grad_backward, identity, identity_of_intermediate, view, twice, captures, frees, reshapes, closures,
    under_no_grad, amp, in_loop, sizes_and_math, same_twice, vjp, columns, alias,
]  # fmt: skip
named = pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)


@named
@pytest.mark.parametrize("make", [both, first, neither])
def test_one_graph(fn: Callable[..., Any], make: Callable[[], Any]) -> None:
    compare(fn, make, fullgraph=True, backward=True)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")
def test_called_on_an_object_of_the_class() -> None:
    def of_an_object(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        function = Cube()  # type: ignore[no-untyped-call]
        return function.apply(x) * y

    compare(of_an_object, both, fullgraph=True, backward=True)


@named
def test_one_graph_where_gradients_are_off(fn: Callable[..., Any]) -> None:
    compare(fn, both, fullgraph=True, around=torch.no_grad)


def grads_of(fn: Callable[..., Any], make: Callable[[], Any], twice: bool) -> tuple[list[Any], str]:
    """First derivatives, and second ones with respect to all inputs; and the error if there is one."""
    inputs = make()
    wanted = [t for t in inputs if t.requires_grad]
    try:
        outputs = [t for t in tuple_of(fn(*inputs)) if isinstance(t, torch.Tensor) and t.requires_grad]
        total = torch.stack([(t * t.detach().cos()).sum() for t in outputs]).sum()
        found = torch.autograd.grad(total, wanted, create_graph=twice, allow_unused=True)
        kept = [None if g is None else g.detach() for g in found]
        if not twice:
            return kept, ""
        state = [None if g is None else g.requires_grad for g in found]
        second = torch.stack([g.pow(2).sum() for g in found if g is not None]).sum()
        return [kept, state, *torch.autograd.grad(second, wanted, allow_unused=True)], ""
    except RuntimeError as error:
        return [], str(error)


def tuple_of(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


@named
@pytest.mark.parametrize("make", [both, first])
def test_differentiated_twice(fn: Callable[..., Any], make: Callable[[], Any]) -> None:
    compiled = armature.compile(fn, backend="eager")
    found, error = grads_of(compiled, make, twice=True)
    expected, expected_error = grads_of(fn, make, twice=True)
    assert error == expected_error
    same(found, expected, "gradients")


DEFAULT = [helper, clamp, intermediate, several, marked, dirty, absent_one, once, set_up, nested, identity, view, frees,
           reshapes, captures, in_loop]  # fmt: skip


@pytest.mark.parametrize("fn", DEFAULT, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("backend", ["aot_eager", "auto"])
def test_compiled(fn: Callable[..., Any], backend: str) -> None:
    compiled = armature.compile(fn, backend=backend, fullgraph=True)
    found, expected = tuple_of(compiled(*both())), tuple_of(fn(*both()))
    for one, other in zip(found, expected):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other)
            assert one.requires_grad == other.requires_grad
    for one, other in zip(grads_of(compiled, both, twice=False)[0], grads_of(fn, both, twice=False)[0]):
        torch.testing.assert_close(
            torch.zeros(2, 3) if one is None else one, torch.zeros(2, 3) if other is None else other
        )


# What runs eagerly as a whole.


class Logs(Function):
    @staticmethod
    def forward(ctx, x):
        LOG.append(1)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class LogsBackward(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        LOG.append(2)
        return grad * 2


class CountsOnContext(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.calls = [0]
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        ctx.calls[0] += 1
        return grad * ctx.calls[0]


class Fills(Function):
    @staticmethod
    def forward(ctx, x, made):
        ctx.made = made
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        ctx.made.append(3)
        return grad * 2, None


class Keeps(Function):
    @staticmethod
    def forward(ctx, x, made):
        made.append(x * 3)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None


class Reads(Function):
    @staticmethod
    def forward(ctx, x):
        return x * x.sum().item()

    @staticmethod
    def backward(ctx, grad):
        return grad


class ReadsBackward(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 if grad.sum() > 0 else grad


class NoBackward(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2


class WrongNumber(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class WrongShape(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad[0, :2]


class Lists(Function):
    @staticmethod
    def forward(ctx, x):
        return [x * 2, x + 1]

    @staticmethod
    def backward(ctx, grad):
        return grad


class GivesGlobal(Function):
    @staticmethod
    def forward(ctx, x):
        return WEIGHT

    @staticmethod
    def backward(ctx, grad):
        return grad.expand(2, 3)


class WritesSilently(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad


class Raises(Function):
    @staticmethod
    def forward(ctx, x):
        raise ValueError("forward")

    @staticmethod
    def backward(ctx, grad):
        return grad


class RaisesBackward(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("backward")


class WritesAndRaises(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        raise ValueError("forward")

    @staticmethod
    def backward(ctx, grad):
        return grad


def writes_and_raises(x, y):
    z = x * y
    try:
        return WritesAndRaises.apply(z)
    except ValueError:
        return z


def fills(x, y):
    made = []
    out = Fills.apply(x, made)
    return out, made


def keeps(x, y):
    made = []
    out = Keeps.apply(x, made)
    return out, made[0] * y


def with_keywords(x, y):
    return Cube.apply(x=x)


def raises(x, y):
    try:
        return Raises.apply(x)
    except ValueError as error:
        return str(error), x + 1


def caller_of(function: type[Function]) -> Callable[..., Any]:
    def call(x, y):
        z = x * y
        out = function.apply(z) if function is not WrongNumber else function.apply(z, y)
        return out, z + 1

    return call


WHOLE = [caller_of(f) for f in (Logs, LogsBackward, CountsOnContext, Reads, ReadsBackward, NoBackward, WrongNumber,
                                WrongShape, Lists, GivesGlobal, WritesSilently, RaisesBackward)]  # fmt: skip


@pytest.mark.parametrize("fn", [*WHOLE, fills, with_keywords, writes_and_raises], ids=lambda fn: fn.__name__)
def test_runs_eagerly_as_a_whole(fn: Callable[..., Any]) -> None:
    assert break_of(fn, *both()) == "autograd-function"
    LOG.clear()
    compare(fn, both, fullgraph=False, backward=fn is not fills)
    assert len(LOG) in (0, 4)


def test_a_break_says_what_was_met_and_where() -> None:
    with pytest.raises(GraphBreak) as stop:
        trace(caller_of(ReadsBackward), *both())
    facts = stop.value.event.facts
    assert facts["function"] == "ReadsBackward"
    assert re.match(r"at test_autograd_functions.py:\d+ in backward: .*known only after", str(facts["met"]))


def test_a_tensor_that_the_program_keeps_in_another_way() -> None:
    assert break_of(keeps, *both()) == "kept-from-inner-graph"
    compare(keeps, both, fullgraph=False, backward=True)


def test_an_exception_of_forward_is_the_programs() -> None:
    compare(raises, neither, fullgraph=True)
    compare(raises, both, fullgraph=False)


def test_effects_of_forward_where_no_gradient_is_wanted() -> None:
    compiled = armature.compile(lambda x: Logs.apply(x) + 1, backend="eager", fullgraph=True)
    LOG.clear()
    for _ in range(3):
        compiled(torch.ones(2))
    assert LOG == [1, 1, 1]


# Guards.


@pytest.mark.parametrize("make", [both, neither])
def test_constants_and_helpers_are_guarded(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = armature.compile(helper, backend="eager", fullgraph=True)
    same(compiled(*make()), helper(*make()), "result")
    monkeypatch.setitem(globals(), "SLOPE", 0.75)
    same(compiled(*make()), helper(*make()), "after a constant has changed")
    monkeypatch.setitem(globals(), "leaky", lambda t, slope: t * slope)
    same(compiled(*make()), helper(*make()), "after a helper has changed")
    same(grads_of(compiled, both, twice=False), grads_of(helper, both, twice=False), "gradients")


def test_what_backward_reads_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = armature.compile(captures, backend="eager", fullgraph=True)
    same(grads_of(compiled, both, twice=False), grads_of(captures, both, twice=False), "gradients")
    monkeypatch.setitem(globals(), "WEIGHT", torch.ones(3) * 7)
    same(grads_of(compiled, both, twice=False), grads_of(captures, both, twice=False), "gradients")
    monkeypatch.setattr(Captures, "backward", staticmethod(lambda ctx, grad: grad * 5))
    same(grads_of(compiled, both, twice=False), grads_of(captures, both, twice=False), "gradients")


def test_one_node_for_a_call() -> None:
    traced = trace(cube, *both())
    assert [getattr(target, "__name__", target) for target in traced.targets()] == ["apply_Cube", "apply_Exp", "mul"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sizes_that_change(backend: str) -> None:
    compiled = armature.compile(sizes_and_math, backend=backend, fullgraph=True, dynamic=True)
    for rows in (2, 5, 7):

        def make(rows: int = rows) -> Any:
            return torch.linspace(-1, 1, rows * 3).reshape(rows, 3).requires_grad_(), torch.ones(
                rows, 3
            ).requires_grad_()

        torch.testing.assert_close(compiled(*make()), sizes_and_math(*make()))
        found, expected = (grads_of(fn, make, twice=False)[0] for fn in (compiled, sizes_and_math))
        torch.testing.assert_close(found, expected)


def test_saved_tensors_are_checked_and_freed_as_in_eager_mode() -> None:
    for fn in (cube, armature.compile(cube, backend="eager", fullgraph=True)):
        x, y = both()
        z = x * 1
        out = fn(z, y)
        z.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()
        out = fn(x, y)
        out.sum().backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            out.sum().backward()


def test_gradients_of_other_strides() -> None:
    compiled = armature.compile(lambda x: Reshapes.apply(x), backend="eager", fullgraph=True)
    for fn in (Reshapes.apply, compiled):
        x = both()[0]
        (found,) = torch.autograd.grad(fn(x), x, torch.arange(6.0).reshape(2, 3).t())
        torch.testing.assert_close(found, torch.arange(6.0).reshape(2, 3).t().reshape(3, 2).t())


class Doubled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, scale):
        return (x * scale).sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[1]

    @staticmethod
    def backward(ctx, grad):
        return (grad * ctx.scale).expand(4), None


class NoRule(Doubled):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, dims, x, scale):
        return (x * scale).sum(), None


def rows(function):
    def fn(x):
        return torch.vmap(lambda row: function.apply(row + 1, 2.0))(x)

    return fn


def test_forward_in_vmap() -> None:
    x, fn = torch.randn(3, 4), rows(Doubled)
    assert torch.equal(armature.compile(fn, backend="eager", fullgraph=True)(x), fn(x))
    assert torch.allclose(armature.compile(fn, backend="auto", fullgraph=True)(x), fn(x))


def test_vmap_with_gradients_or_a_rule_of_its_own_breaks() -> None:
    x = torch.randn(3, 4)
    assert break_of(rows(Doubled), x.clone().requires_grad_()) == "autograd-function"
    assert break_of(rows(NoRule), x) == "autograd-function"
    found = []
    for call in (rows(Doubled), armature.compile(rows(Doubled), backend="eager")):
        given = x.clone().requires_grad_()
        call(given).sum().backward()
        found.append(given.grad)
    assert torch.equal(*found)


def test_keywords_are_taken_where_torch_takes_them() -> None:
    resumes(set_up_by_keyword, lambda: (torch.ones(2), torch.ones(2, requires_grad=True)))
