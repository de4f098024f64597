"""mode="reduce-overhead" on a GPU: what CUDA graphs replay is what eager mode computes, and what can't be is told."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import armature
from armature.events import EventKind
from armature.pipeline.session import session
from armature.run.replay import NotRecorded
from armature_gpu_triton.cuda_graphs import CudaGraphs

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("fresh")]
OPTIONS: dict[str, Any] = {"mode": "reduce-overhead"}


def told() -> list[str]:
    """What was said of recordings, without the names of graphs."""
    events = [event for record in session().compilations for event in record.events]
    return [event.detail.partition(": ")[2] for event in events if event.kind is EventKind.REPLAY]


def block() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64)).cuda()


def test_inference_copies_inputs_and_not_parameters() -> None:
    model = block()
    compiled = armature.compile(model, **OPTIONS)
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(8, 64, device="cuda")
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    assert told() == ["recorded: 6 inputs stay where they are, 1 are copied"]


def test_results_that_are_kept_are_not_written_over() -> None:
    compiled = armature.compile(lambda x: (x * 2).cos(), **OPTIONS)
    inputs = [torch.randn(1000, device="cuda") for _ in range(12)]
    results = [compiled(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, (x * 2).cos())


def test_tensors_that_are_written_to() -> None:
    def push(cache: Tensor, x: Tensor) -> Tensor:
        cache.mul_(0.5).add_(x)
        return cache.sum()

    compiled = armature.compile(push, **OPTIONS)
    ours, theirs = (torch.zeros(512, device="cuda") for _ in range(2))
    for _ in range(6):
        x = torch.randn(512, device="cuda")
        torch.testing.assert_close(compiled(ours, x), push(theirs, x), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours, theirs)
    assert [text.partition(":")[0] for text in told()] == ["recorded"]


def test_sizes_that_change() -> None:
    compiled = armature.compile(lambda x: (x * 2).softmax(-1), dynamic=True, **OPTIONS)
    for size in (300, 500, 300, 500, 300, 500):
        x = torch.randn(4, size, device="cuda")
        torch.testing.assert_close(compiled(x), (x * 2).softmax(-1))
    assert [text.partition(":")[0] for text in told()] == ["recorded"] * 2, told()


def test_training_is_that_of_eager() -> None:
    model = block()
    other = copy.deepcopy(model)
    compiled = armature.compile(model, **OPTIONS)
    steps = [torch.optim.SGD(net.parameters(), 0.05) for net in (model, other)]
    for _ in range(8):
        x = torch.randn(16, 64, device="cuda")
        for net, step in zip((compiled, other), steps, strict=True):
            F.mse_loss(net(x), x).backward()
            step.step()
            step.zero_grad()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    assert {text.partition(":")[0] for text in told()} == {"recorded"}, told()


def test_gradients_that_are_added_up() -> None:
    model = block()
    other = copy.deepcopy(model)
    compiled = armature.compile(model, **OPTIONS)
    for round_ in range(12):
        x = torch.randn(16, 64, device="cuda")
        for net in (compiled, other):
            F.mse_loss(net(x), x).backward()
        for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-4)
        if round_ % 3 == 2:
            model.zero_grad()
            other.zero_grad()


def test_what_the_cpu_computes_is_between_recordings() -> None:
    """As the layers of a model that are left out at random: the number is drawn on the CPU."""
    weight = torch.randn(64, 64, device="cuda") / 8

    def layer(x: Tensor) -> tuple[Tensor, Tensor]:
        x = (x @ weight).sin() @ weight
        number = torch.rand([])
        return (x + number.to("cuda")) @ weight @ weight, number

    compiled = armature.compile(layer, **OPTIONS)
    x = torch.randn(32, 64, device="cuda")
    for seed in range(6):
        torch.manual_seed(seed)
        found = compiled(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(found, layer(x), rtol=1e-4, atol=1e-4)
    assert any("its tensors are not all on one device" in text for text in told())
    assert any(text.startswith("recorded: ") for text in told())


def test_results_of_one_function_are_safe_from_replays_of_another() -> None:
    def one(x: Tensor) -> Tensor:
        return x @ x @ x @ x

    def two(x: Tensor) -> Tensor:
        return x.tanh() @ x @ x

    first, second = armature.compile(one, **OPTIONS), armature.compile(two, **OPTIONS)
    before = torch.zeros((), device="cuda"), torch.zeros((), device="cuda")
    for _ in range(10):
        x = torch.randn(64, 64, device="cuda") / 8
        found = second(first(x))
        first(x + 1)
        torch.testing.assert_close(found, two(one(x)), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(*before, rtol=1e-4, atol=1e-4)
        before = first(x), one(x)


def test_a_training_step_needs_no_more_memory_than_without_recordings() -> None:
    def peak(mode: str) -> float:
        torch.manual_seed(0)
        model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(512, 512), nn.GELU()))).cuda()
        compiled = armature.compile(model, mode=mode)
        x = torch.randn(8192, 512, device="cuda")
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        for _ in range(5):
            compiled(x).square().mean().backward()
            model.zero_grad()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        compiled(x).square().mean().backward()
        return (torch.cuda.max_memory_reserved() - before) / 2**20

    for mode in ("default", "reduce-overhead"):  # libraries take memory for themselves, for each stream, at first
        peak(mode)
    armature.reset()
    assert peak("reduce-overhead") < 1.2 * peak("default") + 32


def test_dropout_draws_new_numbers_in_each_replay() -> None:
    compiled = armature.compile(lambda x: F.dropout(x, 0.5), **OPTIONS)
    ones = torch.ones(256, device="cuda")
    seen = {tuple(compiled(ones).tolist()) for _ in range(5)}
    assert len(seen) == 5


def test_dropout_in_replays_draws_what_eager_draws() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        first = F.dropout(x, 0.3)
        return first, F.dropout(first * 2, 0.1)

    compiled = armature.compile(program, **OPTIONS)
    x = torch.randn(300, 500, device="cuda")
    drawn = []
    for fn in (program, compiled):
        torch.manual_seed(5)
        drawn.append([tuple(t.clone() for t in fn(x)) for _ in range(6)] + [(torch.cuda.get_rng_state(),)])
    torch.testing.assert_close(drawn[1], drawn[0])
    assert [text.partition(":")[0] for text in told()] == ["recorded"]


def test_a_graph_on_two_devices_runs_as_it_is_and_says_so() -> None:
    compiled = armature.compile(lambda x, scale: x * scale.exp(), **OPTIONS)
    for number in range(4):
        x, scale = torch.randn(64, device="cuda"), torch.tensor(float(number))
        torch.testing.assert_close(compiled(x, scale), x * scale.exp())
    assert told() and all(text.startswith("not recorded") for text in told())


def test_the_generator_draws_on_after_a_recording_that_failed() -> None:
    def call(args: list[Any]) -> tuple[Any, ...]:
        return (args[0].sum().item(),)  # waits for the device, which no capture allows

    recorder = CudaGraphs()
    x = torch.ones(4, device="cuda")
    for _ in range(2):
        with pytest.raises(NotRecorded, match="captur"):
            recorder.record(torch.device("cuda", 0), call, [x], 0)
        assert torch.rand(4, device="cuda").shape == (4,)
    launch, (result,) = recorder.record(torch.device("cuda", 0), lambda args: (args[0] + 1,), [x], 0)
    launch()
    assert result.tolist() == [2.0] * 4


def test_inside_a_graph_of_the_program_nothing_is_recorded() -> None:
    compiled = armature.compile(lambda x: x.exp() + 1, **OPTIONS)
    x = torch.randn(64, device="cuda")
    for _ in range(3):
        compiled(x)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        result = compiled(x)
    x.fill_(1.0)
    graph.replay()
    torch.testing.assert_close(result, x.exp() + 1)
