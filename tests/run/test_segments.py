"""Graphs of which a device can record parts: what is between them runs as it is."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import attrs
import pytest
import torch
from torch import Tensor, nn

import armature
from armature.pipeline.session import session
from armature.run.replay import MOST
from armature.schedule.data import Launch
from armature.schedule.schedule import schedule
from armature.schedule.segments import divide
from armature.testing.lowering_kit import context
from tests.support.loop_graphs import LoopWriter
from tests.support.recording import OPTIONS, Recorder, recording, told

aten = torch.ops.aten


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with armature.config.patch(own_products=False), recording() as made:  # products are calls, on every machine
        made.refused = frozenset(("aten.sort.default", "aten.sort.stable"))
        yield made


class Sorted(nn.Module):
    """Two products and an activation on both sides of an operator that can't be recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(6, 6) / 2) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        one, two, three, four = self.weights
        x = ((x @ one).sin() @ two).tanh()
        return ((x.sort(-1).values @ three).cos() @ four).exp()


def texts() -> list[str]:
    """The wrappers of all compiled graphs."""
    return [graph.program.wrapper for record in session().compilations for graph in record.graphs]


def test_what_is_before_and_after_an_operator_is_recorded(recorder: Recorder) -> None:
    model = Sorted()
    compiled = armature.compile(model, **OPTIONS)
    held: list[tuple[Tensor, Tensor]] = []
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(5, 6)
            held.append((compiled(x), model(x)))
    for found, wanted in held:
        torch.testing.assert_close(found, wanted)
    lines = [text.partition(": ")[2] for text in told()]
    assert "not recorded: aten.sort.default: it can't be" in lines
    assert "recorded: 2 inputs stay where they are, 1 are copied" in lines
    (text,) = texts()
    assert "def segment_0(args):" in text and "def segment_1(args):" in text
    assert recorder.replays > 6


def test_training(recorder: Recorder) -> None:
    model = Sorted()
    twin = copy.deepcopy(model)
    compiled = armature.compile(model, **OPTIONS)
    steps = [torch.optim.SGD(net.parameters(), 0.01) for net in (model, twin)]
    for _ in range(8):
        x = torch.randn(5, 6)
        for net, step in zip((compiled, twin), steps, strict=True):
            net(x).mean().backward()
            step.step()
            step.zero_grad()
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))
    assert recorder.replays > 8


def test_sizes_that_change(recorder: Recorder) -> None:
    model = Sorted()
    compiled = armature.compile(model, dynamic=True, **OPTIONS)
    with torch.no_grad():
        for rows in (3, 5, 3, 5, 3, 5, 3, 5):
            x = torch.randn(rows, 6)
            torch.testing.assert_close(compiled(x), model(x))
    assert recorder.records == 4, "one for each number of rows and segment"
    assert recorder.replays > 4


def test_memory_that_a_segment_takes_over_from_a_step_outside(recorder: Recorder) -> None:
    weight = torch.randn(6, 6)

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        found = x.sort(-1).values
        return (found * 2).cos(), (found @ weight).sin() @ weight

    compiled = armature.compile(program, **OPTIONS)
    held = []
    for _ in range(7):
        x = torch.randn(5, 6)
        held.append((compiled(x), program(x)))
        del held[:-2]
        for found, wanted in held:
            torch.testing.assert_close(found, wanted)
    assert recorder.replays


def test_inputs_that_a_segment_writes_to(recorder: Recorder) -> None:
    weight = torch.randn(6, 6)

    def push(cache: Tensor, x: Tensor) -> Tensor:
        found = x.sort(-1).values
        cache.mul_(0.5).add_((found @ weight).sin() @ weight)
        return cache.sum()

    compiled = armature.compile(push, **OPTIONS)
    ours, theirs = torch.zeros(5, 6), torch.zeros(5, 6)
    for _ in range(6):
        x = torch.randn(5, 6)
        torch.testing.assert_close(compiled(ours, x), push(theirs, x))
        torch.testing.assert_close(ours, theirs)
    assert recorder.records == 1 and recorder.replays == 5


def test_a_few_steps_are_no_segment(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x: (x * 2).sort(-1).values + 1, **OPTIONS)
    for _ in range(4):
        x = torch.randn(5, 6)
        torch.testing.assert_close(compiled(x), (x * 2).sort(-1).values + 1)
    assert recorder.records == 0
    assert "segment_0" not in "".join(texts())


def test_layers_that_share_a_graph_have_recordings_of_their_own(recorder: Recorder) -> None:
    """A stack of more layers than one layer may have recordings: each layer's first call runs, its second is recorded,
    on what the recording of the layer before returns."""
    layers = [nn.Linear(4, 4) for _ in range(MOST + 4)]
    compiled = armature.compile(nn.Linear.forward, **OPTIONS)
    with torch.no_grad():
        for _ in range(4):
            found = wanted = torch.randn(3, 4)
            for layer in layers:
                found, wanted = compiled(layer, found), layer(wanted)
            torch.testing.assert_close(found, wanted)
    assert recorder.records == len(layers) and recorder.replays == 3 * len(layers)
    lines = [text.partition(": ")[2] for text in told()]
    assert lines.count("recorded: 3 inputs stay where they are, 0 are copied") == len(layers) - 1


def test_layers_in_training(recorder: Recorder) -> None:
    layers = [nn.Linear(4, 4) for _ in range(5)]
    twins = copy.deepcopy(layers)
    compiled = armature.compile(lambda layer, x: nn.Linear.forward(layer, x).sin(), **OPTIONS)
    for _ in range(6):
        found = wanted = torch.randn(3, 4)
        for layer, twin in zip(layers, twins, strict=True):
            found, wanted = compiled(layer, found), twin(wanted).sin()
        found.sum().backward()
        wanted.sum().backward()
        for layer, twin in zip(layers, twins, strict=True):
            torch.testing.assert_close([p.grad for p in layer.parameters()], [p.grad for p in twin.parameters()])
            layer.zero_grad()
            twin.zero_grad()
    assert recorder.records == 2 * len(layers)


def test_a_layer_that_a_graph_serves_later_is_recorded_with_the_others(recorder: Recorder) -> None:
    """As after a recompilation: the graph made for the second layer serves the first one from the next round on."""
    before = armature.compile(lambda x: x.sin() + 1, **OPTIONS)
    compiled = armature.compile(nn.Linear.forward, **OPTIONS)
    layers = [nn.Linear(4, 4) for _ in range(4)]
    with torch.no_grad():
        for round_ in range(4):
            x = torch.randn(3, 4)
            found, wanted = before(x), x.sin() + 1
            for layer in layers[not round_ :]:
                found, wanted = compiled(layer, found), layer(wanted)
            torch.testing.assert_close(found, wanted)
            del found  # a result in use would need other recordings
    assert recorder.records == 1 + len(layers)


def test_the_first_call_of_a_kind_runs_whatever_it_is_given(recorder: Recorder) -> None:
    """What libraries choose for other sizes they may choose by measuring, which can't be recorded."""
    before = armature.compile(lambda x: x.sin() + 1, dynamic=True, **OPTIONS)
    compiled = armature.compile(nn.Linear.forward, dynamic=True, **OPTIONS)
    layers = [nn.Linear(4, 4) for _ in range(3)]
    with torch.no_grad():
        for rows, used in ((3, layers), (3, layers), (3, layers), (5, []), (5, []), (5, layers)):
            records = recorder.records
            given = before(torch.randn(rows, 4))
            for layer in used:
                torch.testing.assert_close(compiled(layer, given), layer(given))
            del given  # a result in use would need other recordings
    assert recorder.records - records == len(layers) - 1


def test_a_step_that_has_nothing_to_do_with_the_others_divides_nothing() -> None:
    """As a number that is drawn on the CPU, between steps on another device."""
    w = LoopWriter()
    x, given = w.input(6, 6), w.input(2)
    first = w.op("tanh", w.extern(aten.mm.default, x, x, shape=(6, 6)))
    number = w.op("exp", given)
    graph = w.graph(w.extern(aten.mm.default, first, first, shape=(6, 6)), number)
    here, there = torch.device("cpu"), torch.device("meta")
    own = {given.buffer, number.buffer}
    buffers = {k: attrs.evolve(one, device=here if k in own else there) for k, one in graph.buffers.items()}
    plan = schedule(attrs.evolve(graph, buffers=buffers), context(()))
    found = divide(plan, lambda device, step: None if device == there else "not there")
    (segment,) = found.plan.segments
    assert segment.device == there and len(found.refused["not there"]) == 1
    devices = [step.kernel.device for step in found.plan.steps if isinstance(step, Launch)]
    assert devices == [here, there] != [step.kernel.device for step in plan.steps if isinstance(step, Launch)]
