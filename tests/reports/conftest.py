"""Each test starts without compiled code."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

import armature


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    armature.reset()
    yield
    armature.reset()


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        assert record.levelno == logging.INFO
        self.texts.setdefault(record.name, []).append(record.getMessage())


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler, logger = Kept(), logging.getLogger("armature")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
