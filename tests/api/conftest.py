"""Each test starts without compiled code, and in strict mode unless it says otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import armature


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    armature.reset()
    with armature.config.patch(strict=True):
        yield
    armature.reset()
