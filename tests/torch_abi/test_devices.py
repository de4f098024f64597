"""The current device is asked for and changed as torch's public functions do it."""

from __future__ import annotations

import pytest
import torch

from armature.torch_abi.devices import current_index, index_of, on_device


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
