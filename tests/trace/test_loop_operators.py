"""`while_loop`, `scan` and `map` are nodes with a graph for each function that they call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import armature
from armature.errors import Unsupported
from tests.support.resuming import in_one_graph
from tests.support.tensor_programs import leaves, same
from tests.support.tracing import break_of, trace

SCALE = 3.0
BACKENDS = ["eager", "auto"]


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.shift = nn.Linear(3, 3), nn.Parameter(torch.linspace(0, 1, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).tanh() + self.shift


torch.manual_seed(0)
CELL, OTHER = Cell(), torch.linspace(-1, 2, 12).reshape(4, 3)


def zero() -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64)


def counted(x):
    return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * OTHER * SCALE), (zero(), x))


def until_large(x):
    w = x.abs() + 1
    return while_loop(lambda y: y.abs().sum() < 100, lambda y: (y * w + x,), (x * 2,))[0] + w


def never(x):
    return while_loop(lambda i, y: i < -1, lambda i, y: (i + 1, CELL(y)), (zero(), x))


def with_module(x):
    return while_loop(lambda i, y: i < CELL.shift.sum(), lambda i, y: (i + 1, CELL(y)), (zero(), x))


def with_nest(x):
    def body(i, d):
        return i + 1, {"a": d["a"] * 2, "b": [d["b"][0] + d["a"].sum(0)]}

    return while_loop(lambda i, d: i < 3, body, (zero(), {"a": x, "b": [x[0].clone()]}))


def known_false(x):
    return while_loop(lambda y: y.dim() > 5, lambda y: (y + 1,), (x,))


def with_ints(x):
    n = x.shape[0]
    i, k, y = while_loop(lambda i, k, y: i < n * 2, lambda i, k, y: (i + n, k, y * i + x.shape[1] + k), (1, 7, x))
    return i + 1, k, y * i, torch.full((2,), i)


def as_operator(x):
    return torch.ops.higher_order.while_loop(lambda y, w: y.sum() < 50, lambda y, w: (y + w,), (x,), (OTHER.abs(),))


def nests_scanned(x):
    def step(c, a):
        return {"c": c["c"] + a}, (c["c"] * a, [a + 1])

    return scan(step, {"c": x[:, 0].clone() * 0}, x, dim=1, reverse=True)


def sizes_differ(x):
    return scan(lambda c, a: (c + a * CELL.shift, (c * a).sum()), x[0] * 0, x)


def module_scanned(x):
    return scan(lambda c, a: (CELL(c + a) * x.shape[0], c.sum(-1)), x[0] * 0, x)


def several_scanned(x):
    def step(c, a):
        return (c[0] + a[0], c[1] * a[1].sum()), (c[0] - a[1], c[1] + a[0])

    return scan(step, (x[0] * 0, x[0, 0] + 1), (x, (x + 1).t().contiguous().t()))


def mapped(x):
    return torch_map(lambda a, b: (a.sin() + b, {"k": a * SCALE}), x, x[0] * 1)


def module_mapped(x):
    return torch_map(lambda a: CELL(a) * OTHER[0], (x * 1))


def loop_in_scan(x):
    def step(c, a):
        v = while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y * c), (zero(), a))[1]
        return torch.cond(v.sum() > 0, lambda: v + c, lambda: v - c), v.sum()

    return scan(step, x[0] * 0 + 1, x)


def scan_in_loop(x):
    def body(i, y):
        return i + 1, scan(lambda c, a: (c + a, c * a + i), y[0] * 0, y)[1]

    return while_loop(lambda i, y: i < 2, body, (zero(), x))


def no_gradient_inside(x):
    def step(c, a):
        with torch.no_grad():
            d = a * 2
        return c * d, (c + d).detach() + a

    return scan(step, x[0] * 0 + 1, x)


ONE_GRAPH = [counted, until_large, never, with_module, with_nest, known_false, with_ints, as_operator, nests_scanned]
ONE_GRAPH += [sizes_differ, module_scanned, several_scanned, mapped, module_mapped, loop_in_scan, scan_in_loop]
# torch has no derivative of loops over ints, nor of loops in scans.
WITH_GRADIENT = [fn for fn in ONE_GRAPH if fn not in (with_ints, loop_in_scan)] + [no_gradient_inside]


def inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(4, 3), torch.randn(4, 3) + 1]


@pytest.fixture(autouse=True)
def _eager_mode_as_at_first() -> None:
    """In eager mode these operators compile themselves, and fail where that makes symbols of numbers of an earlier call."""
    torch.compiler.reset()


@functools.cache  # most of the time of these tests: torch compiles the loops
def in_eager_mode(fn: Callable[..., Any]) -> list[Any]:
    found = []
    for x in inputs():
        torch.compiler.reset()
        with torch.no_grad():
            found.append(fn(x))
    return found


def learned(call: Callable[..., Any], x: torch.Tensor) -> tuple[Any, ...]:
    """The result and the gradients of the input and of the module."""
    CELL.zero_grad()
    given = x.clone().requires_grad_()
    result = call(given)
    terms = [(t * torch.arange(t.numel()).reshape(t.shape)).sum() for t in leaves(result) if t.requires_grad]
    sum(terms).backward()
    return result, given.grad, [p.grad for p in CELL.parameters()]


@functools.cache
def learned_in_eager_mode(fn: Callable[..., Any]) -> list[tuple[Any, ...]]:
    return [learned(fn, x) for x in inputs()]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", ONE_GRAPH)
def test_one_graph(fn: Callable[..., Any], backend: str, dynamic: bool | None) -> None:
    run = in_one_graph(fn, backend=backend, dynamic=dynamic)
    for x, expected in zip(inputs(), in_eager_mode(fn), strict=True):
        with torch.no_grad():
            same(run(x), expected, "result")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", WITH_GRADIENT)
def test_gradients(fn: Callable[..., Any], backend: str) -> None:
    run = in_one_graph(fn, backend=backend)
    for x, expected in zip(inputs(), learned_in_eager_mode(fn), strict=True):
        found = learned(run, x)
        if backend == "auto":  # what stands around a loop is compiled, and may differ in the last bits
            torch.testing.assert_close(found, expected)
        else:
            same(found, expected, "result and gradients")


def test_nodes_and_recompilation() -> None:
    x = inputs()[0]
    with torch.no_grad():
        for fn, operator in ((counted, "while_loop"), (nests_scanned, "scan"), (mapped, "map_impl")):
            traced = trace(fn, x)
            assert getattr(torch.ops.higher_order, operator) in traced.targets()
            assert traced.holds(fn, inputs()[1])
            assert not traced.holds(fn, torch.randn(5, 3))


def test_what_a_body_reads_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    run, x = in_one_graph(counted, backend="eager"), inputs()[0]
    same(run(x), counted(x), "result")
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    torch.compiler.reset()  # eager mode compiles loops as well, and in torch 2.15 not for a float that has changed
    same(run(x), counted(x), "result")
    monkeypatch.setitem(globals(), "OTHER", torch.ones(4, 3))
    same(run(x), counted(x), "result")


def test_lengths_that_change_are_symbols() -> None:
    run = in_one_graph(sizes_differ, backend="eager")
    with torch.no_grad():
        for length in (3, 5, 8, 9):
            x = torch.randn(length, 3)
            same(run(x), sizes_differ(x), "result")


def other_shape(x):
    return while_loop(lambda y: y.sum() < 3, lambda y: (y[:2] + 1,), (x,))


def other_dtype(x):
    return while_loop(lambda y: y.sum() < 3, lambda y: (y.double(),), (x,))


def other_strides(x):
    return while_loop(lambda y: y.sum() < 3, lambda y: (y + 1,), (x[:, :2],))


def fewer(x):
    return while_loop(lambda y, z: y.sum() < 3, lambda y, z: (y + 1,), (x, x + 1))


def no_truth(x):
    return while_loop(lambda y: y.sum(), lambda y: (y - 1,), (x,))


def endless(x):
    return while_loop(lambda y: True, lambda y: (y - 1,), (x,))


def gives_input(x):
    return while_loop(lambda y, z: y.sum() < 3, lambda y, z: (y + 1, z), (x, x + 1))


def gives_view(x):
    return while_loop(lambda y: y.sum() < 3, lambda y: (y.view(y.shape),), (x,))


def writes(x):
    return while_loop(lambda y: y.sum() < 3, lambda y: (y.add_(1) + 1,), (x,))


def int_by_tensor(x):
    return while_loop(lambda i, y: i < 3, lambda i, y: (y.sum(), y + 1), (0, x))


def one_result_twice(x):
    def step(c, a):
        y = c + a
        return y, y

    return scan(step, x[0] * 0, x)


def no_pair(x):
    return scan(lambda c, a: c + a, x[0] * 0, x)


def carries_none(x):
    return scan(lambda c, a: (c + a, None), x[0] * 0, x)


def raises(x):
    def body(y):
        raise ValueError("no")

    return while_loop(lambda y: y.sum() < 3, body, (x,))


SEEN: list[int] = []


def effects(x):
    def step(a):
        SEEN.append(1)
        return a + 1

    return torch_map(step, x)


def in_vmap(x):
    return torch.vmap(lambda row: scan(lambda c, a: (c + a, c * a), row[0] * 0, row)[1])(x)


BREAKING = [in_vmap, other_shape, other_dtype, other_strides, fewer, no_truth, endless, gives_input, gives_view, writes]
BREAKING += [int_by_tensor, one_result_twice, no_pair, carries_none, raises, effects]


@pytest.mark.parametrize("fn", BREAKING)
def test_no_graphs_of_their_own(fn: Callable[..., Any]) -> None:
    assert break_of(fn, inputs()[0]) == "loop-operator"


def test_ints_with_gradients_break() -> None:
    assert break_of(with_ints, inputs()[0].requires_grad_()) == "loop-operator"


def test_what_breaks_in_a_body_breaks_at_the_call() -> None:
    def numbers(x):
        return while_loop(lambda y: y.sum() < 3, lambda y: (y + y.sum().item(),), (x,))

    assert break_of(numbers, inputs()[0]) == "tensor-item"
    with pytest.raises(Unsupported):
        armature.compile(numbers, backend="eager", fullgraph=True)(inputs()[0])


def test_after_a_break_the_call_runs_as_in_eager_mode() -> None:
    def fn(x):
        y = x * 2
        z = while_loop(lambda a: a.sum() < 30, lambda a: (a + a.sum().item(),), (y.abs() + 1,))
        return z[0] + y

    x = inputs()[0]
    same(armature.compile(fn, backend="eager")(x), fn(x), "result")
