"""What a training graph writes to and keeps for backward: eager mode keeps the tensor itself, and finds it changed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import armature


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("count", torch.ones(3))


class Reads(Counts):
    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return self.layer(x) * self.count


class ReadsView(Counts):
    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return self.layer(x) * self.count[:1]


class ReadsResult(Counts):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.count.mul_(2)


class ReadsCopy(Counts):
    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return self.layer(x) * self.count.clone()


class OnlyCounts(Counts):
    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return self.layer(x).sin()


def twice(module: nn.Module, x: Tensor) -> Tensor:
    first = module(x)
    armature.graph_break()
    return first + module(x)


def assert_alike(found: object, wanted: object) -> None:
    if isinstance(wanted, bool):
        assert found == wanted
    else:
        torch.testing.assert_close(found, wanted)


def gradients(run, module: nn.Module) -> object:
    torch.manual_seed(0)
    module = copy.deepcopy(module)
    run(module, torch.ones(4, 3))  # grads of one call only where the next one changes nothing
    value = run(module, torch.randn(4, 3))
    try:
        value.sum().backward()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)
    return [each.grad for each in module.parameters()] + [*module.buffers()]


@pytest.mark.parametrize("kind", [Reads, ReadsView, ReadsResult, ReadsCopy, OnlyCounts])
@pytest.mark.parametrize("run", [twice, lambda module, x: module(x)])
def test_buffers_written_again_before_backward(kind, run):
    torch.manual_seed(0)
    module = kind()
    wanted = gradients(run, module)
    assert_alike(gradients(armature.compile(run), module), wanted)


@pytest.mark.parametrize("kind", [ReadsCopy, OnlyCounts])
def test_kernels_are_made_for_what_keeps_nothing_of_it(kind, compiled_graphs):
    gradients(armature.compile(lambda module, x: module(x)), kind())
    assert compiled_graphs == ["forward", "backward"]


def test_kernels_are_made_for_running_statistics(compiled_graphs):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.BatchNorm1d(3))
    wanted = gradients(lambda module, x: module(x), module)
    found = gradients(armature.compile(lambda module, x: module(x)), module)
    assert compiled_graphs == ["forward", "backward"]
    assert_alike(found, wanted)


class ReadsBefore(Counts):
    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x) * (self.count + 1)
        self.count.add_(1)
        z = self.layer(y) * self.count.view(1, 3).exp()
        self.count.mul_(2)
        return z + self.count


@pytest.mark.parametrize("backend", ["auto", "aot_eager"])
def test_what_was_computed_before_a_write_is_not_computed_again_after_it(backend: str) -> None:
    """The partitioner would save the buffer, and have backward add 1 to what was written to it."""
    torch.manual_seed(0)
    eager = ReadsBefore()
    model, x = copy.deepcopy(eager), torch.randn(2, 3)
    compiled = armature.compile(model, backend=backend, fullgraph=True)
    for _ in range(2):
        for one in (eager, compiled):
            one(x).square().mean().backward()
    for mine, wanted in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, wanted.grad)
    torch.testing.assert_close(model.count, eager.count)
