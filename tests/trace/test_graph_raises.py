"""What a compiled graph raises when it runs is seen by the program as in eager mode: handlers, changes, lines."""

from __future__ import annotations

import contextlib
import gc
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature import config
from armature.errors import ArmatureWarning
from armature.frame import rerun
from armature.frame.rerun import MOST_BYTES
from armature.hookspecs import hookimpl
from armature.plugins import manager
from armature.testing.differential import difference
from armature.torch_abi.altering import snapshot
from armature.torch_abi.grad_modes import CHANGED_BY
from tests.support.resuming import compiled, resumes


def one() -> tuple[Any, ...]:
    return torch.linspace(-1.0, 1.0, 6).reshape(2, 3), []


class Logs:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, tb):
        self.log.append(("exit", kind))
        return False


def error_in_with(t, a, says=False):
    with Logs(a):
        if says:
            print("before")
        idx = torch.tensor([5, 9])
        t = t[idx] * 2
        t = t + 1
    return t


def error_in_with_after_a_break(t, a):
    return error_in_with(t, a, says=True)


def error_in_try(t, a, says=False):
    try:
        if says:
            print("before")
        idx = torch.tensor([5, 9])
        t = t[idx] * 2
        t = t + 1
    except IndexError as e:
        a.append(type(e))
    finally:
        a.append("fin")
    return t


def error_in_try_after_a_break(t, a):
    return error_in_try(t, a, says=True)


def runtime_error_effects(t, a):
    a.append(1)
    idx = torch.tensor([5, 9])
    a.append(2)
    t = t[idx] * 2
    a.append(3)
    return t


def stars(t, a, *more, scale=2, **named):
    a.append((more, scale, named))
    return t[torch.tensor([7])] * scale


def calls_stars(t, a):
    return stars(t, a, 1, 2, scale=3, other=4)


def in_a_loop_after_a_break(t, a):
    for n in (0, 1, 5):
        try:
            print(n)
            a.append(t[torch.tensor([n])].sum() * 2)
        except IndexError as error:
            a.append(str(error))
        else:
            a.append("fine")
    return t + 1


def in_no_grad(t, a):
    with torch.no_grad():
        t = t[torch.tensor([9])] * 2
        a.append(t)
    return t


def closure(t, a):
    n = 0

    def inner():
        nonlocal n
        n += 1
        a.append(n)
        return t[torch.tensor([n])]

    inner()
    return inner() + n


def handled_error(t, a):
    try:
        raise KeyError("first")
    except KeyError:
        t = t * 2
        try:
            t = t[torch.tensor([4])] + 1
        except IndexError as error:
            a.append(repr(error.__context__))
    return t


PROGRAMS = [
    error_in_with, error_in_with_after_a_break, error_in_try, error_in_try_after_a_break,
    runtime_error_effects, calls_stars, in_a_loop_after_a_break, in_no_grad, closure, handled_error,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_like_eager(program: Callable[..., Any]) -> None:
    found = resumes(program, one)
    assert found.graphs and not found.eager


def writes(t, a):
    t.add_(1)
    a.append("written")
    return t[torch.tensor([8])]


def writes_in_try(t, a):
    view = t[0]
    try:
        view.mul_(2)
        t = t.index_select(0, torch.tensor([1, 7]))
        a.append("not reached")
    except IndexError:
        view.add_(1)
    return t * 3, view


def draws_in_try(t, a):
    try:
        t = t + torch.rand(3)
        t = t[torch.tensor([8])]
    except IndexError:
        t = t + torch.rand(3)
    return t


def writes_to_what_it_made(t, a):
    made = t * 2
    made[made > 9] = 1
    a.append("before")
    made[torch.tensor([3])] = 1
    return made


def divides_by_zero(t, a):
    t.add_(1)
    number = torch.tensor([3, 4])
    try:
        number //= torch.tensor([1, 0])
    except RuntimeError as error:
        a.append(str(error))
    return number, t


def multiplies_other_dtypes(t, a):
    t.add_(1)
    try:
        t = t @ torch.ones(3, 3, dtype=torch.float64)
    except RuntimeError as error:
        a.append(str(error))
    return torch.nn.functional.linear(t.double(), torch.ones(3, 3))


def in_autocast(t, a):
    try:
        with torch.autocast("cpu"):
            t = t @ t.t()
            t = t[torch.tensor([5])]
    except IndexError:
        a.append(torch.is_autocast_enabled("cpu"))
    return t @ t.t()


def in_inference_mode(t, a):
    try:
        with torch.inference_mode():
            t = (t + 1)[torch.tensor([5])]
    except IndexError:
        a.append(torch.is_inference_mode_enabled())
    return t + 1


def in_vmap(t, a):
    return torch.vmap(lambda row: row[torch.tensor([8])])(t)


def in_grad(t, a):
    return torch.func.grad(lambda row: row[torch.tensor([8])].sum())(t)


def in_jvp(t, a):
    return torch.func.jvp(lambda row: row[torch.tensor([8])], (t,), (t,))


def refused_by_autocast(t, a):
    try:
        with torch.autocast("cpu", enabled=1):  # no bool
            t = t + 1
    except TypeError as error:
        a.append(str(error))
    return t * 2


def refused_by_autocast_later(t, a):
    try:
        with torch.autocast("cpu", enabled=a):
            a.append("not reached")
    except TypeError as error:
        a.append(str(error))
    return t * 2


DOING = [
    writes, writes_in_try, draws_in_try, writes_to_what_it_made, divides_by_zero, multiplies_other_dtypes, in_autocast,
    in_inference_mode, in_vmap, in_grad, in_jvp, refused_by_autocast, refused_by_autocast_later,
]  # fmt: skip


@pytest.mark.parametrize("backend", [None, "auto"])
@pytest.mark.parametrize("program", DOING)
def test_what_the_graph_has_done_is_undone(program: Callable[..., Any], backend: str | None) -> None:
    states = [switch.read() for switch in dict.fromkeys(CHANGED_BY.values())]
    found = resumes(program, seeded, backend=backend)
    assert found.graphs and not found.eager
    assert [switch.read() for switch in dict.fromkeys(CHANGED_BY.values())] == states
    assert not torch.is_autocast_enabled("cpu") and not torch.is_inference_mode_enabled()


def seeded() -> tuple[Any, ...]:
    torch.manual_seed(0)
    return one()


def test_versions_are_those_of_eager_mode() -> None:
    def program(t, index):
        try:
            t.add_(1)
            return t[index]
        except IndexError:
            return t * 0

    mine, _ = compiled(program)
    x = torch.ones(3)
    for index, changes in ((1, 1), (7, 2), (7, 3)):
        mine(x, torch.tensor([index]))
        assert x._version == changes
        assert x[0] == 1 + changes


@pytest.mark.parametrize("backend", [None, "auto"])
def test_autograd_does_not_remember_a_graph_that_has_raised(backend: str | None) -> None:
    def program(t, index):
        t[:, 1:] *= 3
        try:
            return t.sum() + t.index_select(0, index).sum()
        except IndexError:
            return t.sum() * 2

    def gradient(fn: Callable[..., Any], index: int) -> Any:
        leaf = torch.ones(2, 3, requires_grad=True)
        fn(leaf * 1, torch.tensor([index])).backward()
        return leaf.grad

    mine, records = compiled(program, backend)
    for index in (1, 7, 0):
        assert difference(gradient(program, index), gradient(mine, index)) == 0.0
    assert len(records.compilations) == 1


@pytest.mark.parametrize("backend", [None, "auto"])
@pytest.mark.parametrize("handled", [False, True])
def test_what_raises_before_a_tensor_with_gradients_is_changed(handled: bool, backend: str | None) -> None:
    def program(t, index):
        if not handled:
            found = t.index_select(0, index).sum()
            t.t().mul_(3)
            return found + t.sum()
        t.data.add_(1)
        try:
            found = t.index_select(0, index).sum()
        except IndexError:
            found = 0
        t.t().mul_(3)
        return found + t.sum()

    def outcome(fn: Callable[..., Any], index: int) -> Any:
        leaf = torch.arange(6.0).reshape(2, 3).requires_grad_()
        t = leaf * 1
        try:
            fn(t, torch.tensor([index])).backward()
        except IndexError as error:
            return str(error), traceback.extract_tb(error.__traceback__)[-1].lineno, t.detach(), t.grad_fn.name()
        return leaf.grad, t.detach()

    mine, records = compiled(program, backend)
    for index in (1, 7, 0, 7):
        assert difference(outcome(program, index), outcome(mine, index)) == 0.0
    assert len(records.compilations) == 1


def caught(cache: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, str]:
    cache.add_(1)
    try:
        with contextlib.nullcontext():
            found = cache[index] * 2
    except IndexError:
        cache.mul_(3)
        return cache.sum(), "caught"
    return found.sum(), "found"


def cleaned_up(cache: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, str]:
    try:
        cache.add_(1)
        found = cache[index] * 2
    finally:
        cache.mul_(3)
    return found.sum(), "found"


@pytest.mark.parametrize("program", [caught, cleaned_up])
@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_a_try_sees_errors_however_much_memory_was_written(program: Callable[..., Any], backend: str) -> None:
    seen = []
    for run in (program, armature.compile(program, backend=backend)):
        cache = torch.ones(MOST_BYTES // 2)
        for index in (3, 5, len(cache) + 1, 7):
            with contextlib.suppress(IndexError):
                seen.append(run(cache, torch.tensor([index])))
            seen.append(cache[:2].clone())
    assert difference(seen[len(seen) // 2 :], seen[: len(seen) // 2]) == 0.0


def test_much_memory_is_not_copied_before_each_call() -> None:
    def program(t, a):
        t.add_(1)
        return t[torch.tensor([1 << 20])]

    mine, _ = compiled(program)
    x = torch.zeros(MOST_BYTES)
    with pytest.raises(IndexError):
        mine(x, [])
    assert x[0] == 1  # written once


def test_nothing_is_kept_twice_for_operators_that_can_not_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call shows whether there is a kernel for each of them."""

    def program(t, a):
        t.add_(1)
        t = torch.nn.functional.normalize(torch.multiply(t, t)).detach()
        return t.relu().sum(-1)[0] / 2

    copied = []
    monkeypatch.setattr(rerun, "snapshot", lambda tensors: copied.append(0) or snapshot(tensors))
    mine, _ = compiled(program)
    for _ in range(3):
        mine(*one())
    assert len(copied) == 1


def broken(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        raise RuntimeError("of the kernel")

    return run


def plain(t):
    return t * 2


class BrokenPlugin:
    @hookimpl
    def armature_graph_backends(self) -> Any:
        return {"broken": broken}


def test_an_error_that_eager_mode_does_not_have() -> None:
    x = torch.ones(3)
    with manager().registered(BrokenPlugin(), "broken"):
        mine, _ = compiled(plain, "broken")
        with config.patch(strict=True), pytest.raises(RuntimeError, match="of the kernel"):
            mine(x)
        mine, _ = compiled(lambda t: t * 2, "broken")
        with config.patch(strict=False), pytest.warns(ArmatureWarning, match="of the kernel"):
            assert torch.equal(mine(x), x * 2)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert torch.equal(mine(x), x * 2)  # said once


def test_an_error_of_a_back_end_of_the_users() -> None:
    mine, _ = compiled(lambda t: t * 2, broken)
    with config.patch(strict=False), pytest.raises(RuntimeError, match="of the kernel"):
        mine(torch.ones(3))


def waiting(log):
    try:
        yield 1
    finally:
        log.append("closed")


def leaves_a_generator(t, log):
    generator = waiting(log)
    next(generator)
    return t[torch.tensor([9])]


@pytest.mark.parametrize("strict", [True, False])
def test_what_the_frame_held_lives_no_longer_than_the_error(strict: bool) -> None:
    collects = gc.isenabled()
    gc.disable()
    try:
        with config.patch(strict=strict):
            mine, _ = compiled(leaves_a_generator)
            for _ in range(3):
                log: list[str] = []
                with contextlib.suppress(IndexError):
                    mine(torch.ones(3), log)
                gc.collect(0)  # the tracer of the first call
                assert log == ["closed"]
    finally:
        if collects:
            gc.enable()


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize(
    "subtract",
    [
        lambda b, n: b - 1,
        lambda b, n: 2 - b,
        lambda b, n: n - True,
        lambda b, n: n - b,
        lambda b, n: torch.sub(b, n),
        lambda b, n: n.clone().sub_(b),
        lambda b, n: torch.rsub(b, 1),
    ],
)
def test_differences_of_bools_are_refused(subtract: Callable[..., Any], backend: str) -> None:
    given = torch.tensor([True, False]), torch.tensor([3, 4])
    found = []
    for call in (subtract, armature.compile(subtract, backend=backend)):
        with pytest.raises(RuntimeError, match="Subtraction") as stop:
            call(*given)
        found.append(str(stop.value))
    assert found[0] == found[1]


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_running_statistics_are_updated_once(backend: str) -> None:
    def program(module: torch.nn.Module, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return module(x)[place]

    found, expected = torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
    x, place = torch.linspace(-1, 2, 12).reshape(4, 3), torch.tensor([7])
    run = armature.compile(program, backend=backend)
    for call, module in ((run, found), (program, expected)):
        for _ in range(2):
            with pytest.raises(IndexError):
                call(module, x, place)
    torch.testing.assert_close(dict(found.named_buffers()), dict(expected.named_buffers()))


def counts_after_a_write(t: torch.Tensor) -> torch.Tensor:
    t = t.detach().requires_grad_() * 2
    armature.graph_break()
    t[:, 1:] = 3.0
    rows = torch.div(t.size(1), 2, rounding_mode="trunc")
    return t + t.new_zeros((rows + 1,)).sum() + torch.arange(3) // 2


def test_a_division_by_a_known_number_does_not_end_a_graph() -> None:
    assert resumes(counts_after_a_write, lambda: one()[:1]).breaks == ["explicit-break"]


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("length", [3, MOST_BYTES])
def test_the_first_change_may_raise_in_the_graph(length: int, backend: str) -> None:
    def program(t, index):
        try:
            t[index] = 2.0
        except IndexError:
            return t.sum() * 3, t._version
        return t.sum() * 2, t._version

    def outcome(fn: Callable[..., Any], index: int) -> Any:
        leaf = torch.ones(length, requires_grad=True)
        total, version = fn(leaf * 1, torch.tensor([0, index]))
        total.backward()
        return total.detach(), version, leaf.grad

    mine, records = compiled(program, backend)
    for index in (1, 1 << 20, 2):
        assert difference(outcome(program, index), outcome(mine, index)) == 0.0
    assert len(records.compilations) == 1  # small memory is restored, items of large memory are set again
