"""Forgetting compiled code, also while the code objects themselves go away."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import CodeType

import pytest

from armature.pipeline.session import Session
from armature.plugins.tables import Tables


def cyclic(number: int) -> CodeType:
    """The code of a function that only a garbage collection frees."""
    space: dict[str, Callable[[int], int]] = {}
    exec(f"def f(x): return x + {number}", space)
    space["f"].me = space["f"]  # type: ignore[attr-defined]
    return space["f"].__code__


def no_tables() -> Tables:
    raise AssertionError("no code relied on rules")


@pytest.mark.parametrize("forget", [Session.forget_code, lambda held: held.rules_changed(no_tables)])
def test_code_that_a_collection_frees_meanwhile(forget: Callable[[Session], None]) -> None:
    held = Session()
    before = gc.get_threshold()
    gc.collect()
    gc.disable()
    try:
        for number in range(200):
            held._remember(cyclic(number))
        assert len(held._codes) == 200
        gc.set_threshold(gc.get_count()[0] + 50)
        gc.enable()
        forget(held)
    finally:
        gc.set_threshold(*before)
        gc.enable()
    assert not held._codes
