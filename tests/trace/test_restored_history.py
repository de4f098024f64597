"""A graph that raises after it has changed tensors with gradients: autograd's record of the changes is undone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from armature import config
from armature.frame.rerun import MOST_BYTES
from armature.testing.differential import difference
from tests.support.resuming import compiled

BACKENDS = pytest.mark.parametrize("backend", ["eager", "auto"])


def intermediate(leaf: torch.Tensor) -> torch.Tensor:
    return leaf * 2


def view(leaf: torch.Tensor) -> torch.Tensor:
    return (leaf * 2)[:, :2]


def hooked(leaf: torch.Tensor) -> torch.Tensor:
    made = leaf * 2
    made.register_hook(lambda gradient: gradient * 10)
    return made


def retained(leaf: torch.Tensor) -> torch.Tensor:
    made = leaf * 2
    made.retain_grad()
    return made


def transposed(leaf: torch.Tensor) -> torch.Tensor:
    return (leaf * 2).t().contiguous().t() * 1


def large(leaf: torch.Tensor) -> torch.Tensor:
    return (leaf * 2).sum() * torch.ones(2, MOST_BYTES)


def outcome(fn: Callable[..., Any], make: Callable[[torch.Tensor], torch.Tensor], index: int) -> Any:
    """What a call and its backward give, and what is left of its tensors."""
    leaf = torch.arange(6.0).reshape(2, 3).requires_grad_()
    changed = make(leaf)
    found = fn(changed, torch.tensor([index]), leaf)
    first = changed.sum() + found
    first.backward(retain_graph=True)
    return found.detach(), changed.detach(), changed._version, changed.is_leaf, leaf.grad


def handled(t, index, leaf):
    t.mul_(3)
    try:
        return t.index_select(0, index).sum() * 2 + (t * leaf[:, : t.size(1)].mean()).sum()
    except IndexError:
        return t.pow(2).sum()


@BACKENDS
@pytest.mark.parametrize("make", [intermediate, hooked, transposed])
def test_a_change_with_gradients_is_undone(make: Callable[..., Any], backend: str) -> None:
    mine, records = compiled(handled, backend)
    for index in (1, 7, 0, 7):
        assert difference(outcome(handled, make, index), outcome(mine, make, index)) == 0.0
    assert len(records.compilations) == 1


@BACKENDS
@pytest.mark.parametrize("make", [view, retained, large])
def test_a_change_that_cannot_be_undone_ends_the_graph(make: Callable[..., Any], backend: str) -> None:
    mine, records = compiled(handled, backend)
    for index in (1, 7, 0, 7):
        assert difference(outcome(handled, make, index), outcome(mine, make, index)) == 0.0
    assert len(records.compilations) > 1


@BACKENDS
def test_code_for_an_intermediate_is_not_that_for_a_view(backend: str) -> None:
    """A view's history is that of its base, and a retained gradient belongs to what the tensor becomes."""
    mine, records = compiled(handled, backend)
    for make in (lambda leaf: leaf[:, :2] * 2, view, lambda leaf: retained(leaf[:, :2])):
        for index in (1, 7):
            assert difference(outcome(handled, make, index), outcome(mine, make, index)) == 0.0
    assert len(records.compilations) > 1


@BACKENDS
@pytest.mark.parametrize("base", [False, True])
def test_memory_that_another_input_reads_ends_the_graph(base: bool, backend: str) -> None:
    def program(t, other, index):
        t.mul_(3)
        other = other.cos()
        try:
            return t.index_select(0, index).sum() + other.sum()
        except IndexError:
            return t.pow(2).sum() + other.sum()

    def result(fn: Callable[..., Any], index: int) -> Any:
        leaf = torch.arange(6.0).reshape(2, 3).requires_grad_()
        made = leaf * 2
        found = fn(made, made[0] if base else made.detach(), torch.tensor([index]))
        found.backward()
        return found.detach(), made.detach(), made._version, leaf.grad

    mine, records = compiled(program, backend)
    for index in (1, 7, 0, 7):
        assert difference(result(program, index), result(mine, index)) == 0.0
    assert len(records.compilations) > 1


@BACKENDS
@pytest.mark.parametrize("part", [False, True])
def test_a_buffer_that_gets_a_history_loses_it_again(part: bool, backend: str) -> None:
    def program(buffer, weight, index):
        buffer.add_(weight)
        try:
            return buffer.index_select(0, index).sum()
        except IndexError:
            return buffer.requires_grad, buffer.sum() * 2

    def result(fn: Callable[..., Any], index: int) -> Any:
        weight, buffer = torch.ones(3, requires_grad=True), torch.zeros(5)
        given = buffer[:3] if part else buffer[:3].clone()
        found = fn(given, weight, torch.tensor([index]))
        given.sum().backward()
        return found, given.detach(), buffer.requires_grad, given._version, weight.grad

    mine, records = compiled(program, backend)
    for index in (1, 7, 0, 7):
        assert difference(result(program, index), result(mine, index)) == 0.0
    assert (len(records.compilations) > 1) is part


@BACKENDS
def test_a_change_that_autograd_does_not_see_is_undone(backend: str) -> None:
    def program(t, index, leaf):
        with torch.no_grad():
            t.mul_(3)
        try:
            return t.index_select(0, index).sum() * leaf.sum()
        except IndexError:
            return t.sum() * 2

    mine, records = compiled(program, backend)
    for index in (1, 7, 0, 7):
        assert difference(outcome(program, intermediate, index), outcome(mine, intermediate, index)) == 0.0
    assert len(records.compilations) == 1


@BACKENDS
def test_gradients_of_gradients_go_through_what_was_restored(backend: str) -> None:
    def program(t, index):
        t.pow_(2)
        try:
            return t.index_select(0, index).sum()
        except IndexError:
            return t.pow(2).sum()

    def second(fn: Callable[..., Any], index: int) -> Any:
        leaf = torch.arange(1.0, 7.0).reshape(2, 3).requires_grad_()
        found = fn(leaf * 2, torch.tensor([index]))
        (first,) = torch.autograd.grad(found, leaf, create_graph=True)
        return torch.autograd.grad(first.sum(), leaf)

    mine, _ = compiled(program, "eager")
    for index in (7, 1):
        assert difference(second(program, index), second(mine, index)) == 0.0


@BACKENDS
def test_sizes_that_vary_are_small_while_they_are(backend: str) -> None:
    def program(t, index):
        t.mul_(3)
        try:
            return t.index_select(0, index).sum()
        except IndexError:
            return t.sum() * 5

    def result(fn: Callable[..., Any], rows: int, index: int) -> Any:
        leaf = torch.ones(rows, 4, requires_grad=True)
        made = leaf * 2
        fn(made, torch.tensor([index])).backward()
        return leaf.grad, made._version

    mine, records = compiled(program, backend)
    for rows in (3, 4, 5):
        for index in (1, 99):
            assert difference(result(program, rows, index), result(mine, rows, index)) == 0.0
    assert len(records.compilations) == 2
    for index in (1, 1 << 22):
        assert difference(result(program, MOST_BYTES, index), result(mine, MOST_BYTES, index)) == 0.0
    assert len(records.compilations) > 2


def test_a_check_after_a_change_with_gradients_stays_in_the_graph() -> None:
    def program(t, limit):
        t.mul_(3)
        if (t > limit).any():
            raise ValueError("too large")
        return t.sum()

    def result(fn: Callable[..., Any], limit: float) -> Any:
        leaf = torch.ones(3, requires_grad=True)
        made = leaf * 2
        try:
            fn(made, torch.tensor(limit)).backward()
        except ValueError as error:
            made.sum().backward()
            return str(error), made.detach(), made._version, leaf.grad
        return leaf.grad

    mine, records = compiled(program)
    for limit in (7.0, 5.0, 6.5, 1.0):
        assert difference(result(program, limit), result(mine, limit)) == 0.0
    assert len(records.compilations) == 1


def test_under_a_transform_the_error_is_eager_modes() -> None:
    def program(t, index):
        t.mul_(3)
        return t[index].sum()

    def gradient(fn: Callable[..., Any], index: int) -> Any:
        return torch.func.grad(lambda x: fn(x * 2, torch.tensor([index])))(torch.ones(3))

    with config.patch(strict=True):
        mine = armature.compile(program, backend="eager")
        assert difference(gradient(program, 1), gradient(mine, 1)) == 0.0
        with pytest.raises(IndexError):
            gradient(mine, 7)


def read_before(t, alias, index):
    total = t.sum()
    try:
        t[index] = total
    except IndexError:
        return t.sum() * 3
    return t.sum() * 2


def alias_read_before(t, alias, index):
    total = alias.sum()
    try:
        t[index] = total
    except IndexError:
        return t.sum() * 3
    return t.sum() * 2


def added_to(t, alias, index):
    try:
        t.index_add_(0, index, t.new_ones(2))
    except IndexError:
        return t.sum() * 3
    return t.sum() * 2


def set_twice(t, alias, index):
    t[index] = 5.0
    try:
        t[index + 1] = 7.0
    except IndexError:
        return t.sum() * 3
    return t.sum() * 2


def of_large(fn: Callable[..., Any], index: int) -> Any:
    leaf = torch.ones(MOST_BYTES, requires_grad=True)
    made = leaf * 1
    found = fn(made, made.detach(), torch.tensor([0, index]))
    found.backward()
    return found.detach(), made.detach()[:4], made._version, leaf.grad


@BACKENDS
@pytest.mark.parametrize("program", [read_before, alias_read_before, added_to, set_twice])
def test_large_memory_that_is_read_before_or_added_to_ends_the_graph(program: Callable[..., Any], backend: str) -> None:
    """Eager mode, run again, would read what the graph has changed."""
    mine, records = compiled(program, backend)
    for index in (1, MOST_BYTES - 1, MOST_BYTES, 2):
        try:
            expected = of_large(program, index)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error)):
                of_large(mine, index)
        else:
            assert difference(expected, of_large(mine, index)) == 0.0
    assert len(records.compilations) > 1


@BACKENDS
def test_items_of_large_memory_are_set_again(backend: str) -> None:
    def program(t, index, seen):
        seen.append(len(seen))
        t[index] = 2.0
        return t.sum()

    mine, records = compiled(program, backend)
    for index in (1, MOST_BYTES, 2):
        outcomes = []
        for fn in (program, mine):
            leaf, seen = torch.ones(MOST_BYTES, requires_grad=True), [0]
            made = leaf * 1
            with contextlib.suppress(IndexError):
                fn(made, torch.tensor([0, index]), seen)
            made.sum().backward()
            outcomes.append((seen, made.detach()[:3], made._version, leaf.grad))
        assert difference(*outcomes) == 0.0
    assert len(records.compilations) == 1
