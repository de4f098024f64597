"""Each test starts without compiled code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import armature


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    armature.reset()
    yield
    armature.reset()
