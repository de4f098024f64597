"""Buffers that decide a branch: code for either answer, no break, and eager's results whenever they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature
from armature.pipeline.session import session

QUESTIONS: dict[str, Callable[[Tensor], bool]] = {
    "if": bool,
    "nonzero": lambda flag: flag.is_nonzero(),
}


class Book(nn.Module):
    """Initialises itself in its first call, as codebooks do."""

    def __init__(self, flag: Tensor, asked: Callable[[Tensor], bool]) -> None:
        super().__init__()
        self.register_buffer("inited", flag)
        self.register_buffer("book", torch.zeros(3))
        self.asked = asked

    def forward(self, x: Tensor) -> Tensor:
        x = x + 1
        if not self.asked(self.inited):
            self.book.data.copy_(x.sum(0))
            self.inited.data.copy_(torch.ones_like(self.inited))
        return x * self.book


class Doubling(nn.Module):
    """Doubles where its flag is set."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.register_buffer("flag", torch.tensor(number))

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if self.flag else x + 1


class Many(nn.Module):
    """Asks twelve flags in a row."""

    def __init__(self) -> None:
        super().__init__()
        for place in range(12):
            self.register_buffer(f"flag{place}", torch.tensor(False))

    def forward(self, x: Tensor) -> Tensor:
        for place in range(12):
            x = x * 2 if getattr(self, f"flag{place}") else x + 1
        return x


def compilations(fn: Callable[..., Any], *args: object) -> int:
    """How many frames were compiled in the call."""
    before = len(session().compilations)
    fn(*args)
    return len(session().compilations) - before


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int64])
@pytest.mark.parametrize("asked", QUESTIONS)
def test_a_flag_that_is_set_once(asked: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    eager, given = (Book(torch.zeros(shape, dtype=dtype), QUESTIONS[asked]) for _ in range(2))
    compiled = armature.compile(given, fullgraph=True)

    def call(number: int) -> None:
        x = torch.full((2, 3), float(number))
        torch.testing.assert_close(compiled(x), eager(x))
        torch.testing.assert_close(given.state_dict(), eager.state_dict())

    assert [compilations(call, number) for number in range(4)] == [1, 1, 0, 0]
    for module in (eager, given):
        module.inited.zero_()
    assert [compilations(call, number) for number in range(4, 6)] == [0, 0]


def test_a_bool_that_is_taken_out_of_its_tensor() -> None:
    eager, given = (Book(torch.tensor(False), Tensor.item) for _ in range(2))
    compiled, x = armature.compile(given), torch.ones(2, 3)
    assert compilations(lambda: [torch.testing.assert_close(compiled(x), eager(x)) for _ in range(4)]) == 2


WRITES: dict[str, Callable[[Tensor], object]] = {
    "the buffer": lambda flag: flag.logical_not_(),
    "a view of it": lambda flag: flag.view(1).sub_(1),
    "its data": lambda flag: flag.data.fill_(0),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_flag_that_the_function_writes_before_it_asks(write: str) -> None:
    class Setting(Doubling):
        def forward(self, x: Tensor) -> Tensor:
            WRITES[write](self.flag)
            return super().forward(x)

    eager, given = Setting(2), Setting(2)
    compiled, x = armature.compile(given), torch.ones(3)
    for _ in range(4):
        assert torch.equal(compiled(x), eager(x))


def test_a_flag_that_the_function_writes_by_another_argument() -> None:
    """The caller gives a view of the buffer, which nothing in the function says."""

    class Setting(Doubling):
        def forward(self, x: Tensor, view: Tensor) -> Tensor:
            view.sub_(1)
            return super().forward(x)

    eager, given = Setting(2), Setting(2)
    compiled, x = armature.compile(given), torch.ones(3)
    for _ in range(4):
        assert torch.equal(compiled(x, given.flag.view(1)), eager(x, eager.flag.view(1)))


def test_layers_that_differ_share_code_for_either_answer() -> None:
    layers = [Doubling(number) for number in range(6)]
    compiled, x = armature.compile(lambda layer, x: layer(x)), torch.ones(3)
    call = lambda: [torch.testing.assert_close(compiled(layer, x), layer(x)) for layer in layers]  # noqa: E731
    assert compilations(call) == 2


@pytest.mark.filterwarnings("ignore:armature compiled")  # it may meet the limit, as with breaks
def test_flags_that_are_set_one_after_the_other() -> None:
    module, x = Many(), torch.ones(3)
    compiled = armature.compile(module)
    for place in range(12):
        getattr(module, f"flag{place}").fill_(True)
        assert torch.equal(compiled(x), module(x))


class Probable(nn.Module):
    """Asks about elements of a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("probs", torch.tensor([1.0, 0.5, 0.0]))

    def forward(self, x: Tensor) -> Tensor:
        for place in range(3):
            prob = self.probs[place]
            if self.training or prob > 0:
                x = self.masked(x, prob)
        return x.cos() if (self.probs.sum() - 1).abs() >= 1 else x

    @staticmethod
    def masked(x: Tensor, prob: Tensor) -> Tensor:
        return x * 2 if not prob < 1 else x + prob


def test_questions_about_small_buffers() -> None:
    eager, given, x = Probable().eval(), Probable().eval(), torch.ones(3)
    compiled = armature.compile(given, fullgraph=True)

    def call(*probs: float) -> None:
        for module in (eager, given):
            module.probs.copy_(torch.tensor(probs))
        torch.testing.assert_close(compiled(x), eager(x))

    assert compilations(call, 1.0, 0.5, 0.0) == 1
    assert compilations(call, 1.0, 0.25, 0.0) == 0  # as before, by other numbers
    assert compilations(call, 1.0, 0.0, 0.0) == 1
    assert compilations(call, 1.0, 0.75, 0.0) == 0


def test_a_buffer_of_another_shape_is_asked_again() -> None:
    eager, given, x = Probable(), Probable(), torch.ones(3)
    compiled = armature.compile(given)
    for probs in ([1.0, 0.5, 0.0], [1.0], [0.5, 0.5, 0.5, 2.0]):
        for module in (eager, given):
            module.probs = torch.tensor(probs)
        if len(probs) == 1:
            for run in (eager, compiled):
                with pytest.raises(IndexError):
                    run(x)
        else:
            torch.testing.assert_close(compiled(x), eager(x))


CHANGES: dict[str, Callable[[Probable], object]] = {
    "the buffer": lambda module: module.probs.mul_(0.5),
    "an element": lambda module: module.probs[1].fill_(2.0),
    "its data": lambda module: module.probs.data.neg_(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_questions_about_what_the_function_has_written(change: str) -> None:
    class Changing(Probable):
        def forward(self, x: Tensor) -> Tensor:
            CHANGES[change](self)
            return super().forward(x)

    eager, given, x = Changing(), Changing(), torch.ones(3)
    compiled = armature.compile(given)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), eager(x))


def test_an_element_that_is_changed_before_it_is_asked() -> None:
    class Copied(Probable):
        def forward(self, x: Tensor) -> Tensor:
            prob = self.probs[1] * 1
            prob.add_(x[0])
            return x * 2 if prob > 1 else x + 1

    given = Copied()
    compiled = armature.compile(given)
    for first in (0.0, 1.0, 0.0, 1.0):
        x = torch.full((3,), first)
        torch.testing.assert_close(compiled(x), given(x))


def test_questions_with_an_argument_of_the_call() -> None:
    class Against(Probable):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if self.probs[0] > x[0] else x + 1

    given = Against()
    compiled = armature.compile(given)
    for first in (0.0, 3.0, 0.0):
        x = torch.full((3,), first)
        torch.testing.assert_close(compiled(x), given(x))
