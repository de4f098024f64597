"""What a program assigns in the place of a module's buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import armature


class Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(2))
        self.register_buffer("hidden", torch.ones(2), persistent=False)


def state(module: nn.Module) -> list[Any]:
    tables = (module._buffers, module._parameters, module._modules)
    held = [{name: (type(value), repr(value)) for name, value in table.items()} for table in tables]
    return [*held, module._non_persistent_buffers_set, sorted(module.__dict__)]


ASSIGNED: dict[str, Callable[[], Any]] = {
    "int": lambda: 3,
    "str": lambda: "a",
    "bool": lambda: False,
    "None": lambda: None,
    "tensor": lambda: torch.zeros(3),
    "Parameter": lambda: nn.Parameter(torch.zeros(3)),
    "module": nn.Tanh,
}


@pytest.mark.parametrize("name", ["mean", "hidden"])
@pytest.mark.parametrize("made", [False, True], ids=["given", "made in the frame"])
@pytest.mark.parametrize("value", ASSIGNED.values(), ids=ASSIGNED)
def test_what_is_assigned_in_the_place_of_a_buffer(value: Callable[[], Any], made: bool, name: str) -> None:
    def program(x: torch.Tensor, module: nn.Module) -> Any:
        module = Buffered() if made else module
        try:
            setattr(module, name, value())
        except TypeError as error:
            return x + 1, str(error), module
        return x + 1, None, module

    armature.reset()
    results = [one(torch.ones(2), Buffered()) for one in (program, armature.compile(program, backend="eager"))]
    (_, expected, left), (_, said, right) = results
    assert expected == said
    assert state(left) == state(right)
