"""What leads from one break to the next and only reads numbers out of tensors runs as it is: loops and runs of operators."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

import armature
from tests.support.resuming import resumes


def values() -> torch.Tensor:
    return torch.tensor([1.0, -2.0, 3.0, 0.5, -1.0, 2.0])


def reads_ints(t, places):
    total = 0
    for at in range(6):
        total += int(places[at])
    return t * 2 + total


def collects(t, mask):
    kept = []
    for at in range(6):
        if mask[at]:
            kept.append(at)
    return t[kept] * 2


def compares(t, mask):
    found = 0
    for at, limit in enumerate([0.5, 0.0, 2.0, 1.0, 0.0, 9.0]):
        if t[at] > limit:
            found += at
        elif t[at] < -1.5:
            continue
        else:
            found -= 1
    return t * found


def pools(t, mask):
    """As edge pooling does: numbers and flags decide which items are set."""
    cluster = torch.zeros(6, dtype=torch.long)
    free = torch.ones(6, dtype=torch.bool)
    chosen: list[int] = []
    number = 0
    for edge in torch.argsort(t).tolist():
        first = int(edge)
        if not bool(free[first]):
            continue
        second = int(cluster[first]) + 1
        if not bool(free[second]):
            continue
        chosen.append(edge)
        cluster[first] = number
        free[first] = False
        if first != second:
            cluster[second] = number
            free[second] = False
        number += 1
    left = int(free.sum())
    return t[chosen] * 2, cluster + number, left


def nested(t, mask):
    count = 0
    for _ in range(2):
        for at in range(3):
            if mask[at]:
                count += 1
                break
        else:
            count += 100
    return t + count


def counts_down(t, mask):
    left = mask.sum()
    rounds = 0
    while left > 0:
        left = left - 1
        rounds += 1
    return t * rounds


def without_gradients(t, mask):
    kept = []
    with torch.no_grad():
        for at in range(6):
            if mask[at]:
                kept.append(at)
        doubled = t * 2
    return doubled, t * 3, kept


def behind_one_another(t, mask):
    part = t[mask]
    places = torch.where(mask)[0]
    return part * 2, places + 1


def in_comprehensions(t, mask):
    """As models of text and images do: rows of a table by their first number."""
    table = torch.arange(12).reshape(6, 2) % 4
    rows = [table[table[:, 0] == number] for number in table[:2, 0]]
    return t + 1, rows, {len(row) for row in rows}


def picks_in_a_comprehension(t, mask):
    places = torch.topk(t, 3)[1]
    table = torch.stack([t, t + 1])
    return torch.stack([table[:, places[at]] for at in range(3)]) * 2


def fills_rows(t, mask):
    """As speech models do: each row is repeated by numbers of its own, and copied into a larger one."""
    counts = torch.stack([mask, ~mask, mask]).long() * 2
    filled = torch.zeros(3, 12)
    for at, (row, times) in enumerate(zip(torch.stack([t, t + 1, t + 2]), counts)):
        repeated = torch.repeat_interleave(row, times, dim=0)
        filled[at, : repeated.size(0)] = repeated
    return filled * 2


def repeats_in_a_method(t, mask):
    filled, counts = torch.zeros(3, 12), mask.long() + 1
    for at in range(3):
        repeated = t.repeat_interleave(counts, dim=0)
        filled[at, : repeated.size(0)] = repeated
    return filled * 2


def masks_in_a_call(t, mask):
    return torch.dot(t[mask], t[mask]) + t.relu()


def several(t, mask):
    rows = mask.nonzero()
    picked = t[mask]
    first, count = rows[0, 0], picked.numel()
    number = first.item()
    return picked * number + count


def in_a_callee(t, mask):
    return collects(t + 1, mask) * 3, reads_ints(t, mask) + 1


# From Python 3.12 on a loop ends with instructions that it never runs, at which the search for more stops.
AFTER_A_LOOP = ["number-of-tensor"] if sys.version_info >= (3, 12) else []
LOOPS: list[tuple[Any, list[str]]] = [
    (reads_ints, ["number-of-tensor"]),
    (collects, ["data-dependent-branch"]),
    (compares, ["data-dependent-branch"]),
    (pools, ["tensor-to-list", *AFTER_A_LOOP]),
    (nested, ["data-dependent-branch"]),
    (counts_down, ["data-dependent-branch"]),
    (without_gradients, ["data-dependent-branch"]),
    (behind_one_another, ["dynamic-shape-operator"]),
    (in_comprehensions, ["dynamic-shape-operator"]),
    (picks_in_a_comprehension, ["data-dependent-operator"]),
    (fills_rows, ["dynamic-shape-operator"]),
    (repeats_in_a_method, ["dynamic-shape-operator"]),
    (masks_in_a_call, ["dynamic-shape-operator"]),
    (several, ["dynamic-shape-operator"]),
    (in_a_callee, ["data-dependent-branch", "number-of-tensor"]),
]


@pytest.mark.parametrize(("fn", "breaks"), LOOPS)
def test_it_is_one_break(fn: Any, breaks: list[str]) -> None:
    found = resumes(fn, lambda: (values(), values() > 0))
    assert found.breaks == breaks
    assert not found.eager


def test_the_mask_may_differ_from_call_to_call() -> None:
    compiled = armature.compile(collects, backend="eager")
    for limit in (0.0, 5.0, -5.0, 1.0):
        mask = values() > limit
        assert torch.equal(compiled(values(), mask), collects(values(), mask))


def works(t, mask):
    weight = torch.eye(6)
    for at in range(6):
        if mask[at]:
            t = weight @ t
    return t


def adds(t, mask):
    for at in range(6):
        if mask[at]:
            t = t + 1
    return t


@pytest.mark.parametrize(("fn", "call"), [(works, "matmul"), (adds, "add")])
def test_work_in_a_loop_stays_compiled(fn: Any, call: str) -> None:
    found = resumes(fn, lambda: (values(), values() > 0))
    assert any(call in graph for graph in found.graphs)
    assert not found.eager


def draws(t, mask):
    for at in range(6):
        if mask[at]:
            t = t + torch.rand(6)
    return t


def draws_between(t, mask):
    torch.manual_seed(3)
    first = torch.rand(2)
    count = 0
    for at in range(6):
        count += int(places_of(mask)[at])
    return t * count, first, torch.rand(2)


def places_of(mask):
    return mask.long()


@pytest.mark.parametrize("fn", [draws, draws_between])
def test_random_numbers_are_those_of_eager_mode(fn: Any) -> None:
    torch.manual_seed(0)
    resumes(fn, lambda: (values(), values() > 0))


def binds_in_the_loop(t, mask):
    for at in range(6):
        if mask[at]:
            last = at
    return t * last


def binds_nothing(t, mask):
    for at in range(6):
        if mask[at] & mask[0] & mask[1]:
            last = at
    return t * last


@pytest.mark.parametrize("fn", [binds_in_the_loop, binds_nothing])
def test_a_variable_that_only_some_rounds_bind(fn: Any) -> None:
    resumes(fn, lambda: (values(), values() > 0))


def outside(t, mask):
    total = 0
    for at in range(9):
        total += int(mask[at])
    return t * total


def handled(t, mask):
    total = 0
    try:
        for at in range(9):
            total += int(mask[at])
    except IndexError:
        total -= 10
    return t * total


def handled_in_the_loop(t, mask):
    total = 0
    for at in range(9):
        try:
            total += int(mask[at])
        except IndexError:
            total -= 10
    return t * total


@pytest.mark.parametrize("fn", [outside, handled, handled_in_the_loop])
def test_an_error_in_a_round_is_raised_at_its_line(fn: Any) -> None:
    resumes(fn, lambda: (values(), values() > 0))


class Number:
    """Converted by code of the program."""

    def __init__(self, held):
        self.held = held

    def __int__(self):
        return int((self.held * 2).sum())


def converts(t, mask):
    total = 0
    for each in [Number(t), Number(t + 1)]:
        total += int(each)
    return t * total


def test_the_program_s_own_conversions() -> None:
    resumes(converts, lambda: (values(), None))


def shared(t, mask):
    def count():
        return total

    total = 0
    for at in range(6):
        if mask[at]:
            total += 1
    return t * count()


def test_a_variable_that_an_inner_function_shares() -> None:
    resumes(shared, lambda: (values(), values() > 0))


def test_an_operator_that_may_stay_in_the_graph_is_not_taken_out() -> None:
    with armature.config.patch(capture_scalar_outputs=True):
        found = resumes(several, lambda: (values(), values() > 0))
    assert found.breaks == ["dynamic-shape-operator"] * 2


def test_the_break_names_the_lines() -> None:
    outcomes = [event.outcome for event in armature.explain(collects)(values(), values() > 0).breaks]
    first = collects.__code__.co_firstlineno + 2
    assert [f"lines {first} to {first + 2} run eagerly with it" in outcome for outcome in outcomes] == [True]
    outcomes = [event.outcome for event in armature.explain(works)(values(), values() > 0).breaks]
    assert outcomes and all("run eagerly with it" in outcome for outcome in outcomes)
