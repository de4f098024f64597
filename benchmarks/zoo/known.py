"""Known failures, with reasons; all others are new."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable
from pathlib import Path

import attrs

from benchmarks.zoo.causes import FATAL, Failure

FILE = Path(__file__).with_name("known.toml")
FAILING = (*FATAL, "layout")  # the kinds for which the command fails


@attrs.frozen
class Known:
    """A known failure; `model` and `where` are patterns."""

    model: str
    kind: str
    where: str
    reason: str

    def __attrs_post_init__(self) -> None:
        if not self.reason.strip():
            raise ValueError(f"{self.model}: a known failure needs a reason")
        if self.kind not in FAILING:
            raise ValueError(f"{self.model}: {self.kind} is none of {', '.join(FAILING)}")

    def covers(self, failure: Failure) -> bool:
        """Whether it matches a failure."""
        return (
            self.kind == failure.kind
            and fnmatch.fnmatchcase(failure.model, self.model)
            and fnmatch.fnmatchcase(failure.where, self.where)
        )


def read(file: Path = FILE) -> list[Known]:
    """The failures of a file."""
    return [Known(**entry) for entry in tomllib.loads(file.read_text()).get("known", ())]


def new(failures: Iterable[Failure], known: Iterable[Known]) -> list[Failure]:
    """The failures for which the command fails: those of a bad kind that are not known."""
    listed = list(known)
    return [f for f in failures if f.kind in FAILING and not any(one.covers(f) for one in listed)]
