"""Functions and objects of the standard library that are known while tracing."""

from __future__ import annotations

import functools
import inspect
import pickle
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from armature.api import public as api
from armature.testing.handler_kit import break_id

X = torch.ones(2)
LOCAL = threading.local()


def plus(x: Tensor, by: int = 1, *, twice: bool = False) -> Tensor:
    return x + by


@functools.wraps(plus)
def wrapper(*args: Any, **kwargs: Any) -> Tensor:
    return plus(*args, **kwargs) * 2


wraps_itself = functools.wraps(plus)(lambda x: x)
wraps_itself.__wrapped__ = wraps_itself  # type: ignore[attr-defined]


class Wraps:
    __wrapped__ = plus

    def method(self, a: int, b: str = "b") -> None: ...


class Named:
    """An object with attributes, one of which functions have outside their `__dict__`."""

    def __init__(self) -> None:
        self.__name__, self.held = "named", 3


def described(wrapped: Any) -> list[object]:
    """What functools.wraps copies."""
    made = functools.wraps(wrapped)(lambda: 3)
    return [made.__name__, made.__doc__, sorted(vars(made)), vars(made).get("held"), made.__wrapped__ is wrapped]


def looped() -> str:
    try:
        return str(inspect.unwrap(wraps_itself))
    except ValueError as error:
        return type(error).__name__


class Meta(type):
    of_meta = 1


class Overrides:
    def __get__(self, obj: Any, kind: Any) -> int:
        return 3

    def __set__(self, obj: Any, value: int) -> None: ...


class Holds(metaclass=Meta):
    __slots__ = ("__dict__", "slot")
    overrides = Overrides()

    def __init__(self) -> None:
        self.__dict__.update({"own": 1, "overrides": 2, "method": 3})

    def method(self) -> None: ...

    @property
    def asked(self) -> int:
        raise AssertionError("nobody is to ask")

    def __getattr__(self, name: str) -> int:
        raise AssertionError("nobody is to ask")


class Hides(Holds):
    @property
    def __dict__(self) -> dict[str, int]:  # type: ignore[override]
        return {"hidden": 1}


holds, hides, linear, named = Holds(), Hides(), torch.nn.Linear(2, 2), Named()


def missing() -> str:
    try:
        return str(inspect.getattr_static(holds, "nothing"))
    except AttributeError as error:
        return str(error.args)


def refused() -> str:
    try:
        return str(struct.unpack("<i", b"12"))
    except struct.error as error:
        return str(error)


def cached(**kwargs: Any) -> dict[Any, int]:
    found = {("f", pickle.dumps(kwargs)): 1}
    return {key: value + (("f", pickle.dumps(kwargs)) in found) for key, value in found.items()}


@pytest.mark.parametrize("what", [
    lambda: struct.pack("<if", 1, 2.0),
    lambda: struct.unpack(">hI", struct.pack(">hI", -3, 7)),
    lambda: struct.unpack_from("<i", buffer=b"12345678", offset=2),
    lambda: struct.calcsize("@Pd"),
    refused,
    lambda: inspect.unwrap(wrapper) is plus,
    lambda: inspect.unwrap(wrapper, stop=lambda f: f is wrapper) is wrapper,
    lambda: inspect.unwrap(Wraps) is Wraps,
    looped,
    lambda: inspect.getfullargspec(plus),
    lambda: inspect.getfullargspec(Wraps().method).args,
    lambda: functools.wraps(len)(lambda: 3).__name__,
    lambda: [described(wrapped) for wrapped in (named, Named(), linear, linear.forward)],
    lambda: [inspect.getattr_static(holds, name) for name in ("own", "overrides", "method", "asked", "slot")],
    lambda: [inspect.getattr_static(Holds, name, None) for name in ("of_meta", "overrides", "method", "mro", "own")],
    lambda: [inspect.getattr_static(hides, name, None) for name in ("hidden", "own", "method", "asked")],
    lambda: [inspect.getattr_static(linear, name, None) for name in ("in_features", "weight", "forward")],
    lambda: [inspect.getattr_static(3, "real"), inspect.getattr_static("a", "join"), inspect.getattr_static([], "x", 1)],
    missing,
    lambda: [pickle.dumps(part) for part in ({}, None, 3, -(2**70), 2.5, float("nan"), "text", b"", True)],
    lambda: cached(upper=False, tol=1e-3, method="cholesky", size=None),
])  # fmt: skip
def test_like_eager(what: Callable[[], Any]) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Any]:
        return x + 1, what()

    assert str(api.compile(fn, backend="eager", fullgraph=True)(X)) == str(fn(X))


def test_a_wrapper_that_leaves_the_frame() -> None:
    def fn(x: Tensor) -> Any:
        @functools.wraps(Named())
        def made() -> None: ...

        return made

    assert (
        sorted(vars(api.compile(fn, backend="eager")(X))) == sorted(vars(fn(X))) == ["__name__", "__wrapped__", "held"]
    )


def test_a_size_that_is_packed() -> None:
    def fn(x: Tensor) -> tuple[Tensor, bytes]:
        return x + 1, struct.pack("<i", x.shape[0])

    compiled = api.compile(fn, backend="eager", fullgraph=True)
    for size in (2, 3, 4, 5):
        assert compiled(torch.ones(size))[1] == struct.pack("<i", size)


@pytest.mark.parametrize("obj", [["list"], {"same": "same"}, {1: [2]}, {"by": torch.nn.Linear}])
def test_what_pickle_writes_by_identity_breaks(obj: Any) -> None:
    def fn(x: Tensor, obj: Any) -> tuple[Tensor, bytes]:
        return x + 1, pickle.dumps(obj)

    assert break_id(fn, (X, obj)) == "pickles"
    assert api.compile(fn, backend="eager")(X, obj)[1] == pickle.dumps(obj)


def reads(x: Tensor) -> tuple[Tensor, Any, bool]:
    return x + getattr(LOCAL, "by", 5), getattr(LOCAL, "other", None), hasattr(LOCAL, "by")


def in_thread(fn: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(fn()))
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture(autouse=True)
def empty() -> None:
    LOCAL.__dict__.clear()


def test_each_thread_has_its_attributes() -> None:
    compiled = api.compile(reads, backend="eager", fullgraph=True)

    def both(**attributes: Any) -> None:
        LOCAL.__dict__.update(attributes)
        assert str(compiled(X)) == str(reads(X))

    both()
    both(by=2)
    both(by=3)
    in_thread(both)
    in_thread(lambda: both(by=4, other="a"))
    both()
    del LOCAL.by
    both()


def test_a_tensor_of_a_thread() -> None:
    compiled = api.compile(lambda x: x + LOCAL.y, backend="eager", fullgraph=True)
    for y in (torch.ones(2), torch.zeros(2), torch.ones(2, dtype=torch.float64)):
        LOCAL.y = y
        assert torch.equal(compiled(X), X + y)


def changes(x: Tensor) -> tuple[Tensor, Any]:
    LOCAL.count = getattr(LOCAL, "count", 0) + 1
    LOCAL.kept = x * 2
    LOCAL.passing = 1
    del LOCAL.passing
    if hasattr(LOCAL, "old"):
        del LOCAL.old
    return LOCAL.kept + 1, hasattr(LOCAL, "old"), hasattr(LOCAL, "passing")


def test_changes() -> None:
    compiled = api.compile(changes, backend="eager", fullgraph=True)

    def run(fn: Callable[[Tensor], Any]) -> list[str]:
        LOCAL.__dict__.clear()
        LOCAL.old = 3
        results = [str(fn(X)) for _ in range(3)]
        return [*results, str(sorted(LOCAL.__dict__.items()))]

    assert run(compiled) == run(changes)
    assert in_thread(lambda: run(compiled)) == run(changes)


def test_what_is_not_there() -> None:
    def fn(x: Tensor) -> tuple[Tensor, str]:
        try:
            return x, LOCAL.missing
        except AttributeError as error:
            return x + 1, str(error)

    assert str(api.compile(fn, backend="eager", fullgraph=True)(X)) == str(fn(X))


class Recorder(threading.local):
    kind = "recorder"
    limit: Any = 3

    def __init__(self, start: int) -> None:
        self.count = start
        self.marked = False

    def mark(self) -> int:
        self.marked = True
        self.count += 1
        return self.count

    @property
    def double(self) -> int:
        return self.count * 2

    @double.setter
    def double(self, number: int) -> None:
        self.count = number // 2


RECORDER = Recorder(4)


def records(x: Tensor) -> tuple[Any, ...]:
    before = RECORDER.limit, RECORDER.kind, RECORDER.double, RECORDER.marked
    count = RECORDER.mark()
    RECORDER.limit = RECORDER.limit + 1
    after = RECORDER.limit
    if after == 5:
        del RECORDER.limit
    RECORDER.double = 20 + count
    try:
        RECORDER.missing  # type: ignore[attr-defined]
    except AttributeError as error:
        return x + count, before, after, str(error), hasattr(RECORDER, "limit")
    return ()


def test_an_object_of_a_class_that_derives_from_it() -> None:
    compiled = api.compile(records, backend="eager", fullgraph=True)

    def run(fn: Callable[[Tensor], Any]) -> list[str]:
        RECORDER.__dict__.clear()
        RECORDER.__init__(4)  # type: ignore[misc]
        return [*(str(fn(X)) for _ in range(4)), str(sorted(RECORDER.__dict__.items()))]

    assert run(compiled) == run(records)
    assert in_thread(lambda: str([compiled(X) for _ in range(3)])) == in_thread(
        lambda: str([records(X) for _ in range(3)])
    )
    Recorder.limit = 7
    try:
        assert run(compiled) == run(records)
    finally:
        Recorder.limit = 3


def test_an_attribute_that_only_one_thread_has() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Any]:
        return x + 1, RECORDER.limit

    compiled = api.compile(fn, backend="eager", fullgraph=True)
    tensor = torch.ones(2)
    RECORDER.limit = tensor
    try:
        assert compiled(X)[1] is tensor
        assert in_thread(lambda: compiled(X)[1]) == 3
    finally:
        del RECORDER.limit
    assert compiled(X)[1] == 3


def test_its_dict_is_that_of_the_thread() -> None:
    def fn(x: Tensor) -> Tensor:
        return x + len(RECORDER.__dict__)

    compiled = api.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), fn(X))
    assert in_thread(lambda: str(compiled(X))) == in_thread(lambda: str(fn(X)))


def test_its_dict_after_a_change_breaks() -> None:
    def fn(x: Tensor) -> Tensor:
        LOCAL.changed = 3
        return x + len(LOCAL.__dict__)

    assert break_id(fn, (X,)) == "attribute-in-c"
