"""Objects that lie, raise or pretend: each gets a verdict with a reason, and none of their code runs."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

from armature.rules import Decision, Rule, Verdict
from armature.testing.rules_kit import book_of

RAN: list[str] = []


class Trap:
    """Any question to an instance is noted."""

    def __getattribute__(self, name: str) -> Any:
        RAN.append(name)
        raise RuntimeError(name)

    def __call__(self) -> int:
        RAN.append("call")
        return 1

    def __eq__(self, other: object) -> bool:
        RAN.append("eq")
        return True

    def __hash__(self) -> int:
        RAN.append("hash")
        return 0

    def __bool__(self) -> bool:
        RAN.append("bool")
        return True


class LyingMeta(type):
    @property
    def __module__(cls) -> str:  # type: ignore[override]
        RAN.append("module")
        return "torch.nn"

    def __getattribute__(cls, name: str) -> Any:
        RAN.append(name)
        return super().__getattribute__(name)

    def __instancecheck__(cls, instance: object) -> bool:
        RAN.append("instancecheck")
        return True


class Lying(metaclass=LyingMeta):
    def __call__(self) -> int:
        return 1


class Proxy:
    """Claims to be what it holds."""

    def __init__(self, held: object) -> None:
        object.__setattr__(self, "held", held)

    def __getattr__(self, name: str) -> Any:
        RAN.append(name)
        return getattr(object.__getattribute__(self, "held"), name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override]
        RAN.append("class")
        return types.FunctionType

    def __call__(self) -> int:
        return 1


class NoCode:
    __call__ = 3


def renamed() -> Callable[..., object]:
    def f() -> int:
        return 1

    f.__name__ = f.__qualname__ = "one_hot"
    f.__module__ = "torch.nn.functional"
    return f


def cyclic_partial() -> Callable[..., object]:
    partial = functools.partial(len)
    partial.__setstate__((partial, (), {}, {}))
    return partial


def made_by_exec(namespace: dict[str, object]) -> Callable[..., object]:
    exec("def f(): return 1", namespace)
    return namespace["f"]  # type: ignore[return-value]


HOSTILE = {
    "trap": Trap(),
    "trap's method": Trap.__dict__["__call__"],
    "lying class": Lying,
    "lying instance": Lying(),
    "proxy": Proxy(len),
    "mock": mock.Mock(),
    "magic mock": mock.MagicMock(name="torch.add"),
    "mock of a function": mock.create_autospec(torch.nn.Linear.forward),
    "no code": NoCode(),
    "renamed": renamed(),
    "partial of itself": cyclic_partial(),
    "partial of a trap": functools.partial(Trap()),
    "method of a trap": types.MethodType(len, Trap()),
    "exec without a name": made_by_exec({}),
    "exec with an object for a name": made_by_exec({"__name__": Trap()}),
    "descriptor": torch.Tensor.__dict__["__torch_function__"],
    "slot": str.__add__,
    "bound slot": "a".__add__,
    "class method in C": dict.fromkeys,
    "new": object.__new__,
    "None": None,
    "module": torch,
    "property": property(len),
    "code": renamed.__code__,
    "generator": (i for i in ()),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_verdict_with_a_reason_and_no_code_run(name: str) -> None:
    obj = HOSTILE[name]
    book = book_of(
        Rule("torch.nn", Decision.INLINE, "modules"), Rule("torch.nn.functional.one_hot", Decision.SKIP, "one node")
    )
    book.verdict(len)
    RAN.clear()
    verdict = book.verdict(obj)
    again = book.verdict(obj)
    assert RAN == []
    assert type(verdict) is Verdict
    assert verdict.reason
    assert again.decision is verdict.decision


def test_lies_have_no_effect() -> None:
    book = book_of(
        Rule("torch.nn", Decision.SKIP, "modules"), Rule("torch.nn.functional.one_hot", Decision.SKIP, "one node")
    )
    assert book.verdict(HOSTILE["renamed"]).decision is Decision.INLINE
    assert book.verdict(HOSTILE["lying instance"]).decision is Decision.INLINE
    assert book.verdict(HOSTILE["no code"]).reason != ""


def test_hostile_targets() -> None:
    trap = Trap()
    book = book_of(Rule(trap, Decision.SKIP, "the trap"))
    RAN.clear()
    assert book.verdict(trap).reason == "the trap"
    assert RAN == []
