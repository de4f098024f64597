"""When a module's call is its forward and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from armature.torch_abi.modules import calls_forward_only


def test_a_plain_module() -> None:
    assert calls_forward_only(nn.Linear(1, 1))


@pytest.mark.parametrize(
    "register",
    [
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    ],
)
def test_hooks(register: str) -> None:
    module = nn.Linear(1, 1)
    handle = getattr(module, register)(lambda *_: None)
    assert not calls_forward_only(module)
    handle.remove()
    assert calls_forward_only(module)


def test_global_hooks() -> None:
    handle = register_module_forward_hook(lambda *_: None)
    assert not calls_forward_only(nn.ReLU())
    handle.remove()
    assert calls_forward_only(nn.ReLU())


def test_a_call_of_its_own() -> None:
    class Loud(nn.ReLU):
        def __call__(self, *args: Any) -> Any:
            return super().__call__(*args) + 1

    assert not calls_forward_only(Loud())
