"""Programs on two GPUs in one process: kernels, recordings and random numbers belong to the GPU of their tensors, also
while another one is the current device."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
    pytest.mark.usefixtures("fresh"),
]
FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")
MODES = ["default", "reduce-overhead"]


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 32), nn.Softmax(-1))


def step(call: Callable[[Tensor], Tensor], model: nn.Module, x: Tensor) -> list[Tensor]:
    """The output and the gradients of a training step."""
    model.zero_grad()
    x = x.detach().requires_grad_()
    found = call(x)
    found.square().sum().backward()
    return [found.detach().clone(), x.grad, *(p.grad for p in model.parameters())]  # type: ignore[list-item]


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trains", [False, True], ids=["infer", "train"])
def test_another_gpu_than_the_current_one(mode: str, trains: bool) -> None:
    model = layers().to(SECOND)
    compiled = armature.compile(model, fullgraph=True, mode=mode)
    for seed in range(5):
        torch.manual_seed(seed)
        x = torch.randn(16, 64, device=SECOND)
        if trains:
            expected = step(model, model, x)
            close(step(compiled, model, x), expected)
        else:
            with torch.no_grad():
                close(compiled(x), model(x))
        assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_function_on_each_in_turn(mode: str) -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.softmax(x.sin() * 2, -1) + torch.ones(x.shape[-1], device=x.device)

    compiled = armature.compile(fn, fullgraph=True, mode=mode)
    for turn in range(8):
        x = torch.randn(8, 300, device=(FIRST, SECOND)[turn % 2]) + turn
        found = compiled(x)
        assert found.device == x.device
        close(found, fn(x))


class Pipeline(nn.Module):
    """Half of the layers on each GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layers().to(FIRST), nn.Linear(32, 8).to(SECOND)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).to(SECOND)
        return self.second(x.relu()).tanh()


@pytest.mark.parametrize("mode", MODES)
def test_a_model_on_both(mode: str) -> None:
    model = Pipeline()
    compiled = armature.compile(model, fullgraph=True, mode=mode)
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(16, 64, device=FIRST)
        expected = step(model, model, x)
        close(step(compiled, model, x), expected)


def test_random_numbers_are_those_of_the_gpu() -> None:
    def fn(x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.3) * 2

    compiled = armature.compile(fn, fullgraph=True)
    for device in (SECOND, FIRST, SECOND):
        x = torch.randn(1000, device=device)
        states = []
        found = []
        for call in (fn, compiled):
            torch.manual_seed(5)
            found.append(call(x))
            states.append([torch.cuda.get_rng_state(k) for k in (0, 1)])
        close(found[1], found[0])
        assert all(torch.equal(one, other) for one, other in zip(*states, strict=True))


def test_the_current_device_is_the_programs() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.cuda.device(1):
            inside = torch.arange(6, device="cuda") + 1
        return inside * 2, x + torch.ones(3, device="cuda")

    compiled = armature.compile(fn)
    for current in (0, 1, 0):
        with torch.cuda.device(current):
            x = torch.randn(3, device="cuda")
            for found, expected in zip(compiled(x), fn(x), strict=True):
                assert found.device == expected.device
                close(found, expected)


def test_a_stream_of_the_other_gpu() -> None:
    def fn(x: Tensor) -> Tensor:
        for _ in range(20):
            x = x @ x / x.norm()
        return x.sin() + 1

    compiled = armature.compile(fn, fullgraph=True)
    x = torch.randn(500, 500, device=SECOND)
    expected = fn(x)
    stream = torch.cuda.Stream(SECOND)
    for _ in range(3):
        torch.cuda.synchronize(SECOND)
        with torch.cuda.stream(stream):
            found = compiled(x)
        stream.synchronize()
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_numbers_of_the_cpu_beside_tensors_of_the_other_gpu() -> None:
    def fn(x: Tensor, scale: Tensor) -> Tensor:
        return (x * scale).cos().sum(0)

    compiled = armature.compile(fn, fullgraph=True)
    x = torch.randn(50, 40, device=SECOND)
    for number in (2.0, 3.0):
        close(compiled(x, torch.tensor(number)), fn(x, torch.tensor(number)))


def test_an_optimizer_of_parameters_on_both() -> None:
    model = Pipeline()
    other = copy.deepcopy(model)
    steps = []
    for one in (model, other):
        optimizer = torch.optim.Adam(one.parameters(), lr=0.01, foreach=True)
        steps.append((one, optimizer.step if one is model else armature.compile(optimizer.step)))
    x = torch.randn(16, 64, device=FIRST)
    for _ in range(3):
        for one, update in steps:
            one.zero_grad()
            one(x).square().sum().backward()
            update()
    for mine, theirs in zip(other.parameters(), model.parameters(), strict=True):
        close(mine, theirs)


def test_threads_with_a_gpu_each() -> None:
    models = [layers().to(device) for device in (FIRST, SECOND)]
    compiled = [armature.compile(model, fullgraph=True) for model in models]
    inputs = [torch.randn(16, 64, device=device) for device in (FIRST, SECOND)]
    found: dict[int, list[Tensor]] = {}

    def work(k: int) -> None:
        found[k] = [compiled[k](inputs[k]).detach() for _ in range(10)]

    threads = [threading.Thread(target=work, args=(k,)) for k in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in (0, 1):
        expected = models[k](inputs[k]).detach()
        assert len(found[k]) == 10
        for one in found[k]:
            close(one, expected)


def test_data_parallel_of_a_compiled_module() -> None:
    model = layers().to(FIRST)
    parallel = nn.DataParallel(armature.compile(model), device_ids=[0, 1])
    for rows in (16, 24):
        x = torch.randn(rows, 64, device=FIRST)
        expected = step(model, model, x)
        close(step(parallel, model, x), expected)


def test_products_chosen_by_measurement(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64)).to(SECOND).half()
    x = torch.randn(128, 256, device=SECOND, dtype=torch.float16)
    with torch.no_grad(), armature.config.patch(cache_dir=tmp_path):
        compiled = armature.compile(model, fullgraph=True, mode="max-autotune")
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-2, atol=1e-2)
