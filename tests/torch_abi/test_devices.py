"""The current device is asked for and changed as torch's public functions do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature.torch_abi import devices
from armature.torch_abi.devices import current_index, index_of, on_device
from armature.torch_abi.fake import FakeWorld
from armature.trace import interpreter


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two accelerators, of which the second is the current device."""
    monkeypatch.setattr(devices, "_accelerator", lambda: ("cuda", 2))
    monkeypatch.setattr(devices, "current_index", lambda: 1)


def test_a_device_without_an_index_is_the_current_one(two: None) -> None:
    assert devices.with_index(torch.device("cuda")) == torch.device("cuda", 1)
    assert devices.with_index(torch.device("cuda", 0)) == torch.device("cuda", 0)
    assert devices.with_index(torch.device("cpu")) == torch.device("cpu")
    assert index_of(torch.device("cuda", 1)) == 1
    assert devices.current_of_several() == 1


def test_fakes_of_a_device_without_an_index_are_on_the_current_one(two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in (1, 0, 1):
        monkeypatch.setattr(devices, "current_index", lambda index=index: index)
        mode = FakeWorld().mode
        with mode:
            assert torch.ops.aten.ones.default([3]).device.type == "cpu"
            assert mode.current is None
            assert torch.ops.aten.ones.default([3], device=torch.device("cuda")).device == torch.device("cuda", index)
            assert mode.current == index


def test_code_for_the_current_device_is_not_run_on_another(two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def current() -> int:
        return now[0]

    monkeypatch.setattr(devices, "current_index", current)
    monkeypatch.setattr(interpreter, "current_index", current)
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(graph)
        return lambda *args: (args[0] + 1,)

    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.ones(2, device="cuda")
        return x + 1

    armature.reset()
    compiled = armature.compile(fn, backend=backend)
    for now[0], count in ((0, 1), (0, 1), (1, 2), (0, 2), (1, 2)):
        compiled(torch.zeros(2))
        assert len(graphs) == count


def test_a_cpu_is_no_accelerator() -> None:
    assert index_of(torch.device("cpu")) is None
    assert index_of(torch.device("cpu", 0)) is None
    assert index_of(torch.device("meta")) is None


@pytest.mark.skipif(torch.accelerator.is_available(), reason="has an accelerator")
def test_without_an_accelerator_no_device_is_one() -> None:
    assert index_of(torch.device("cuda", 1)) is None


@pytest.mark.gpu
def test_the_current_device_is_another_one_for_a_call() -> None:
    last = torch.accelerator.device_count() - 1
    assert index_of(torch.device("cuda", last)) == last
    assert current_index() == torch.accelerator.current_device_index()
    for index in (0, last):
        torch.accelerator.set_device_index(index)
        assert current_index() == index
        assert on_device(last, lambda x, y: (x, y, torch.cuda.current_device()), 1, y=2) == (1, 2, last)
        with pytest.raises(ZeroDivisionError):
            on_device(last, lambda: 1 / 0)
        assert current_index() == index
    torch.accelerator.set_device_index(0)
