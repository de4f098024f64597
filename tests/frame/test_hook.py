"""The hook with a compiler made by hand: what is compiled, cached, skipped, left alone, and told to the compiler."""

from __future__ import annotations

import collections
import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from armature.frame import idle, verify
from armature.frame.data import FrameRequest
from armature.frame.guards import kinds
from armature.frame.guards.explain import Mismatch
from armature.frame.hook import CompiledFrame, FrameHook, RunEagerly
from armature.frame.show import show
from armature.frame.sources import LocalSource
from armature.torch_abi.eval_frame import set_eval_frame


class ByHand:
    """Compiles functions whose name begins with `c`: guards the tensor `x`, or the value of `n`, and runs a copy."""

    fullgraph = False
    dynamic = None

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.skips: dict[str, str] = {}
        self.known: set[str] = set()
        self.failures: list[tuple[Mismatch, ...]] = []
        self.limits: list[tuple[Mismatch, ...]] = []
        self.guards: list[tuple[str, ...]] = []
        self.errors: list[Exception] = []

    def reason_to_skip(self, code: CodeType, variables: Mapping[str, object]) -> str | None:
        return "a rule says so" if code.co_name == "ruled_out" else None

    def recompile_limit(self, request: FrameRequest) -> int:
        return 3

    def compile(self, request: FrameRequest) -> CompiledFrame:
        verify.verify(request)
        assert request.code.co_name in show(request)
        name = request.code.co_name
        self.compiled.append(name)
        if not name.startswith("c"):
            raise RunEagerly("not by hand", for_all=name.startswith("empty"))
        return CompiledFrame(request.code.replace(co_name="made"), tuple(self._guards(request)))

    def _guards(self, request: FrameRequest) -> Iterator[kinds.Guard]:
        for name, value in request.locals.items():
            source = LocalSource(name)
            if isinstance(value, torch.Tensor):
                yield kinds.TensorGuard(source, value, tuple(value.shape), value.stride(), "test.py:1")
            elif isinstance(value, int):
                yield kinds.ValueGuard(source, value)
            elif isinstance(value, nn.Module):
                yield kinds.IdGuard(source, value)

    def installed(self, request: FrameRequest, guards: tuple[str, ...]) -> None:
        self.guards.append(guards)

    def guards_unbuildable(self, request: FrameRequest, error: Exception) -> None:
        self.errors.append(error)

    def skipped(self, code: CodeType, reason: str, for_good: bool = False) -> None:
        self.skips[code.co_name] = reason

    def known_idle(self, request: FrameRequest) -> RunEagerly | None:
        known = request.code.co_name in self.known and not request.promising
        return RunEagerly("known", for_all=True, idle=True) if known else None

    def recompiling(self, request: FrameRequest, failures: tuple[Mismatch, ...]) -> None:
        self.failures.append(failures)

    def limit_reached(
        self, request: FrameRequest, failures: tuple[Mismatch, ...], advice: tuple[str, ...], modules: int
    ) -> None:
        self.limits.append(failures)


class Key:
    __slots__ = ()


@pytest.fixture
def by_hand() -> ByHand:
    return ByHand()


@pytest.fixture
def run(by_hand: ByHand) -> Callable[..., Any]:
    hook = FrameHook(by_hand, Key())

    def call(fn: Callable[..., Any], *args: Any) -> Any:
        prior = set_eval_frame(hook)
        try:
            return fn(*args)
        finally:
            set_eval_frame(prior)

    return call


X = torch.ones(3)


def test_a_second_call_is_served_by_the_cache(by_hand: ByHand, run: Any) -> None:
    def c(x: Any) -> Any:
        return x + 1

    assert torch.equal(run(c, X), X + 1) and torch.equal(run(c, X * 2), X * 2 + 1)
    assert by_hand.compiled == ["c"]
    assert by_hand.guards == [("x is a tensor float32[3] with strides (1) on cpu    (test.py:1)",)]


def test_a_failed_guard_compiles_again_and_is_named(by_hand: ByHand, run: Any) -> None:
    def c(x: Any, n: int) -> Any:
        return x + n

    run(c, X, 1)
    run(c, X, 2)
    run(c, X, 1)
    assert by_hand.compiled == ["c", "c"]
    assert [tuple(map(str, found)) for found in by_hand.failures] == [("n == 1",)]


def test_too_many_compilations_end_in_eager_and_are_told_once(by_hand: ByHand, run: Any) -> None:
    def c(x: Any, n: int) -> Any:
        return x + n

    for n in range(6):
        assert torch.equal(run(c, X, n), X + n)
    assert by_hand.compiled == ["c"] * 3
    assert len(by_hand.limits) == 1 and set(map(str, by_hand.limits[0])) == {"n == 0", "n == 1", "n == 2"}
    assert torch.equal(run(c, X, 0), X)
    assert by_hand.compiled == ["c"] * 3


def test_what_runs_eagerly_is_asked_once_and_its_callees_are_compiled(by_hand: ByHand, run: Any) -> None:
    def c(x: Any) -> Any:
        return x + 1

    def eager(x: Any) -> Any:
        return c(x) * 2

    for _ in range(3):
        assert torch.equal(run(eager, X), (X + 1) * 2)
    assert by_hand.compiled == ["eager", "c"]


def test_one_key_leaving_a_frame_says_nothing_about_another() -> None:
    def eager(x: Any) -> Any:
        return x + 1

    for _ in range(2):
        compiler = ByHand()
        set_eval_frame(FrameHook(compiler, Key()))
        eager(X)
        set_eval_frame(None)
        assert compiler.compiled == ["eager"]


def test_compiled_code_stays_in_use_when_other_arguments_can_not_be_compiled(by_hand: ByHand, run: Any) -> None:
    class Picky(ByHand):
        def compile(self, request: FrameRequest) -> CompiledFrame:
            if request.locals.get("n") == 2:
                self.compiled.append("refused")
                raise RunEagerly("not 2")
            return super().compile(request)

    def inner(x: Any) -> Any:
        return x

    def c(x: Any, n: int) -> Any:
        return inner(x) + n

    compiler = Picky()
    hook = FrameHook(compiler, Key())
    for n in (1, 2, 2, 1):
        set_eval_frame(hook)
        result = c(X, n)
        set_eval_frame(None)
        assert torch.equal(result, X + n)
    assert compiler.compiled == ["c", "inner", "refused"]


def test_frames_left_alone_have_a_reason(by_hand: ByHand, run: Any) -> None:
    def generator(x: Any) -> Any:
        yield x + 1

    def ruled_out(x: Any) -> Any:
        return x

    run(lambda x: list(generator(x)), X)
    run(ruled_out, X)
    run(ruled_out, X)
    assert by_hand.skips["ruled_out"] == "a rule says so"
    assert "generator" in by_hand.skips["generator"]
    assert "ruled_out" not in by_hand.compiled and "generator" not in by_hand.compiled


class Idle(ByHand):
    """Finds something to compile where there are tensors, else nothing: up to the end of the frame, or not (`idle_callees`)."""

    def __init__(self, idle_callees: bool = True) -> None:
        super().__init__()
        self.idle_callees = idle_callees

    def compile(self, request: FrameRequest) -> CompiledFrame:
        if any(isinstance(value, torch.Tensor) for value in request.locals.values()):
            return super().compile(request)
        self.compiled.append(f"nothing in {request.code.co_name}")
        self.known |= set() if self.idle_callees else {request.code.co_name}
        raise RunEagerly(
            "idle", for_all=True, guards=tuple(self._guards(request)), idle=True, idle_callees=self.idle_callees
        )

    def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        prior = set_eval_frame(self.hook)
        try:
            return fn(*args)
        finally:
            set_eval_frame(prior)

    @functools.cached_property
    def hook(self) -> FrameHook:
        return FrameHook(self, Key())


@pytest.mark.parametrize("idle_callees", [True, False])
def test_a_frame_in_which_there_was_nothing_to_compile_is_compiled_when_there_is(idle_callees: bool) -> None:
    def c(n: Any) -> Any:
        return n * 2

    compiler = Idle(idle_callees)
    assert [compiler.run(c, n) for n in (1, 1, 2, 2, 3, 4)] == [2, 2, 4, 4, 6, 8]
    traces = ["nothing in c"] * (2 if idle_callees else 1)  # for a number, for another one, and then for all ints
    assert compiler.compiled == traces
    assert torch.equal(compiler.run(c, X), X * 2) and compiler.compiled == [*traces, "c"]
    assert compiler.run(c, 5) == 10 and torch.equal(compiler.run(c, X), X * 2)
    assert compiler.compiled == [*traces, "c"] and not compiler.limits and not compiler.failures


def test_what_a_traced_frame_calls_is_not_looked_at_in_that_call() -> None:
    def inner(n: int) -> int:
        return n + 1

    def outer(n: int) -> int:
        return inner(n)

    compiler = Idle()
    assert compiler.run(outer, 1) == 2 and compiler.compiled == ["nothing in outer"]
    partly = Idle(idle_callees=False)
    assert partly.run(outer, 1) == 2 and partly.compiled == ["nothing in outer", "nothing in inner"]


def test_frames_without_tensors_are_left_to_torch_after_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "MANY_CALLS", 20)
    monkeypatch.setattr(idle.Idle.__init__, "__defaults__", (20,))

    def count(n: int) -> int:
        return n + 1

    compiler = Idle()
    assert [compiler.run(count, 1) for _ in range(30)] == [2] * 30
    assert compiler.compiled == ["nothing in count"] and compiler.skips == {"count": "idle"}
    compiler.compiled.clear()
    compiler.run(count, X)
    assert not compiler.compiled


def test_many_kinds_of_arguments_without_tensors_end_in_a_frame_that_is_left_alone() -> None:
    def show(value: object) -> str:
        return str(value)

    def kind(number: int) -> object:
        return type(f"Kind{number}", (), {})()

    compiler = Idle()
    for number in range(3 * idle.MOST_TRACES):
        compiler.run(show, kind(number))
    assert len(compiler.compiled) <= idle.MOST_TRACES and "show" in compiler.skips


def test_frames_of_known_functions_are_traced_when_a_tensor_is_in_reach(by_hand: ByHand, run: Any) -> None:
    def c(held: Any) -> Any:
        return held

    by_hand.known.add("c")
    for n in range(2 * idle.MOST_INSPECTIONS):
        run(c, [n])
    assert by_hand.compiled == []
    run(c, (n,))  # of another type: looked at once more
    assert by_hand.compiled == []
    run(c, (X,))
    assert by_hand.compiled == []
    run(c, collections.deque([X]))
    assert by_hand.compiled == ["c"]


def test_what_a_compiled_function_calls_is_compiled_when_it_has_nothing_to_compile_itself() -> None:
    class Hidden:
        def __init__(self) -> None:
            self.held = torch.ones(5)

    def cinner(x: Any) -> Any:
        return x + 1

    def c(x: Any) -> Any:
        return cinner(x.held) if type(x) is Hidden else cinner(x)

    compiler = Idle(idle_callees=False)
    compiler.run(c, X)
    compiler.run(c, Hidden())
    assert compiler.compiled == ["c", "cinner", "nothing in c", "cinner"]


def test_what_an_import_runs_is_not_looked_at(by_hand: ByHand, run: Any) -> None:
    for name in ("colorsys", "sndhdr"):
        sys.modules.pop(name, None)

    def c(x: Any) -> Any:
        import colorsys  # noqa: PLC0415

        return colorsys

    run(c, X)
    assert by_hand.compiled == ["c"] and all(name != "<module>" for name in by_hand.skips)
    assert "import" in by_hand.skips["_find_and_load"]


def test_a_dead_module_takes_its_code_along(by_hand: ByHand, run: Any) -> None:
    def c(m: Any, x: Any) -> Any:
        return x + 1

    for _ in range(5):  # more than the recompile limit
        model = nn.Linear(1, 1)
        run(c, model, X)
        gone = weakref.ref(model)
        del model
        gc.collect()
        assert gone() is None
    assert by_hand.compiled == ["c"] * 5 and not by_hand.limits


def test_closures_and_cells(by_hand: ByHand, run: Any) -> None:
    n = 1

    def c(x: Any) -> Any:
        def add() -> Any:
            return x + n

        return add

    assert torch.equal(run(c, X)(), X + 1)
    assert by_hand.compiled == ["c"]
    n = 2
    assert torch.equal(run(c, X)(), X + 2)


def test_a_dispatch_mode_sees_every_operator(by_hand: ByHand, run: Any) -> None:
    seen: list[str] = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def c(x: Any) -> Any:
        return x + 1

    with Mode():
        run(c, X)
    assert seen == ["aten.add.Tensor"] and by_hand.compiled == []


def test_guards_that_can_not_be_built_end_in_eager(by_hand: ByHand, run: Any) -> None:
    class Wrong(ByHand):
        def _guards(self, request: FrameRequest) -> Iterator[kinds.Guard]:
            yield kinds.ValueGuard(LocalSource("x"), 3)

    def c(x: Any) -> Any:
        return x + 1

    compiler = Wrong()
    set_eval_frame(FrameHook(compiler, Key()))
    result = c(X)
    set_eval_frame(None)
    assert torch.equal(result, X + 1)
    assert "x == 3" in str(compiler.errors[0])


def test_threads_share_the_cache(by_hand: ByHand, run: Any) -> None:
    def c(x: Any) -> Any:
        return x + 1

    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(run(c, X))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and all(torch.equal(r, X + 1) for r in results)
    run(c, X)
    assert by_hand.compiled == ["c"]
