"""What the graph stage leaves of torch's state: nothing, wherever a run of the captured graph ends."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.func import grad, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

import armature
from armature import config
from armature.torch_abi.grad_modes import CHANGED_BY

RUNS = [0]  # runs of the graph that are left before one raises


@armature.allow_in_graph
def step(x: torch.Tensor) -> torch.Tensor:
    """An operator that raises in a chosen run of the graph."""
    RUNS[0] -= 1
    if RUNS[0] == 0:
        raise RuntimeError("raised in the middle of the graph")
    return x * 2


def under_dual_level(x: torch.Tensor) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(step(forward_ad.make_dual(x, x)))[1]


def under_grad_mode(x: torch.Tensor) -> Any:
    with torch.no_grad():
        return step(x)


def under_autocast(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return step(x) @ x


def under_two_autocasts(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cpu", enabled=False):
        return step(x) @ x


def under_attention(x: torch.Tensor) -> Any:
    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(step(x), x, x)


def under_no_hooks(x: torch.Tensor) -> Any:
    with disable_saved_tensors_hooks("none here"):
        return step(x)


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "vmap": lambda x: vmap(step)(x),
    "grad": lambda x: grad(lambda y: step(y).sum())(x),
    "vjp": lambda x: vjp(step, x)[1](x),
    "jvp": lambda x: jvp(step, (x,), (x,)),
    "jacrev": lambda x: jacrev(step)(x),
    "jacfwd": lambda x: jacfwd(step)(x),
    "vmap of grad": lambda x: vmap(grad(lambda y: step(y).sum()))(x),
    "vmap of jacrev": lambda x: vmap(jacrev(step))(x),
    "vmap of jacfwd": lambda x: vmap(jacfwd(step))(x),
    "jacrev of jacrev": lambda x: jacrev(jacrev(step))(x),
    "jacrev of jacfwd": lambda x: jacrev(jacfwd(step))(x),
    "dual level": under_dual_level,
    "grad mode": under_grad_mode,
    "autocast": under_autocast,
    "two autocasts": under_two_autocasts,
    "attention": under_attention,
    "no hooks": under_no_hooks,
}


def state() -> tuple[object, ...]:
    """All of torch's state that the programs change."""
    backends = torch.backends.cuda
    return (
        *(switch.read() for switch in dict.fromkeys(CHANGED_BY.values())),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        backends.flash_sdp_enabled(),
        backends.math_sdp_enabled(),
        torch._C._autograd._saved_tensors_hooks_get_disabled_error_message(),
    )


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    armature.reset()
    yield
    RUNS[0] = 0


@pytest.mark.parametrize("learns", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("run", [1, 2, 3, 4])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_an_error_in_any_run_of_the_graph_leaves_no_state(program: Callable[..., Any], run: int, learns: bool) -> None:
    """Tracing is the first run; the stage has one or several more. What comes after is as if nothing had been."""
    x = torch.linspace(-1, 1, 9).reshape(3, 3).requires_grad_(learns)
    expected, before = program(x), state()
    with warnings.catch_warnings(), config.patch(strict=False):
        warnings.simplefilter("ignore")
        RUNS[0] = run
        try:
            found = armature.compile(program)(x)
        except RuntimeError as error:
            assert "in the middle" in str(error)
        else:
            torch.testing.assert_close(found, expected)
    assert state() == before
    RUNS[0] = 0
    torch.testing.assert_close(armature.compile(program)(x), expected)
    assert state() == before


def multiplied_then_changed(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
        x.add_(1)
    return y


def test_a_write_inside_autocast() -> None:
    """A run that ends at the write is no error: the graph is compiled in another way."""
    before = state()
    found = armature.compile(multiplied_then_changed, fullgraph=True)(torch.ones(4, 4))
    assert found.dtype is torch.bfloat16
    assert state() == before


def test_repeated_places_that_are_filled_count_once() -> None:
    """The gradient of the number needs the distinct places, of which there are as many as their values make."""

    def fill(value: torch.Tensor) -> torch.Tensor:
        return torch.index_fill(torch.zeros(3, 5), -1, torch.tensor([0, 1, 1, 3, 0]), value)

    weights = torch.arange(15.0).reshape(3, 5)
    gradients = []
    with config.patch(strict=False, fallback_warning=False):
        for program in (fill, armature.compile(fill)):
            value = torch.tensor(2.0, requires_grad=True)
            (program(value) * weights).sum().backward()
            gradients.append(value.grad)
    torch.testing.assert_close(gradients[1], gradients[0])
