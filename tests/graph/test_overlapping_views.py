"""Views that overlap each other, writes into them, masked ones too, and gradients through both: as in eager mode.

Plans are run with plain torch operations on poisoned memory (`run_plan`), so a kernel that reads what it should not gives
NaN; a few programs run with the device's own back end as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

import armature
from armature.context import CompileContext
from armature.graph.data import AtenGraph
from armature.graph.functional import compile_graph
from armature.lower.lower import lower
from armature.lower.verify import verify as verify_loops
from armature.schedule.schedule import schedule
from armature.schedule.show import show
from armature.schedule.verify import verify as verify_plan
from armature.testing.differential import difference
from armature.testing.lowering_kit import context
from armature_aten_lowerings import plugin
from tests.graph.frames import frame
from tests.support.plan_kit import run_plan

Program = Callable[..., Any]
ELEMENTS = 24


@attrs.frozen
class Part:
    """A strided part of the memory: sizes, strides and first element, in elements."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    start: int

    def of(self, base: Any) -> Any:
        return base.as_strided(self.sizes, self.strides, self.start)

    @property
    def overlaps_itself(self) -> bool:
        places = torch.arange(ELEMENTS).as_strided(self.sizes, self.strides, self.start).flatten().tolist()
        return len(places) != len(set(places))


@st.composite
def parts(draw: st.DrawFn) -> Part:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    strides: list[int] = []
    left = ELEMENTS - 1
    for size in sizes:
        step = draw(st.integers(0, max(0, min(6, left // max(size - 1, 1)))))
        strides.append(step)
        left -= (size - 1) * step
    return Part(tuple(sizes), tuple(strides), draw(st.integers(0, left)))


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "copy": lambda part, number: part.copy_(number),
    "scale": lambda part, number: part.mul_(number),
    "add": lambda part, number: part.add_(torch.cos(part) * number),
    "fill": lambda part, number: part.fill_(0.5),
    "masked fill": lambda part, number: part.masked_fill_(part > 0.2, 0.25),
    "masked": lambda part, number: part.copy_(torch.where(part > 0, part * number, number)),
    "first": lambda part, number: part.select(0, 0).mul_(number),
    "turned": lambda part, number: part.sub_(part.flip(0) * number),
}
READS: dict[str, Callable[[Any, Any], Any]] = {
    "itself": lambda part, number: part,
    "sine": lambda part, number: torch.sin(part) * number,
    "windows": lambda part, number: part.unfold(-1, 1, 1),
    "sum": lambda part, number: part.sum(0),
    "product": lambda part, number: part * part,
}


@attrs.frozen
class Steps:
    """A program: reads and writes of parts of one tensor, in turn. The names are those of READS and WRITES."""

    steps: tuple[tuple[str, Part], ...]
    on_copy: bool

    def __call__(self, x: Any, number: Any) -> Any:
        base = x * 1.0 if self.on_copy else x
        found = []
        for name, part in self.steps:
            if name in WRITES:
                WRITES[name](part.of(base), number)
            else:
                found.append(READS[name](part.of(base), number))
        return (*found, base * 2)


@st.composite
def programs(draw: st.DrawFn) -> Steps:
    steps: list[tuple[str, Part]] = []
    for _ in range(draw(st.integers(2, 6))):
        part = draw(parts())
        names = list(READS) if part.overlaps_itself else [*READS, *WRITES, *WRITES]
        steps.append((draw(st.sampled_from(names)), part))
    return Steps(tuple(steps), draw(st.booleans()))


def inputs(gradients: bool) -> tuple[Tensor, Tensor]:
    x = torch.linspace(-1, 1, ELEMENTS, dtype=torch.float64)
    return x.requires_grad_(gradients), torch.tensor(1.5, dtype=torch.float64, requires_grad=gradients)


def on_plans(aten: AtenGraph, ctx: CompileContext) -> Callable[[list[Any]], tuple[object, ...]]:
    loops = lower(aten, ctx)
    verify_loops(loops)
    plan = schedule(loops, ctx)
    verify_plan(plan)

    def run(args: list[Any]) -> tuple[object, ...]:
        given = list(args)
        args.clear()
        return run_plan(plan, given)

    run.text = show(plan)  # type: ignore[attr-defined]
    return run


def outcome(run: Program, given: Sequence[Tensor]) -> list[Tensor | None]:
    """Results, gradients and what the inputs hold afterwards."""
    outputs = run(*given)
    seen = [t for t in outputs if t.requires_grad]
    if seen:
        weights = [torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).reshape(t.shape) for t in seen]
        torch.stack([(t * w).sum() for t, w in zip(seen, weights, strict=True)]).sum().backward()
    return [*(t.detach() for t in outputs), *(t.grad for t in given), *(t.detach() for t in given)]


def compare(expected: list[Tensor | None], found: list[Tensor | None]) -> None:
    assert [t is None for t in expected] == [t is None for t in found]
    for ours, theirs in zip(found, expected, strict=True):
        if theirs is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(program=programs(), gradients=st.booleans())
def test_random_programs(program: Steps, gradients: bool) -> None:
    if gradients and not program.on_copy:
        program = attrs.evolve(program, on_copy=True)  # autograd refuses writes to its leaves
    try:
        expected = outcome(program, inputs(gradients))
    except RuntimeError:  # a value that the gradients need has been overwritten
        assume(False)
    graph = fx.symbolic_trace(lambda x, number: program(x, number))
    given_inputs = inputs(gradients)
    with FakeTensorMode() as mode:
        FakeTensorProp(graph, mode).propagate(*given_inputs)  # as tracing notes it
    ctx = context(
        tuple(plugin.armature_lowerings()),
        decompositions=plugin.armature_decompositions(),
        operators=plugin.armature_operators(),
    )
    run = compile_graph(frame(graph, list(given_inputs)), ctx, on_plans)
    compare(expected, outcome(run, given_inputs))


def sliding_windows(x: Tensor, weight: Tensor) -> Tensor:
    """Attention scores in a band, as sliding-window attention lays them out."""
    chunks = x.as_strided((3, 4, 5), (10, 5, 1))  # each row of 20 shares 10 with the next
    scores = torch.bmm(chunks, weight.expand(3, 5, 4))
    band = scores.new_zeros(4, 4, 9)
    band[:-1, :, 4:8] = scores
    band[1:, :, :4] = scores.flip(0)
    mask = (torch.arange(9) > torch.arange(4)[:, None] + 4).expand(4, 4, 9)
    band.masked_fill_(mask, -1.0)
    edge = band[0, :, :4]
    edge.copy_(torch.where(mask[0, :, :4], edge, edge * 0.5))
    return band.softmax(-1) @ weight.new_ones(9, 2).cumsum(0)


def half_over_half(x: Tensor, weight: Tensor) -> Tensor:
    """Two parts of one tensor, written one after the other, both read."""
    base = x * 2
    left, right = base.as_strided((24,), (1,), 0), base.as_strided((24,), (1,), 12)
    left.mul_(weight.sum())
    right.masked_fill_(right > 0, 0.5)
    left.add_(right.detach().clone())
    return torch.cat([left.sin(), right.cos(), base])


def reads_of_one_view(x: Tensor, weight: Tensor) -> Tensor:
    windows = x.as_strided((5, 8), (7, 1))
    first = torch.mm(windows.T, windows)
    second = torch.exp(x[:25].view(5, 5)) @ weight
    return first.sum() * second + windows.prod()


PROGRAMS = {f.__name__: f for f in (sliding_windows, half_over_half, reads_of_one_view)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_with_a_back_end(name: str) -> None:
    def given_tensors() -> list[Tensor]:
        torch.manual_seed(1)
        return [torch.randn(n, dtype=torch.float64, requires_grad=True) for n in ((40,), (5, 4))]

    program = PROGRAMS[name]
    expected, found = given_tensors(), given_tensors()
    eager = program(*expected)
    ours = armature.compile(program, fullgraph=True)(*found)
    for result in (eager, ours):
        (result * torch.linspace(-1, 1, result.numel(), dtype=result.dtype).view_as(result)).sum().backward()
    assert difference(eager.detach(), ours.detach()) < 1e-12
    for one, other in zip(expected, found, strict=True):
        assert difference(one.grad, other.grad) < 1e-10
