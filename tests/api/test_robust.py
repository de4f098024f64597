"""Compiled programs in rough surroundings: exceptions, threads, recursion, interrupts, debuggers, very long functions."""

from __future__ import annotations

import copy
import gc
import pickle
import signal
import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import armature
from armature.errors import ArmatureWarning
from armature.pipeline.session import Outcome, session

X = torch.arange(3.0)


class CustomError(Exception):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def fails(value: Any, seen: list[Any]) -> Any:
    seen.append("inner")
    raise ValueError("bad", 3)


def in_a_callee(x: Any, seen: list[Any]) -> Any:
    doubled = x * 2
    return fails(doubled, seen)


def after_mutations(x: Any, seen: list[Any]) -> Any:
    seen.append(1)
    x.add_(1)
    seen.append(2)
    return seen[10]


def in_an_operator(x: Any, seen: list[Any]) -> Any:
    y = x + 1
    return y.reshape(77)


def with_a_cause(x: Any, seen: list[Any]) -> Any:
    try:
        return {}["key"]
    except KeyError as error:
        raise RuntimeError("outer") from error


def while_handling(x: Any, seen: list[Any]) -> Any:
    try:
        return x * (1 // 0)
    except ZeroDivisionError:
        raise CustomError("in the handler", 5)  # noqa: B904


def through_finally(x: Any, seen: list[Any]) -> Any:
    try:
        raise CustomError("first", 1)
    finally:
        seen.append("finally")


def failed_assertion(x: Any, seen: list[Any]) -> Any:
    assert x.shape[0] == 99, f"shape {tuple(x.shape)}"
    return x


def unbound(x: Any, seen: list[Any]) -> Any:
    if x.shape[0] == 99:
        factor = 1
    return x * factor


def undefined(x: Any, seen: list[Any]) -> Any:
    return x * not_defined_anywhere  # type: ignore[name-defined]  # noqa: F821


def no_attribute(x: Any, seen: list[Any]) -> Any:
    return x.no_such_attribute


def wrong_arguments(x: Any, seen: list[Any]) -> Any:
    return fails(x)  # type: ignore[call-arg]


def wrong_types(x: Any, seen: list[Any]) -> Any:
    return x + "text"


RAISING = [
    in_a_callee, after_mutations, in_an_operator, with_a_cause, while_handling, through_finally, failed_assertion,
    unbound, undefined, no_attribute, wrong_arguments, wrong_types,
]  # fmt: skip


def report(error: BaseException | None) -> Any:
    """Type, text, attributes and the user's lines of an exception and of what it comes from."""
    if error is None:
        return None
    lines = [(f.name, f.lineno, f.line) for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
    own = [line for line in lines if line[0] != "call"]
    chain = (report(error.__cause__), report(error.__context__), error.__suppress_context__)
    return type(error), str(error), error.args, vars(error), own, chain


def call(fn: Callable[..., Any]) -> Any:
    x, seen = X.clone(), [0]
    try:
        fn(x, seen)
    except Exception as error:
        return report(error), x.tolist(), seen
    return None


@pytest.mark.parametrize("fn", RAISING, ids=lambda fn: fn.__name__)
def test_exceptions_are_those_of_eager(fn: Any) -> None:
    compiled = armature.compile(fn, backend="eager")
    expected = call(fn)
    assert expected is not None
    for _ in range(3):
        assert call(compiled) == expected


def test_an_exception_the_caller_handles_leaves_the_next_call_compiled() -> None:
    def sometimes(x: Any, n: int) -> Any:
        if n > 1:
            raise CustomError("too large", n)
        return x * n

    compiled = armature.compile(sometimes, backend="eager")
    for n in (1, 2, 1, 2):
        if n == 1:
            assert torch.equal(compiled(X, n), X)
        else:
            with pytest.raises(CustomError, match="too large"):
                compiled(X, n)
    assert [c.outcome for c in session().compilations].count(Outcome.COMPILED) == 1


def test_threads_compile_at_once() -> None:
    def shared(x: Any, n: int) -> Any:
        return x * n

    def own(number: int) -> Callable[..., Any]:
        space: dict[str, Any] = {}
        exec(f"def own(x):\n    return (x * {number}).sin()\n", space)
        return space["own"]  # type: ignore[no-any-return]

    both = armature.compile(shared, backend="eager", dynamic=False)
    found: dict[int, list[bool]] = {}

    def work(number: int) -> None:
        mine = own(number)
        compiled = armature.compile(mine, backend="eager")
        found[number] = [torch.equal(compiled(X), mine(X)) for _ in range(2)]
        found[number] += [torch.equal(both(X, n), X * n) for n in (number % 3, (number + 1) % 3)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all(all(results) for results in found.values())
    assert [c.function.rpartition(".")[2] for c in session().compilations].count("shared") == 3


@armature.compile(backend="eager")
def factorial(x: Any, n: int) -> Any:
    return x if n == 0 else factorial(x, n - 1) * n


@armature.compile(backend="eager")
def even(x: Any, n: int) -> Any:
    return x if n == 0 else odd(x + 1, n - 1)


@armature.compile(backend="eager")
def odd(x: Any, n: int) -> Any:
    return x * 2 if n == 0 else even(x * 3, n - 1)


def test_recursion_into_compiled_functions() -> None:
    for _ in range(2):
        assert torch.equal(factorial(X, 4), X * 24)
        assert torch.equal(even(X, 3), ((X + 1) * 3 + 1) * 2)


def test_endless_recursion_is_a_recursion_error() -> None:
    def endless(x: Any) -> Any:
        return endless(x + 1)

    compiled = armature.compile(endless, backend="eager")
    with pytest.raises(RecursionError):
        compiled(X)
    assert torch.equal(factorial(X, 3), X * 6)


def inner(x: Any) -> Any:
    return x * 2 + 1


@pytest.mark.filterwarnings("ignore")
def test_inside_torch_compile_and_the_other_way_round() -> None:
    ours = armature.compile(inner, backend="eager")
    theirs = torch.compile(inner, backend="eager")
    linear = nn.Linear(3, 3)
    for _ in range(2):
        assert torch.equal(torch.compile(lambda x: ours(x) - 1, backend="eager")(X), X * 2)
        assert torch.equal(armature.compile(lambda x: theirs(x) - 1, backend="eager")(X), X * 2)
    ours_in_theirs = torch.compile(armature.compile(linear, backend="eager"), backend="eager")
    theirs_in_ours = armature.compile(torch.compile(linear, backend="eager"), backend="eager")
    assert torch.equal(ours_in_theirs(X), linear(X)) and torch.equal(theirs_in_ours(X), linear(X))
    armature.reset()  # a module of torch itself, which torch.compile left alone when it stood alone
    assert torch.equal(armature.compile(linear, backend="eager")(X), linear(X))
    assert len(session().compilations) == 1


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Ctrl-C as in a terminal: a process that a shell has put in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def interrupt_after() -> Iterator[Callable[[float], None]]:
    """Presses Ctrl-C after so many seconds.

    Where that meets a callback of a weak reference or a `__del__`, Python prints KeyboardInterrupt and goes on.
    """
    before, told = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT)), sys.unraisablehook
    sys.unraisablehook = lambda lost: None if lost.exc_type is KeyboardInterrupt else told(lost)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None  # type: ignore[func-returns-value]
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    sys.unraisablehook = told


def test_an_interrupt_while_compiling_leaves_nothing_behind(interrupt_after: Callable[[float], None]) -> None:
    net = nn.Sequential(*[nn.Sequential(nn.Linear(3, 3), nn.ReLU()) for _ in range(5)])
    expected = net(X)
    interrupted = 0
    for step in range(12):
        armature.reset()
        compiled = armature.compile(net, backend="eager")
        interrupt_after(0.0005 + step * 0.004)
        try:
            compiled(X)
            interrupt_after(0)
        except KeyboardInterrupt:
            interrupted += 1
        assert torch.is_grad_enabled() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert torch.equal(compiled(X), expected)
        assert [c.outcome for c in session().compilations if c.outcome is Outcome.COMPILED]
    assert interrupted


def test_an_interrupt_in_a_backend_is_raised_when_it_is_done() -> None:
    done: list[bool] = []

    def backend(module: Any, inputs: Any) -> Any:
        if not done:
            signal.raise_signal(signal.SIGINT)
            done.append(True)
        return module.forward

    compiled = armature.compile(inner, backend=backend)
    with pytest.raises(KeyboardInterrupt):
        compiled(X)
    assert done
    assert torch.equal(compiled(X), inner(X))
    assert session().compilations[-1].outcome is Outcome.COMPILED


def test_a_second_interrupt_is_not_kept() -> None:
    def backend(module: Any, inputs: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")

    with pytest.raises(KeyboardInterrupt):
        armature.compile(inner, backend=backend)(X)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("install", [sys.settrace, sys.setprofile], ids=["settrace", "setprofile"])
def test_under_a_debugger_or_profiler(install: Any) -> None:
    events: list[str] = []

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        events.append(event)
        return tracer

    compiled = armature.compile(inner, backend="eager")
    before = sys.gettrace() if install is sys.settrace else sys.getprofile()
    install(tracer)
    try:
        results = [compiled(X), compiled(X)]
    finally:
        install(before)
    assert all(torch.equal(result, inner(X)) for result in results)
    assert events and session().compilations[-1].outcome is Outcome.COMPILED
    assert torch.equal(compiled(X + 1), inner(X + 1)) and len(session().compilations) == 1


def test_a_compiled_module_dies_with_its_last_reference() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    compiled = armature.compile(net, backend="eager")
    compiled(X)
    watch = [weakref.ref(compiled), weakref.ref(net), weakref.ref(net[0].weight)]
    del net, compiled
    gc.collect()
    assert [reference() for reference in watch] == [None] * 3


def test_weak_references_to_a_compiled_module_and_function() -> None:
    compiled = armature.compile(nn.Linear(3, 3), backend="eager")
    held = weakref.ref(compiled)
    found = held()
    assert found is compiled and torch.equal(found(X), compiled(X))
    function = armature.compile(inner, backend="eager")
    assert weakref.ref(function)() is function


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x: Any) -> Any:
        return self.linear(x) * 2


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
def test_a_copy_of_a_used_module_is_compiled_and_independent(duplicate: Any) -> None:
    compiled = armature.compile(Net(), backend="eager")
    first = compiled(X)
    other = duplicate(compiled)
    with torch.no_grad():
        other.linear.weight.zero_()
    assert torch.equal(other(X), other.__armature_original__(X)) and torch.equal(compiled(X), first)
    assert not torch.equal(other(X), first)
    weights = pickle.loads(pickle.dumps(compiled.state_dict()))
    other.load_state_dict(weights)
    assert torch.equal(other(X), first)


def chain(length: int) -> Callable[..., Any]:
    lines = ["def f0(x): return x + 1", *(f"def f{n}(x): return f{n - 1}(x) + 1" for n in range(1, length))]
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)
    return space[f"f{length - 1}"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("length", [100, 200])
def test_deep_chains_of_calls(length: int) -> None:
    compiled = armature.compile(chain(length), backend="eager")
    assert torch.equal(compiled(X), X + length)


def test_a_function_of_five_thousand_instructions() -> None:
    body = "".join(f"    x = x + {n}\n" if n % 50 == 0 else f"    a{n} = {n} * len('ab')\n" for n in range(900))
    space: dict[str, Any] = {}
    exec(f"def long(x):\n{body}    return x\n", space)
    long = space["long"]
    assert len(long.__code__.co_code) // 2 > 5000
    compiled = armature.compile(long, backend="eager")
    assert torch.equal(compiled(X), long(X))
    assert session().compilations[-1].outcome is Outcome.COMPILED


class Numbered(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: Any, by: int = 1) -> Any:
        return x * self.number * by


def test_instances_compiled_one_by_one_do_not_use_up_each_others_tries() -> None:
    layers = [armature.compile(Numbered(n), backend="eager") for n in range(12)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            for n, layer in enumerate(layers):
                assert torch.equal(layer(X), X * n)
    assert len(session().compilations) == 12


def test_instances_alike_share_what_is_compiled() -> None:
    layers = [armature.compile(Numbered(3), backend="eager") for _ in range(5)]
    for layer in layers:
        assert torch.equal(layer(X), X * 3)
    assert len(session().compilations) == 1


def test_one_callable_at_its_limit_says_nothing_about_another() -> None:
    options = {"recompile_limit": 2}
    first, second = (armature.compile(Numbered(n), backend="eager", dynamic=False, options=options) for n in (1, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for by in range(5):
            assert torch.equal(first(X, by), X * by)
        assert len(session().compilations) == 2
        for by in range(2):
            assert torch.equal(second(X, by), X * 2 * by)
    assert len(session().compilations) == 4
    assert len([w for w in caught if w.category is ArmatureWarning]) == 1


def test_callables_without_end_do_not_fill_the_cache() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(40):
            layer = armature.compile(Numbered(n), backend="eager", options={"recompile_limit": 2})
            assert torch.equal(layer(X), X * n)
    assert len(session().compilations) == 16
    assert len([w for w in caught if w.category is ArmatureWarning]) == 1


def test_the_warning_at_the_limit_names_the_sizes_to_mark() -> None:
    def scaled(x: Any, table: Any) -> Any:
        return x * table["by"]

    compiled = armature.compile(scaled, backend="eager", dynamic=False, options={"recompile_limit": 2})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for size in range(2, 7):
            x = torch.ones(3, size)
            assert torch.equal(compiled(x, {"by": torch.ones(1, size)}), x)
    (warning,) = [str(w.message) for w in caught if w.category is ArmatureWarning]
    assert "tensor 'x' size mismatch at index 1. expected 2" in warning
    assert "armature.mark_dynamic(x, 1), armature.mark_dynamic(table['by'], 1)" in warning
