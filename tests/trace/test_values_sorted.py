"""Lists that are sorted in place, and dicts updated by pairs, where the program has its hands in them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import armature


def adds_to_it() -> object:
    items = [3, 1]
    try:
        items.sort(key=lambda item: items.append(item) or item)  # type: ignore[func-returns-value]
    except ValueError as error:
        return items, str(error)
    return items


def looks_at_it() -> object:
    items, seen = [3, 1, 2], []
    items.sort(key=lambda item: (seen.append(list(items)), -item)[1])
    return items, seen


def fails() -> object:
    items = [3, 1]
    try:
        items.sort(key=lambda item: 1 // 0)
    except ZeroDivisionError:
        return items
    return None


def pairs_of_another_size() -> object:
    found: list[object] = []
    for pairs in ([(1, 2), (3,)], [5], ["ab", "cde"]):
        held: dict[object, object] = {}
        try:
            held.update(pairs)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            found.append((str(error), held))
    return found


@pytest.mark.parametrize("change", [adds_to_it, looks_at_it, fails, pairs_of_another_size])
def test_like_eager(change: Callable[[], object]) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, object]:
        return x + 1, change()

    x = torch.ones(2)
    assert armature.compile(program, backend="eager")(x)[1] == program(x)[1]
