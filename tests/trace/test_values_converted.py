"""What `__index__`, `__repr__` and `__hash__` of the program give, where Python asks for them."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature

X = torch.arange(3.0)


class Twice:
    def __index__(self) -> int:
        return 2


class Wrong:
    def __index__(self) -> Any:
        return 1.5

    def __repr__(self) -> Any:
        return 5


class Plain:
    pass


CALLS: tuple[Callable[[], object], ...] = (
    lambda: [1] * Twice(),
    lambda: Twice() * "ab",
    lambda: (1, 2) * Twice(),
    lambda: [1] * Plain(),  # type: ignore[operator]
    lambda: Plain() * 2,  # type: ignore[operator]
    lambda: "abc"[Twice()],
    lambda: [1][Wrong()],
    lambda: range(Wrong()),
    lambda: [1] * Wrong(),
    lambda: f"{Wrong()}",
    lambda: str(Wrong()),
    lambda: repr(Wrong()),
    lambda: max(1, 2, default=3),  # type: ignore[call-overload]
    lambda: min(),  # type: ignore[call-overload]
    lambda: isinstance(1, 2),  # type: ignore[arg-type]
    lambda: isinstance(1, (int, 2)),  # type: ignore[arg-type]
    lambda: isinstance(5, list[int]),
    lambda: isinstance(5, int | None),
    lambda: isinstance(None, typing.Optional[str]),  # type: ignore[arg-type]  # noqa: UP045 - what is tested
    lambda: isinstance([], typing.List),  # noqa: UP006 - what is tested
)


@pytest.mark.parametrize("call", CALLS)
def test_like_eager(call: Callable[[], object]) -> None:
    def program(x: torch.Tensor) -> tuple[object, torch.Tensor]:
        try:
            return call(), x + 1
        except Exception as error:
            return (type(error), str(error)), x + 1

    assert armature.compile(program, backend="eager")(X)[0] == program(X)[0]


def test_members_of_a_set_are_hashed_once() -> None:
    hashed: list[int] = []

    class Member:
        def __hash__(self) -> int:
            hashed.append(1)
            return 1

    members = {Member(), 2}
    hashed.clear()

    def program(x: torch.Tensor, members: set[object]) -> tuple[int, torch.Tensor]:
        return len(members), x + 1

    run = armature.compile(program, backend="eager")
    assert run(X, members)[0] == run(X, members)[0] == 2
    assert not hashed
