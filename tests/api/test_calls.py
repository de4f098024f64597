"""Between a call of compiled code and its kernels there are few Python functions: each takes as long as a small kernel."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import armature


def functions_run(call: Callable[[], object]) -> list[str]:
    """The names of Python functions that run in a call whose code is compiled already."""
    for _ in range(3):
        call()
    seen: list[str] = []

    def note(frame: Any, event: str, arg: object) -> None:
        if event == "call":
            seen.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen[1:]  # not `call` itself


def plus(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def test_a_function() -> None:
    compiled, x = armature.compile(plus), torch.ones(4)
    ours = functions_run(lambda: compiled(x, x))
    assert [name for name in ours if name != "is_dynamo_compiling"] == ["compiled", "plus", "call"]


def test_a_module_in_inference() -> None:
    net, x = armature.compile(nn.Linear(4, 4).eval()), torch.ones(2, 4)
    with torch.no_grad():
        ours = functions_run(lambda: net(x))
    assert ours[-2:] == ["forward", "call"]


def test_a_module_in_training() -> None:
    net, x = armature.compile(nn.Linear(4, 4)), torch.ones(2, 4)
    ours = functions_run(lambda: net(x))
    inside = ours[ours.index("forward") :]
    assert inside == ["forward", "call", "forward", "remember", "call", "save_for_backward"]
