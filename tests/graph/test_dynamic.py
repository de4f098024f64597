"""Graphs with symbolic sizes: functional graphs, lowering, forward and backward, against eager for many sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

import armature
from armature.frame.sources import LocalSource
from armature.graph.functional import compile_graph
from armature.lower.data import ExternCall, Loop
from armature.pipeline.session import session
from armature.testing.lowering_kit import EVERYTHING, ReferenceBackend
from armature.trace.data import CompiledGraphSlot, GraphInput, TracedFrame

SIZES = (6, 9, 1, 0, 17)
WEIGHT = torch.randn(6, 5)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    armature.reset()
    yield
    armature.reset()


@pytest.fixture
def compiled(ctx: Any, evaluator: Any) -> Callable[..., Any]:
    """Compiles down to loops, which are then evaluated without a back end."""

    def backend(module: fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        places = [node for node in module.graph.nodes if node.op == "placeholder"]
        fakes = [node.meta.get("example_value", given) for node, given in zip(places, examples, strict=True)]
        inputs = tuple(GraphInput(node.name, LocalSource(node.name), fake) for node, fake in zip(places, fakes))
        frame = TracedFrame("frame", module, inputs, (), backend.__code__, CompiledGraphSlot())
        return compile_graph(frame, ctx, evaluator)

    return lambda fn, **options: armature.compile(fn, backend=backend, fullgraph=True, **options)


def tensors(result: Any) -> list[torch.Tensor]:
    return [item for item in (result if isinstance(result, tuple) else (result,)) if isinstance(item, torch.Tensor)]


def check(fn: Callable[..., Any], quick: Callable[..., Any], *args: torch.Tensor) -> None:
    """Values, strides and gradients as in eager."""
    mine = [arg.requires_grad_(arg.is_floating_point()) for arg in args]
    theirs = [arg.detach().clone().requires_grad_(arg.is_floating_point()) for arg in args]
    got, want = quick(*mine), fn(*theirs)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)
    for one, other in zip(tensors(got), tensors(want)):
        assert one.shape == other.shape
        assert one.requires_grad == other.requires_grad
    pairs = [(a, b) for a, b in zip(tensors(got), tensors(want)) if b.requires_grad]
    if pairs:
        cotangents = [torch.randn_like(b) for _, b in pairs]
        torch.autograd.backward([a for a, _ in pairs], cotangents)
        torch.autograd.backward([b for _, b in pairs], cotangents)
        torch.testing.assert_close(
            [a.grad for a in mine], [b.grad for b in theirs], rtol=1e-4, atol=1e-4, equal_nan=True
        )


CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "pointwise": lambda x: (x * 2 + 1).sigmoid() * x.shape[0] + x.numel(),
    "broadcast": lambda x: x[:, None] * x[None] + x[:, :1],
    "reductions": lambda x: (x.sum(0), x.sum(1), x.mean(), x.prod(0), x.logsumexp(1), x.amax(1)),
    "softmax": lambda x: (x.softmax(0), x.softmax(1)),
    "matmul": lambda x: (x @ WEIGHT, x @ x.t(), torch.einsum("bi,bj->ij", x, x)),
    "linear": lambda x: F.relu(F.linear(x, WEIGHT.t(), WEIGHT[0])),
    "norm": lambda x: F.gelu(F.layer_norm(x, (6,))),
    "cat": lambda x: (torch.cat([x, x * 2]), torch.cat([x, x + 1], 1), torch.stack([x, x], 1)),
    "views": lambda x: ((x * 2).view(-1), (x + 1).view(x.shape[0] * 2, 3), (x * 3).unflatten(1, (2, 3)).flatten()),
    "reshape": lambda x: (x * 2).reshape(x.shape[0], 2, 3).transpose(0, 1).reshape(2, -1) + 1,
    "slices": lambda x: (x[1:] * 2, x[: x.shape[0] // 2] + 1, x[: min(x.shape[0], 3)] * 3, x[::2] * 2),
    "shifts": lambda x: (x.flip(0) + 1, x.roll(1, 0) * 2, F.pad(x, (0, 0, 1, 2)) * 2, x.repeat(2, 1)),
    "creation": lambda x: (
        x * torch.arange(x.shape[0])[:, None] + torch.zeros(x.shape[0], 6),
        torch.full((x.shape[0],), 2.0) * x[:, 0],
        torch.tril(x @ x.t()),
    ),
    "gather": lambda x: (
        x.gather(1, torch.zeros(x.shape[0], 1, dtype=torch.int64)),
        torch.zeros(4).scatter_add(0, torch.zeros(x.shape[0], dtype=torch.int64), x[:, 0]),
    ),
    "loss": lambda x: F.cross_entropy(x, torch.ones(x.shape[0], dtype=torch.int64), reduction="sum"),
    "embedding": lambda x: F.embedding(torch.ones(x.shape[0], dtype=torch.int64), WEIGHT) + x[:, :1],
    "bmm": lambda x: torch.bmm(x[:, :, None], x[:, None]) + 1,
    "in_place": lambda x: (x + 1).mul_(2).add_(x.shape[0]),
    "masks": lambda x: (torch.where(x > 0, x, -x), x.masked_fill(x > 0, 0.5), (x > 0).any(0)),
    "order": lambda x: (x.sort(0).values, x.topk(2, 1).values, x.cumsum(0)),
    "sizes": lambda x: (x + 1, x.shape[0], x.shape, x.size(0) * 2),
}


@pytest.mark.parametrize("name", CASES)
def test_operators(name: str, compiled: Any) -> None:
    fn = CASES[name]
    quick = compiled(lambda x: fn(x))
    for n in SIZES:
        x = torch.randn(n, 6)
        armature.mark_dynamic(x, 0)
        check(fn, quick, x)
    assert len(session().compilations) <= 3  # any size, 1 and 0


def test_variances(compiled: Any) -> None:
    def fn(x: torch.Tensor) -> Any:
        return x.var(0), x.std(), (x - x.mean(0)) / (x.std(0) + 1), F.normalize(x, dim=0)

    quick = compiled(fn)
    for n in (4, 6, 9):
        check(fn, quick, torch.randn(n, 6))
    assert len(session().compilations) == 2


def test_two_axes_of_several_inputs(compiled: Any) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> Any:
        b, t, c = x.shape
        scores = (x @ y.transpose(1, 2)).softmax(-1)
        return (scores @ y).reshape(b * t, c)[i], scores.sum((1, 2)), x.new_ones(b, t) * t

    quick = compiled(fn)
    for b, t, s in ((2, 5, 3), (3, 6, 4), (4, 2, 2), (7, 9, 8)):
        check(fn, quick, torch.randn(b, t, 4), torch.randn(b, s, 4), torch.tensor([0, 1, 1]))
    assert len(session().compilations) == 2


def test_convolutions(compiled: Any) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2)).double()
    quick = compiled(model)
    for n, m in ((2, 8), (3, 9), (4, 6), (5, 7)):
        x = torch.randn(n, 3, m, m, dtype=torch.float64)
        torch.testing.assert_close(quick(x), model(x))
        grads = []
        for fn in (quick, model):
            model.zero_grad()
            fn(x).square().sum().backward()
            grads.append([parameter.grad for parameter in model.parameters()])
        torch.testing.assert_close(*grads)
    assert len(session().compilations) == 2


def test_training_with_a_batch_size_that_changes(compiled: Any, evaluator: Any) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))
    quick = compiled(model)
    for n in (4, 7, 16, 33, 2):
        check(model, quick, torch.randn(n, 6))
    assert len(session().compilations) == 2
    assert evaluator.kinds == ["forward", "backward"] * 2


def test_a_size_that_only_a_sum_of_it_tells(compiled: Any) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (0, 0, 1, 2))  # the backward graph is given the gradient alone

    quick = compiled(fn)
    for n in (4, 5, 6):
        check(fn, quick, torch.randn(n, 6))
    assert len(session().compilations) == 2


def test_ints_are_inputs_of_the_graph(compiled: Any, evaluator: Any) -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n + torch.arange(n).sum() - 7 // n

    quick = compiled(fn)
    for n in (5, 3, 8, 2):
        torch.testing.assert_close(quick(torch.ones(3), n), fn(torch.ones(3), n))
    assert len(session().compilations) == 2
    assert any(isinstance(fake, torch.SymInt) for fake in evaluator.graphs[-1].fake_inputs)


def test_operators_stay_loops_with_symbolic_sizes(compiled: Any, evaluator: Any) -> None:
    quick = compiled(lambda x: ((x * 2).softmax(1) + x.mean(1, keepdim=True)).transpose(0, 1).reshape(-1), dynamic=True)
    with torch.no_grad():
        quick(torch.randn(4, 6))
    assert not [node for node in evaluator.loops[-1].nodes if isinstance(node, ExternCall)]


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_back_end_without_symbolic_sizes_gets_loops_of_numbers_only(
    compiled: Any, evaluator: Any, ctx: Any, dynamic: bool
) -> None:
    ctx.tables.backend = ReferenceBackend(features=attrs.evolve(EVERYTHING, symbolic_sizes=False))

    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        return ((x * n).softmax(1) + x.mean(1, keepdim=True)).transpose(0, 1).index_add(1, torch.tensor([0]), x[:1].t())

    quick, x = compiled(fn, dynamic=dynamic), torch.randn(4, 6)
    with torch.no_grad():
        torch.testing.assert_close(quick(x, 3), fn(x, 3))
    loops = [node for node in evaluator.loops[-1].nodes if isinstance(node, Loop)]
    assert all(type(var.extent) is int for loop in loops for var in loop.space)
    assert any(len(loop.space) > 1 for loop in loops) is not dynamic  # those left are over the index


def written_at(x: torch.Tensor, k: int) -> torch.Tensor:
    x = x.clone()
    x[k] = 1
    x.select(1, k).add_(2)
    return x


def read_at(x: torch.Tensor, k: int) -> torch.Tensor:
    return (x.select(0, k) * x[:, k]).exp()


def scattered(x: torch.Tensor, k: int) -> torch.Tensor:
    """Nothing here tells while tracing from which end the place counts."""
    return torch.select_scatter(x, torch.ones(6), 0, k) * 2


@pytest.mark.parametrize("fn", [written_at, read_at, scattered])
def test_places_that_change_count_from_either_end(fn: Callable[..., torch.Tensor]) -> None:
    quick = armature.compile(fn, fullgraph=True)
    for k in (3, 2, 4, 5, -1, -3, -6):
        x = torch.randn(6, 6)
        torch.testing.assert_close(quick(x, k), fn(x, k))


QUOTIENTS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "factor": lambda x, k: x * (8 / k),
    "scales": lambda x, k: torch.nn.functional.interpolate(x[None, None], size=(k, k), mode="bilinear"),
    "power": lambda x, k: x * 2**k,
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_numbers_computed_of_ints_that_change(name: str) -> None:
    fn = QUOTIENTS[name]
    quick = armature.compile(fn, fullgraph=True)
    for k in (3, 2, 4, 3):
        x = torch.randn(6, 6)
        torch.testing.assert_close(quick(x, k), fn(x, k))


NUMBERS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "roll": lambda x, k: x.roll((k, 1), (0, 1)),
    "tril": lambda x, k: torch.tril(x, k),
    "pow": lambda x, k: x**k,
    "hardtanh": lambda x, k: torch.nn.functional.hardtanh(x, -k, k),
    "threshold": lambda x, k: torch.nn.functional.threshold(x, k - 3, k),
    "correction": lambda x, k: x.var(0, correction=k),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_operators_whose_loops_want_numbers_stay_calls_where_these_change(name: str) -> None:
    def fn(x: torch.Tensor, k: int) -> torch.Tensor:
        return NUMBERS[name](x, k) * 2

    quick = armature.compile(fn, fullgraph=True)
    for k in (3, 2, 4, 3):
        x = torch.randn(6, 6)
        torch.testing.assert_close(quick(x, k), fn(x, k))
