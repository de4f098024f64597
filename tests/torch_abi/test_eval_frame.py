"""What we rely on in torch's frame hook, on whatever torch is installed."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest
import torch

from armature.torch_abi import eval_frame, guard_tree
from armature.torch_abi.eval_frame import (
    COMPILE,
    COMPILE_ALONE,
    SKIP,
    SKIP_BELOW,
    FrameOutcome,
    GuardedCode,
    GuardHolder,
    Key,
    set_eval_frame,
    skip_code,
)


class Recorder:
    """A callback that notes the names of frames, and answers with what `answers` holds for the name."""

    def __init__(self, **answers: Callable[[Any], FrameOutcome]) -> None:
        self._torchdynamo_orig_backend = Key()
        self.seen: list[str] = []
        self.answers = answers

    def __call__(self, frame: Any, cache_entry: Any, frame_state: dict[Any, Any]) -> FrameOutcome:
        self.seen.append(frame.f_code.co_name)
        answer = self.answers.get(frame.f_code.co_name)
        return answer(frame) if answer else FrameOutcome(SKIP, False)

    def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        prior = set_eval_frame(self)
        try:
            return fn(*args)
        finally:
            set_eval_frame(prior)


def replaced(code: CodeType, old: Any, new: Any) -> CodeType:
    return code.replace(co_consts=tuple(new if c == old and type(c) is type(old) else c for c in code.co_consts))


def with_guard(frame: Any, code: CodeType, strategy: object = COMPILE) -> FrameOutcome:
    """Code for arguments `x` of the same type."""
    root = guard_tree.new_root()
    index = eval_frame.framelocals_index(frame.f_code)["x"]
    value = frame.f_locals["x"]
    manager = root.framelocals_manager(("x", index), "x", None, None)
    manager.add_type_match_guard(id(type(value)), ["type of x"], None)
    return FrameOutcome(strategy, True, GuardedCode(code, GuardHolder(root)))


@pytest.fixture(autouse=True)
def hook_is_off() -> Iterator[None]:
    yield
    assert set_eval_frame(None) is None


def test_frames_are_seen_and_the_prior_callback_comes_back() -> None:
    def inner(x: int) -> int:
        return x + 1

    def outer(x: int) -> int:
        return inner(x)

    recorder = Recorder()
    assert recorder.run(outer, 1) == 2
    assert recorder.seen == ["outer", "inner"]
    assert set_eval_frame(recorder) is None
    assert set_eval_frame(None) is recorder


def test_cached_code_runs_while_its_guards_hold() -> None:
    def f(x: Any) -> Any:
        return x * 1000

    recorder = Recorder(f=lambda frame: with_guard(frame, replaced(frame.f_code, 1000, 7)))
    assert [recorder.run(f, 1), recorder.run(f, 2)] == [7, 14]
    assert recorder.seen == ["f"]
    assert recorder.run(f, 1.0) == 7.0
    assert recorder.seen == ["f", "f"]
    assert f(1) == 1000  # outside the hook nothing changes


def test_other_keys_do_not_share_code() -> None:
    def f(x: Any) -> Any:
        return x * 1000

    first, second = (Recorder(f=lambda frame, n=n: with_guard(frame, replaced(frame.f_code, 1000, n))) for n in (7, 8))
    assert [first.run(f, 1), second.run(f, 1), first.run(f, 1), second.run(f, 1)] == [7, 8, 7, 8]
    assert len(first.seen) == len(second.seen) == 1


def test_invalidated_code_is_not_used_again() -> None:
    def f(x: Any) -> Any:
        return x * 1000

    outcomes: list[FrameOutcome] = []

    def answer(frame: Any) -> FrameOutcome:
        outcomes.append(with_guard(frame, replaced(frame.f_code, 1000, 7)))
        return outcomes[-1]

    recorder = Recorder(f=answer)
    recorder.run(f, 1)
    assert outcomes[0].guarded_code is not None
    holder = outcomes[0].guarded_code.guard_manager
    assert holder.cache_entry is not None
    eval_frame.invalidate(holder, guard_tree.never())
    assert holder.cache_entry is None
    recorder.run(f, 1)
    assert len(recorder.seen) == 2


@pytest.mark.parametrize("ends", ["reset", "dies"])
@pytest.mark.parametrize(("owner", "watcher"), list(itertools.permutations(range(4), 2)))
def test_deleted_code_may_own_what_other_code_of_its_function_watches(owner: int, watcher: int, ends: str) -> None:
    class Owned:
        pass

    class Hook(Recorder):
        __call__ = eval_frame.callback(Recorder.__call__)

    def original(x: Any) -> Any:
        return (x, "owned")

    code = original.__code__.replace(co_name="f")
    f = FunctionType(code, {})
    holders: list[GuardHolder] = []
    owned: list[Owned] = [Owned()]
    never = guard_tree.never()
    watched = weakref.ref(owned[0], lambda _: eval_frame.invalidate(holders[watcher], never))

    def answer(frame: Any) -> FrameOutcome:
        outcome = with_guard(frame, replaced(frame.f_code, "owned", owned[0] if len(holders) == owner else 1))
        assert outcome.guarded_code is not None
        holders.append(outcome.guarded_code.guard_manager)
        return outcome

    hook = Hook(f=answer)
    for x in (1, "a", 2.0, None):
        hook.run(f, x)
    assert len(hook.seen) == 4 and all(holder.extra_state is not None for holder in holders)
    owned.clear()
    assert watched() is not None  # the cached code owns it
    if ends == "reset":
        assert eval_frame.reset_code(code)
    del f, code
    assert watched() is None
    assert [holder.extra_state for holder in holders] == [None] * 4


@pytest.mark.parametrize("below", [False, True])
def test_skipped_code(below: bool) -> None:
    def inner(x: int) -> int:
        return x

    def outer(x: int) -> int:
        return inner(x)

    skip_code(outer.__code__, below=below)
    recorder = Recorder()
    recorder.run(outer, 1)
    assert recorder.seen == ([] if below else ["inner"])


def test_frames_below_code_that_stands_alone_are_not_seen_even_where_it_does_not_fit() -> None:
    def inner(x: int) -> int:
        return x

    def outer(x: int) -> int:
        return inner(x)

    def alone(frame: Any) -> FrameOutcome:
        if isinstance(frame.f_locals["x"], str):
            return FrameOutcome(SKIP, False)
        return with_guard(frame, frame.f_code.replace(co_name="g"), COMPILE_ALONE)

    recorder = Recorder(outer=alone)
    recorder.run(outer, 1)
    recorder.run(outer, 1)
    recorder.run(outer, "a")
    assert recorder.seen == ["outer", "outer"]


def test_cached_code_may_run_with_the_hook_off_in_the_first_call_only() -> None:
    def inner(x: int) -> int:
        return x

    def outer(x: int) -> int:
        return inner(x)

    def once(frame: Any) -> FrameOutcome:
        outcome = with_guard(frame, frame.f_code.replace(co_name="g"), SKIP_BELOW)
        outcome.apply_to_code = False
        return outcome

    recorder = Recorder(outer=once)
    recorder.run(outer, 1)
    assert recorder.seen == ["outer"]
    recorder.run(outer, 1)
    assert recorder.seen == ["outer", "inner"]


def test_state_lives_with_the_code_until_it_is_reset() -> None:
    states: list[int] = []

    def f() -> None:
        return None

    class Stateful(Recorder):
        def __call__(self, frame: Any, cache_entry: Any, frame_state: dict[Any, Any]) -> FrameOutcome:
            states.append(frame_state.setdefault("n", len(states)))
            return FrameOutcome(SKIP, False)

    recorder = Stateful()
    recorder.run(f)
    recorder.run(f)
    eval_frame.reset_code(f.__code__)
    recorder.run(f)
    assert states == [0, 0, 2]


def test_closures_reach_the_callback_as_cells() -> None:
    scale = torch.ones(2)

    def f(x: Any) -> Any:
        return x * scale

    found: list[Any] = []

    def answer(frame: Any) -> FrameOutcome:
        found.append((frame.f_locals["scale"], frame.closure))
        return FrameOutcome(SKIP, False)

    Recorder(f=answer).run(f, 1)
    (value, cells) = found[0]
    assert value is scale and cells == f.__closure__


def test_the_hook_is_of_one_thread() -> None:
    recorder = Recorder()

    def f() -> int:
        return 1

    set_eval_frame(recorder)
    try:
        thread = threading.Thread(target=f)
        thread.start()
        thread.join()
    finally:
        set_eval_frame(None)
    assert "f" not in recorder.seen


def test_torch_compile_takes_our_entries_for_dead_ones() -> None:
    import_of_theirs = importlib.import_module("torch._dynamo.guards")
    assert isinstance(GuardHolder(guard_tree.new_root()), import_of_theirs.DeletedGuardManagerWrapper)


def test_an_error_in_the_callback_reaches_the_caller() -> None:
    def f() -> int:
        return 1

    def fails(frame: Any) -> FrameOutcome:
        raise ValueError("from the callback")

    with pytest.raises(ValueError, match="from the callback"):
        Recorder(f=fails).run(f)


def test_code_that_a_callback_looks_at_is_not_reset() -> None:
    def f() -> int:
        return 1

    told: list[bool] = []

    class Hook:
        _torchdynamo_orig_backend = Key()

        @eval_frame.callback
        def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
            if frame.f_code is f.__code__:
                told.append(eval_frame.reset_code(f.__code__))
            return eval_frame.FrameOutcome(eval_frame.SKIP, False)

    prior = eval_frame.set_eval_frame(Hook())
    try:
        f()
    finally:
        eval_frame.set_eval_frame(prior)
    assert told == [False]
    assert eval_frame.reset_code(f.__code__)


def test_a_key_is_an_object_like_others_where_python_compares_it() -> None:
    first, second = Key(), Key()
    assert {first: 1, second: 2}[first] == 1
    assert isinstance(first, Key) and not isinstance(first, type)
    assert "Key object" in repr(first)


def test_what_torch_asks_of_a_key_makes_no_attribute_error() -> None:
    """It asks in each call; making the error took a seventh of a small one."""
    key = Key()
    if sys.version_info < (3, 12):
        with pytest.raises(KeyError):
            key._torchdynamo_orig_backend  # type: ignore[attr-defined]
    has: Any = ctypes.pythonapi.PyObject_HasAttrString
    assert has(ctypes.py_object(key), b"_torchdynamo_orig_backend") == 0
