"""Recorded graphs, with a recorder for the CPU that runs the call again: values, memory, and what can't be recorded."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import armature
from armature.events import EventKind
from armature.pipeline.session import session
from armature.plugin_api import hookimpl
from armature.plugins import manager
from armature.run.replay import MOST, NotRecorded

OPTIONS: dict[str, Any] = {"mode": "reduce-overhead"}


@attrs.define(eq=False)
class Recorder:
    """Stands for a device. replays: how often a recording was launched. refuses: why nothing can be recorded."""

    memory: set[int] = attrs.field(factory=set)
    stream: int | None = 0
    refuses: str = ""
    records: int = 0
    replays: int = 0

    def place(self, device: torch.device) -> int | None:
        return self.stream

    def record(
        self, device: torch.device, call: Callable[[list[Any]], tuple[Any, ...]], args: list[Any]
    ) -> tuple[Callable[[], None], tuple[Any, ...]]:
        if self.refuses:
            raise NotRecorded(self.refuses)
        self.records += 1
        inputs = list(args)
        before = [arg.detach().clone() if isinstance(arg, Tensor) else arg for arg in inputs]
        with torch.no_grad():
            results = call(args)
            for given, old in zip(inputs, before, strict=True):
                if isinstance(given, Tensor) and not torch.equal(given, old):
                    given.detach().copy_(old)
        made = [result.detach() if isinstance(result, Tensor) else result for result in results]
        for result in made:
            if isinstance(result, Tensor) and result.is_floating_point():
                shared = any(isinstance(arg, Tensor) and arg.data_ptr() == result.data_ptr() for arg in inputs)
                if not shared:
                    result.fill_(float("nan"))  # nobody may read it before the first replay

        def launch() -> None:
            self.replays += 1
            with torch.no_grad():
                for old, new in zip(made, call(list(inputs)), strict=True):
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)

        return launch, results


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()

    class Plugin:
        @hookimpl
        def armature_launch_recorder(self, device_type: str) -> Recorder | None:
            return made if device_type == "cpu" else None

    with manager().registered(Plugin(), "recorder"):
        armature.reset()
        yield made
    armature.reset()


def told() -> list[str]:
    """What was said of recordings."""
    events = [event for record in session().compilations for event in record.events]
    return [event.detail for event in events if event.kind is EventKind.REPLAY]


def test_the_second_call_is_recorded_and_others_replay(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x: (x.sin() * 2 + 1).softmax(-1), **OPTIONS)
    for _ in range(5):
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(x), (x.sin() * 2 + 1).softmax(-1))
    assert (recorder.records, recorder.replays) == (1, 4)
    assert told() == ["_lambda__inference: recorded: 0 inputs stay where they are, 1 are copied"]


def test_without_the_mode_nothing_is_recorded(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x: x.sin() + 1)
    for _ in range(3):
        compiled(torch.randn(3))
    assert recorder.records == 0 and told() == []


def test_results_that_the_program_keeps_are_never_written_over(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x: (x * 2, x.sum()), **OPTIONS)
    inputs = [torch.randn(4) for _ in range(3 * MOST)]
    kept = [compiled(x) for x in inputs]
    for x, (double, total) in zip(inputs, kept, strict=True):
        torch.testing.assert_close((double, total), (x * 2, x.sum()))
    assert recorder.records == MOST
    assert "this was the last one" in told()[-1]
    kept.clear()
    before = recorder.replays
    compiled(inputs[0])
    assert recorder.replays == before + 1


def test_a_view_of_a_result_keeps_its_memory(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x: x * 2, **OPTIONS)
    compiled(torch.ones(4))
    row = compiled(torch.full((4,), 3.0))[1:]
    compiled(torch.zeros(4))
    assert row.tolist() == [6, 6, 6]


def test_a_result_may_be_the_next_argument(recorder: Recorder) -> None:
    def step(x: Tensor) -> Tensor:
        return (x * 1.5).cos()

    compiled = armature.compile(step, **OPTIONS)
    x = y = torch.randn(6)
    for _ in range(8):
        x, y = step(x), compiled(y)
        torch.testing.assert_close(y, x)
    assert recorder.replays > 4


def test_training_is_that_of_eager(recorder: Recorder) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.LayerNorm(8), nn.Linear(8, 3))
    twin = copy.deepcopy(model)
    compiled = armature.compile(model, **OPTIONS)
    steps = [torch.optim.SGD(net.parameters(), 0.1) for net in (model, twin)]
    for round_ in range(8):
        x = torch.randn(5, 4)
        for net in (compiled, twin):
            F.cross_entropy(net(x), torch.arange(5) % 3).backward()
        if round_ % 4 == 3:
            continue  # its gradients are added to those of the next round
        for step in steps:
            step.step()
            step.zero_grad()
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))
    assert recorder.replays > 8


def test_two_forwards_before_their_backwards(recorder: Recorder) -> None:
    weight = torch.randn(4, requires_grad=True)
    compiled = armature.compile(lambda w, x: (w * x).tanh().exp(), **OPTIONS)
    for _ in range(4):
        xs = [torch.randn(4), torch.randn(4)]
        found = [compiled(weight, x) for x in xs]
        wanted = [(weight * x).tanh().exp() for x in xs]
        for one, other in zip(found, wanted, strict=True):
            (left,) = torch.autograd.grad(one.sum(), weight)
            (right,) = torch.autograd.grad(other.sum(), weight)
            torch.testing.assert_close(left, right)
    assert recorder.replays


def test_inputs_that_are_written_to(recorder: Recorder) -> None:
    def push(cache: Tensor, x: Tensor) -> Tensor:
        cache.mul_(0.5).add_(x)
        return cache.sum()

    compiled = armature.compile(push, **OPTIONS)
    ours, theirs = torch.zeros(4), torch.zeros(4)
    for _ in range(5):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(ours, x), push(theirs, x))
        torch.testing.assert_close(ours, theirs)
    assert recorder.records == 1
    other = torch.ones(4)  # at another address
    push(theirs.fill_(1), x)
    compiled(other, x)
    torch.testing.assert_close(other, theirs)
    assert recorder.records == 2


def test_results_that_are_inputs_are_the_programs_own(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x: (x, x[1:], x.t(), x + 1), **OPTIONS)
    for _ in range(4):
        x = torch.randn(3, 3)
        same, rows, turned, more = compiled(x)
        assert same is x and rows.data_ptr() == x[1:].data_ptr() and turned.data_ptr() == x.data_ptr()
        torch.testing.assert_close((rows, turned, more), (x[1:], x.t(), x + 1))


def test_parameters_that_move_are_recorded_again(recorder: Recorder) -> None:
    model = nn.Linear(3, 2)
    compiled = armature.compile(model, **OPTIONS)
    weights = [torch.randn(2, 3) for _ in range(3)]  # alive, so that none lies where another one was
    with torch.no_grad():
        for weight in weights:
            model.weight.data = weight
            for _ in range(3):
                x = torch.randn(4, 3)
                torch.testing.assert_close(compiled(x), model(x))
    assert recorder.records == 3


def test_sizes_that_change(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x, n: (x * n).softmax(0), dynamic=True, **OPTIONS)
    for size in (3, 5, 3, 5, 3, 5):
        for n in (2, 4):
            x = torch.randn(size)
            torch.testing.assert_close(compiled(x, n), (x * n).softmax(0))
    assert recorder.records == 4 and recorder.replays == 8


def test_inputs_without_memory_of_their_own_for_each_element(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x: x + 1, **OPTIONS)
    row = torch.randn(4)
    for _ in range(3):
        torch.testing.assert_close(compiled(row.expand(3, 4)), row.expand(3, 4) + 1)


def test_random_numbers_are_new_in_each_call(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x: F.dropout(x, 0.5), **OPTIONS)
    seen = {tuple(compiled(torch.ones(64)).tolist()) for _ in range(4)}
    assert len(seen) == 4 and recorder.replays == 3


def test_what_can_t_be_recorded_runs_and_is_told_once(recorder: Recorder) -> None:
    recorder.refuses = "operation not permitted when stream is capturing"
    compiled = armature.compile(lambda x: x.exp(), **OPTIONS)
    for _ in range(4):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), x.exp())
    assert told() == ["_lambda__inference: not recorded: operation not permitted when stream is capturing"]


def test_no_recording_while_the_program_records(recorder: Recorder) -> None:
    recorder.stream = None
    compiled = armature.compile(lambda x: x.exp(), **OPTIONS)
    for _ in range(3):
        compiled(torch.randn(3))
    assert recorder.records == 0
    recorder.stream = 1
    for _ in range(3):
        compiled(torch.randn(3))
    assert recorder.records == 1


def test_each_stream_has_recordings_of_its_own(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x: x.exp(), **OPTIONS)
    for stream in (0, 0, 1, 1, 0, 1):
        recorder.stream = stream
        compiled(torch.randn(3))
    assert (recorder.records, recorder.replays) == (2, 4)


def test_inference_mode_has_recordings_of_its_own(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x: x.exp(), **OPTIONS)
    weight = torch.ones(3, requires_grad=True)
    for _ in range(3):
        with torch.inference_mode():
            assert compiled(torch.ones(3)).is_inference()
        (compiled(torch.ones(3)) * weight).sum().backward()


def test_a_device_without_recorder_is_told() -> None:
    armature.reset()
    compiled = armature.compile(lambda x: x.exp(), **OPTIONS)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), x.exp())
    assert told() == ["_lambda__inference: not recorded: nothing records launches on cpu"]


def test_threads_do_not_share_results(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x: (x * 2).cos(), **OPTIONS)
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            x = torch.randn(16)
            if not torch.allclose(compiled(x), (x * 2).cos()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and recorder.replays


def test_recordings_go_with_the_compiled_function(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x: x.exp(), **OPTIONS)
    result = None
    for _ in range(3):
        result = compiled(torch.ones(3))
    armature.reset()
    del compiled
    gc.collect()
    assert result is not None and torch.allclose(result, torch.ones(3).exp())
