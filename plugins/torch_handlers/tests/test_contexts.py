"""Contexts and operators that say something to other compilers only, or to autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.strict_mode import strict_mode
from torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks

from armature.api import public as api

X = torch.linspace(-1, 1, 4)


def with_setting(x: Tensor) -> Tensor:
    with torch._dynamo.error_on_graph_break(True):
        return x + 1


@torch._dynamo.error_on_graph_break(False)
def decorated(x: Tensor) -> Tensor:
    return x + 1


def with_decorated(x: Tensor) -> Tensor:
    return decorated(x) * 2


def hinted(x: Tensor) -> Tensor:
    return hints_wrapper(lambda a: a.sin() + x, (x,), {}, hints={"a": 1, "b": "c"})


def strictly(x: Tensor) -> Tensor:
    return strict_mode(lambda a, b: (a.sin() * b, [a + x]), (x, 2))[1][0]


def without_hooks(x: Tensor) -> Tensor:
    y = x + 1
    with disable_saved_tensors_hooks("not here"):
        return (y * y).sum()


@pytest.mark.parametrize("options", [{"backend": "eager"}, {}], ids=str)
@pytest.mark.parametrize(
    "fn", [with_setting, with_decorated, hinted, strictly, without_hooks], ids=lambda fn: fn.__name__
)
def test_one_graph(fn: Callable[[Tensor], Tensor], options: dict[str, Any]) -> None:
    torch.testing.assert_close(api.compile(fn, fullgraph=True, **options)(X), fn(X))


def test_a_break_in_a_setting() -> None:
    def fn(x: Tensor) -> Tensor:
        with torch._dynamo.error_on_graph_break(False):
            y = x + 1
            api.graph_break("here")
            return y * 2

    assert torch.equal(api.compile(fn, backend="eager")(X), fn(X))


def test_wrong_hints_are_eager_modes_error() -> None:
    def fn(x: Tensor) -> Tensor:
        return hints_wrapper(torch.sin, (x,), {}, hints={"a": [1]})

    with pytest.raises(RuntimeError, match="hints must be"):
        api.compile(fn, backend="eager")(X)


def learns_inside(x: Tensor) -> Tensor:
    return strict_mode(lambda a: (a * x,), [x.detach().clone()])[0]  # torch 2.15 takes no inputs that share memory


@pytest.mark.parametrize("fn", [hinted, strictly, learns_inside], ids=lambda fn: fn.__name__)
def test_operators_where_gradients_are_wanted(fn: Callable[[Tensor], Tensor]) -> None:
    compiled = api.compile(fn, backend="eager")
    x = X.clone().requires_grad_()
    assert torch.equal(compiled(x), fn(x))
    for called in (compiled, fn):
        with pytest.raises(RuntimeError, match="Autograd not implemented"):
            called(x).sum().backward()


def test_hooks_of_the_caller() -> None:
    compiled = api.compile(without_hooks, backend="eager")
    x = X.clone().requires_grad_()
    assert torch.equal(compiled(x), without_hooks(x))
    for fn in (compiled, without_hooks):
        with saved_tensors_hooks(lambda t: t, lambda t: t), pytest.raises(RuntimeError, match="not here"):
            fn(x)
    compiled(x).backward()
    torch.testing.assert_close(x.grad, 2 * (X + 1))


def test_hooks_inside() -> None:
    def fn(x: Tensor) -> Tensor:
        with disable_saved_tensors_hooks("not here"), saved_tensors_hooks(lambda t: t, lambda t: t):
            return x * x

    for run in (fn, api.compile(fn, backend="eager")):
        with pytest.raises(RuntimeError, match="not here"):
            run(X)
    with saved_tensors_hooks(lambda t: t, lambda t: t):  # allowed again
        pass


def profiled(x: Tensor) -> Tensor:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True):
        y = x * 2
    with torch.autograd.profiler.profile():
        return y + 1


def test_a_profiler_that_nobody_asks_is_nothing() -> None:
    compiled = api.compile(profiled, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), X * 2 + 1)


def read_after(x: Tensor) -> tuple[Tensor, bool]:
    with torch.profiler.profile() as recorded:
        y = x.sin() * 2
    return y, any("sin" in one.key for one in recorded.key_averages())


def handed_on(x: Tensor) -> tuple[Tensor, bool]:
    found: list[Any] = []
    with torch.autograd.profiler.profile() as recorded:
        found.append(recorded)
        y = x.sin() * 2
    return y, any("sin" in one.key for one in found[0].key_averages())


def read_in_the_middle(x: Tensor) -> tuple[Tensor, bool]:
    with torch.profiler.profile() as recorded:
        y = x.sin()
        api.graph_break("here")
        y = y * 2
    return y, any("sin" in one.key for one in recorded.key_averages())


def calls_back(x: Tensor) -> tuple[Tensor, bool]:
    told: list[bool] = []
    with torch.profiler.profile(on_trace_ready=lambda profiler: told.append(True)):
        y = x * 2
    return y, told == [True]


@pytest.mark.parametrize("fn", [read_after, handed_on, read_in_the_middle, calls_back], ids=lambda fn: fn.__name__)
def test_profilers_that_are_asked_have_recorded(fn: Callable[[Tensor], tuple[Tensor, bool]]) -> None:
    result, recorded = api.compile(fn, backend="eager")(X)
    assert torch.equal(result, fn(X)[0])
    assert recorded


def named_range(x: Tensor) -> Any:
    with torch.profiler.record_function("a range", "told") as opened:
        y = x + 1
        api.graph_break("here")
        y = y * 2
    return y, type(opened), opened.name, opened.args


def range_apart(x: Tensor) -> Any:
    opened = torch.profiler.record_function("a range")
    y = x + 1
    api.graph_break("here")
    with opened:
        return y * 2, type(opened), opened.name


def setting_bound(x: Tensor) -> Any:
    with torch._dynamo.error_on_graph_break(False) as bound:
        y = x + 1
        api.graph_break("here")
        return y * 2, bound


@pytest.mark.parametrize("fn", [named_range, range_apart, setting_bound], ids=lambda fn: fn.__name__)
def test_a_context_that_does_nothing_is_itself_after_a_break(fn: Callable[[Tensor], Any]) -> None:
    found, wanted = api.compile(fn, backend="eager")(X), fn(X)
    assert torch.equal(found[0], wanted[0]) and found[1:] == wanted[1:]


def test_autocast_objects_that_differ_in_their_device_alone() -> None:
    def fn(x: Tensor, cast: torch.autocast) -> Tensor:
        with cast:
            return x @ x

    of_cpu, of_another = torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", torch.bfloat16)
    of_another.device = "xpu"
    compiled, x = api.compile(fn, backend="eager"), torch.eye(4)
    assert [compiled(x, cast).dtype for cast in (of_cpu, of_another)] == [torch.bfloat16, torch.float32]
