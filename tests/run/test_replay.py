"""Recorded graphs, with a recorder for the CPU that runs the call again: values, memory, and what can't be recorded."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import armature
from armature.run import replay
from armature.run.replay import MOST
from tests.support.current_device import CurrentDevice
from tests.support.recording import MEMORY, OPTIONS, Recorder, recording, told


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as made:
        yield made


def test_the_second_call_is_recorded_and_others_replay(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x: (x.sin() * 2 + 1).softmax(-1), **OPTIONS)
    for _ in range(5):
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(x), (x.sin() * 2 + 1).softmax(-1))
    assert (recorder.records, recorder.replays) == (1, 4)
    assert told() == ["_lambda__inference: recorded: 0 inputs stay where they are, 1 are copied"]


def test_recorded_while_the_device_of_the_tensors_is_the_current_one(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = CurrentDevice(own=1)
    current.stand_in(replay, monkeypatch)
    monkeypatch.setattr(type(recorder), "place", lambda self, device: 7 if current.index == 1 else None)
    compiled = armature.compile(lambda x: (x.sin() * 2 + 1).softmax(-1), **OPTIONS)
    for _ in range(4):
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(x), (x.sin() * 2 + 1).softmax(-1))
    assert (recorder.records, recorder.replays) == (1, 3)


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


def test_the_last_result_may_be_held_over_the_next_call(recorder: Recorder) -> None:
    compiled = armature.compile(lambda x: (x * 2).cos().sum(-1, keepdim=True) * x, **OPTIONS)
    held = torch.zeros(())
    wanted = held
    for _ in range(10):
        x = torch.randn(5, 6)
        found = compiled(x)
        torch.testing.assert_close(held, wanted)
        held, wanted = found, (x * 2).cos().sum(-1, keepdim=True) * x
    assert recorder.records == 2, "two recordings take turns"


def test_results_of_one_function_are_safe_from_replays_of_another(recorder: Recorder) -> None:
    first = armature.compile(lambda x: (x * 2).cos(), **OPTIONS)
    second = armature.compile(lambda x: x.exp() + 1, **OPTIONS)
    for _ in range(6):
        x = torch.randn(5, 6)
        found = second(first(x))
        other = first(x + 1)
        torch.testing.assert_close(found, (x * 2).cos().exp() + 1)
        torch.testing.assert_close(other, ((x + 1) * 2).cos())
    assert recorder.replays > 6


def test_gradients_that_are_added_up_over_replays(recorder: Recorder) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
    twin = copy.deepcopy(model)
    compiled = armature.compile(model, **OPTIONS)
    for round_ in range(12):
        x = torch.randn(5, 4)
        for net in (compiled, twin):
            net(x).square().sum().backward()
        torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])
        if round_ % 3 == 2:
            model.zero_grad(set_to_none=round_ % 2 == 0)
            twin.zero_grad(set_to_none=round_ % 2 == 0)
    assert recorder.replays > 12


def test_gradients_that_are_cleared_between_forward_and_backward(recorder: Recorder) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
    twin = copy.deepcopy(model)
    compiled = armature.compile(model, **OPTIONS)
    steps = [torch.optim.SGD(net.parameters(), 0.1) for net in (model, twin)]
    for _ in range(12):
        x = torch.randn(5, 4)
        for net, step in zip((compiled, twin), steps, strict=True):
            loss = net(x).square().mean()
            step.zero_grad()
            loss.backward()
            step.step()
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))
    assert recorder.records == 4, "two pairs of recordings take turns"


def test_backward_uses_the_memory_of_what_forward_saved(recorder: Recorder) -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList(nn.Parameter(torch.randn(32, 32) / 6) for _ in range(6))

        def forward(self, x: Tensor) -> Tensor:
            for weight in self.weights:
                x = (x @ weight).tanh()
            return x.sum()

    model = Deep()
    compiled = armature.compile(model, **OPTIONS)
    for _ in range(6):
        compiled(torch.randn(64, 32)).backward()
        model.zero_grad()
    assert recorder.records == 2
    (memory,) = recorder.memories.values()
    assert memory.free() == [(0, MEMORY)], "results are the arena's when the program has released them"
    saved, gradients = 6 * 64 * 32 * 4, 6 * 32 * 32 * 4
    assert saved <= memory.top < saved + gradients, "gradients lie where forward's results were"


def test_a_saved_tensor_that_the_program_holds_is_not_written_over(recorder: Recorder) -> None:
    weight = torch.randn(64, 64, requires_grad=True)
    compiled = armature.compile(lambda x: (x @ weight).tanh(), **OPTIONS)
    held: list[tuple[Tensor, Tensor]] = []
    for round_ in range(10):
        x = torch.randn(64, 64)
        found = compiled(x)
        if round_ % 3 == 2:
            held.append((found, (x @ weight).tanh()))
        found.sum().backward(retain_graph=round_ % 4 == 3)
        if round_ % 4 == 3:
            before = weight.grad.clone()
            found.sum().backward()
            torch.testing.assert_close(weight.grad, before * 2)
        weight.grad = None
    for found, wanted in held:
        torch.testing.assert_close(found, wanted)
    assert recorder.replays > 6


def test_an_input_that_only_the_call_holds_may_be_consumed_and_no_other(recorder: Recorder) -> None:
    first = armature.compile(lambda x: x * 2, **OPTIONS)
    second = armature.compile(lambda x: x.exp(), **OPTIONS)
    for round_ in range(12):
        x = torch.randn(8)
        if round_ < 6:
            torch.testing.assert_close(second(first(x)), (x * 2).exp())
        else:
            between = first(x)
            torch.testing.assert_close(second(between), (x * 2).exp())
            torch.testing.assert_close(between, x * 2)


def test_a_recording_that_fails_after_its_inputs_are_gone_runs_on_them(recorder: Recorder) -> None:
    first = armature.compile(lambda x: x * 2, **OPTIONS)
    second = armature.compile(lambda x: (x[1:], x.exp()), **OPTIONS)
    kept = []
    for round_ in range(6):
        x = torch.randn(8)
        recorder.refuses = ""
        between = first(x)
        recorder.refuses = "refused" if round_ else ""
        rows, found = second(between)
        del between
        kept.append(((rows, found), ((x * 2)[1:], (x * 2).exp())))
    for found, wanted in kept:
        torch.testing.assert_close(found, wanted)
    assert any("not recorded: refused" in text for text in told())


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
