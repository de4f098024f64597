"""What leaves the middle of tracing passes by `except Exception`, and a stray one ends in eager mode."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

import armature
from armature.errors import ArmatureWarning
from armature.hookspecs import hookimpl
from armature.pipeline.session import Outcome, session
from armature.plugins import manager
from armature.trace.base import NotConstant
from armature.trace.handlers import Handler
from armature.trace.signals import TraceSignal
from armature_torch_handlers.programs.subgraphs import NotSeparable
from tests.support.tracing import break_of


class Sized:
    """Its length needs a break."""

    def __len__(self) -> int:
        print(end="")
        return 2

    def __getitem__(self, place: int) -> int:
        return place + 1


class Refuses(Sized):
    def __len__(self) -> int:
        raise KeyError("no length")


def chosen(x, items):
    try:
        return x + random.Random(1).choice(items)
    except KeyError as error:
        return x, str(error)


def chosen_many(x, items):
    try:
        return x + random.Random(1).choices(items, k=2)[0]
    except KeyError as error:
        return x, str(error)


@pytest.mark.parametrize("items", [Sized(), Refuses()])
@pytest.mark.parametrize("fn", [chosen, chosen_many])
def test_what_the_program_does_inside_a_method_of_a_generator(fn: Callable[..., Any], items: Sized) -> None:
    x = torch.ones(2)
    assert str(armature.compile(fn, backend="eager")(x, items)) == str(fn(x, items))


def test_a_break_inside_is_told_as_what_it_is() -> None:
    def asks_for_the_length(x, items):
        return x + len(items)

    given = torch.ones(2), Sized()
    assert break_of(chosen, *given) == break_of(asks_for_the_length, *given)


def marked(x):
    return x + 1


class Stray:
    def __init__(self, signal: TraceSignal) -> None:
        self.signal = signal

    @hookimpl
    def armature_handlers(self) -> Iterable[Handler]:
        def raises(call: Any, *args: Any) -> Any:
            raise self.signal

        return [Handler((marked,), raises)]


def calls_marked(x):
    return marked(x) * 2


def test_a_stray_signal_ends_in_eager_mode() -> None:
    signal = NotSeparable("it went astray")
    assert not isinstance(signal, Exception)
    with manager().registered(Stray(signal), "stray"):
        compiled = armature.compile(calls_marked)
        with armature.config.patch(strict=False), pytest.warns(ArmatureWarning, match="it went astray"):
            assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), 2.0))
        assert [made.outcome for made in session().compilations if made.function == "calls_marked"] == [
            Outcome.FALLBACK
        ]
        armature.reset()
        with armature.config.patch(strict=True), pytest.raises(NotSeparable):
            compiled(torch.zeros(2))


def test_what_is_no_constant_is_no_exception() -> None:
    assert issubclass(NotConstant, TraceSignal) and not issubclass(TraceSignal, Exception)
