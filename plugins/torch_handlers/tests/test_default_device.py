"""`torch.set_default_device` in a compiled function: the tensors made after it, and what holds when it returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode

import armature

X = torch.linspace(-1, 1, 3)


class Shifting(TorchFunctionMode):
    """Adds one to each sine."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return found + 1 if func is torch.sin else found


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    armature.reset()
    yield
    torch.set_default_device(None)


def asked() -> tuple[torch.device, torch.device]:
    return torch.zeros(1).device, torch.get_default_device()


def chosen(x: Tensor) -> Any:
    torch.set_default_device("meta")
    made = torch.zeros(3)
    return x * 2, made, asked(), torch.ones(2, device="cpu") + 1


def chosen_and_reset(x: Tensor) -> Any:
    before = asked()
    torch.set_default_device(torch.device("meta"))
    inside = torch.empty(2, 2), asked()
    torch.set_default_device(None)
    return x + torch.ones(3), before, inside, asked()


def chosen_again(x: Tensor) -> Any:
    torch.set_default_device("meta")
    torch.set_default_device(device="cpu")
    return x + torch.arange(3), asked()


def reset_only(x: Tensor) -> Any:
    torch.set_default_device(None)
    return x + torch.arange(3), asked()


def below_a_mode(x: Tensor) -> Any:
    with Shifting():
        torch.set_default_device("meta")
        x = torch.sin(x)
        inside = torch.zeros(2)
    return torch.sin(x), inside, asked()


def before_a_device(x: Tensor) -> Any:
    torch.set_default_device("meta")
    with torch.device("cpu"):
        inside = asked()
    return x * 2, inside, asked()


def before_a_break(x: Tensor) -> Any:
    torch.set_default_device("meta")
    inside = torch.zeros(2)
    print(end="")
    later = torch.zeros(3), asked()
    torch.set_default_device(None)
    return x * 2 + torch.ones(3), inside, later, asked()


def reset_after_a_break(x: Tensor) -> Any:
    torch.set_default_device("meta")
    print(end="")
    torch.set_default_device(None)
    return x * 2 + torch.ones(3), asked()


WHOLE = [chosen, chosen_and_reset, chosen_again, reset_only, below_a_mode, before_a_device]
CUT = {before_a_break: 2, reset_after_a_break: 2}


def found(fn: Callable[[Tensor], Any], given: Tensor) -> tuple[str, str, int]:
    """A call's results, and what is set after it."""
    result = fn(given)
    state = str((*asked(), len(torch.overrides._get_current_function_mode_stack())))
    torch.set_default_device(None)
    return (
        re.sub(r"grad_fn=<\w+>", "learned", str(result)),
        state,
        len(torch.overrides._get_current_function_mode_stack()),
    )


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("program", [*WHOLE, *CUT])
def test_as_in_eager_mode(program: Callable[[Tensor], Any], backend: str) -> None:
    compiled = armature.compile(program, backend=backend, fullgraph=program in WHOLE)
    for given in (X, X, X.clone().requires_grad_()):
        assert found(compiled, given) == found(program, given)


@pytest.mark.parametrize("program", CUT)
def test_breaks(program: Callable[[Tensor], Any]) -> None:
    assert armature.explain(program)(X).graph_break_count == CUT[program]


def test_a_device_that_the_program_has_chosen_before() -> None:
    compiled = armature.compile(chosen_and_reset)
    for before in (None, "meta", None):
        torch.set_default_device(before)
        expected = found(lambda x: chosen_and_reset(x.to("cpu")), X) if before is None else None
        torch.set_default_device(before)
        if expected is not None:
            assert found(compiled, X) == expected
        else:
            assert compiled(X)[1][1].type == "meta" and torch.get_default_device().type == "cpu"


def test_no_device() -> None:
    def wrong(x: Tensor) -> Tensor:
        torch.set_default_device("nowhere")
        return x * 2

    for fn in (wrong, armature.compile(wrong)):
        with pytest.raises(RuntimeError, match="nowhere"):
            fn(X)


def test_another_mode_around_the_call() -> None:
    compiled = armature.compile(chosen, fullgraph=True)
    results = []
    for fn in (chosen, compiled, compiled):
        with BaseTorchFunctionMode():
            results.append(found(fn, X))
    assert results[1:] == results[:1] * 2
