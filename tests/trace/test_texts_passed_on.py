"""Strings that a program passes on without reading them, as names of files in a batch are: one compilation serves all."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session

NAMES = tuple(f"image_{number}.png" for number in range(10))


def moved(held: Any) -> Any:
    if isinstance(held, Tensor):
        return held.double()
    if isinstance(held, dict):
        return {key: moved(value) for key, value in held.items()}
    if isinstance(held, (list, tuple)):
        return type(held)(moved(value) for value in held)
    return held.to("cpu") if hasattr(held, "to") else held


def renamed(batch: dict[str, Any]) -> Any:
    before, batch["name"] = batch["name"], "other"
    return before, batch["x"] + 1


def after_a_break(batch: dict[str, Any]) -> Any:
    name, x = batch["name"], batch["x"] * 2
    total = x.sum().item()
    return {"total": total, "name": name, "x": x + 1, "same": name is not None, "names": [name, name]}


PROGRAMS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "tensors": lambda batch: {key: value * 2 for key, value in batch.items() if isinstance(value, Tensor)},
    "other": lambda batch: {"y": batch["x"] * 2, **{key: value for key, value in batch.items() if key != "x"}},
    "length": lambda batch: (batch["x"] * 2, len(batch["names"])),
    "moved": moved,
    "renamed": renamed,
    "after a break": after_a_break,
    "given or not": lambda batch: batch["x"] * 2 if batch.get("name") is None else (batch["x"] + 1, batch["name"]),
    "attribute": lambda batch: (SimpleNamespace(**batch).name, batch["x"] + 1),
    "keywords": lambda batch: (lambda x, **rest: (x * 2, rest))(**batch),
    "compared with a number": lambda batch: batch["x"] + (batch["name"] is True),
}


def batch_of(name: str) -> dict[str, Any]:
    return {"x": torch.ones(3), "name": name, "names": [name, name + "x"]}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compilation_serves_all(name: str) -> None:
    armature.reset()
    program = PROGRAMS[name]
    compiled = armature.compile(program, backend="eager")
    with session().recording() as records:
        for text in NAMES:
            mine, eager = batch_of(text), batch_of(text)
            assert str(compiled(mine)) == str(program(eager))
            assert str(mine) == str(eager)
    assert len(records.compilations) <= 3  # a list of names is compared until it has changed; the frame after a break


READERS: tuple[Callable[[Tensor, str], Any], ...] = (
    lambda x, mode: x.sum() if mode == "sum" else x.mean(),
    lambda x, mode: getattr(x, mode)(),
    lambda x, mode: x * len(mode),
    lambda x, mode: {"sum": x, "mean": x + 1}[mode],
    lambda x, mode: x + mode.startswith("s"),
    lambda x, mode: x * 2 if mode else x,
    lambda x, mode: (x + 1, f"{mode}:{x.shape}"),
    lambda x, mode: (x, hash(mode) == hash("sum")),
    lambda x, mode: (x + ord(mode[0]), [*mode], mode + "!", mode * 2, mode in ("sum",), mode < "n"),
    lambda x, mode: torch.einsum(f"i{mode[0]},i{mode[0]}->i", x, x),
)


@pytest.mark.parametrize("number", range(len(READERS)))
def test_what_is_read_is_guarded(number: int) -> None:
    armature.reset()
    program, x = READERS[number], torch.arange(6.0).view(2, 3)
    compiled = armature.compile(program, backend="eager")
    for mode in ("sum", "mean", "sum", "mean"):
        assert str(compiled(x, mode)) == str(program(x, mode))
