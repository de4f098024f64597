"""`ARMATURE_LOG` and the loggers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

import armature
from armature import config
from armature.config import TOPICS
from tests.reports.conftest import Kept
from tests.support import forked

X = torch.ones(3)
PROGRAM = """
import torch, armature
{more}

@armature.compile
def fn(x, n):
    y = torch.relu(x) * n
    if y.sum() > 0:
        return y + 1
    return y

fn(torch.ones(3), 2)
fn(torch.ones(3), 2.5)
"""


def fn(x: Any, n: Any) -> Any:
    y = torch.relu(x) * n
    if y.sum() > 0:
        return y + 1
    return y


def compile_twice() -> None:
    compiled = armature.compile(fn)
    compiled(X, 2)
    compiled(X, 2.5)


def test_nothing_is_told_unless_asked(kept: Kept) -> None:
    compile_twice()
    assert kept.texts == {}


def test_each_topic_tells_the_lines_of_the_program(kept: Kept) -> None:
    with config.patch(log=TOPICS):
        compile_twice()
    assert kept.texts.keys() == {f"armature.{topic}" for topic in TOPICS}
    texts = {name.removeprefix("armature."): "\n".join(found) for name, found in kept.texts.items()}
    place = f"{Path(__file__).name}:{fn.__code__.co_firstlineno}"
    assert all(place in texts[topic] for topic in ("frame", "guards", "recompiles", "graph", "kernels"))
    assert "compiled up to a graph break" in texts["frame"] and "if y.sum() > 0:" in texts["frame"]
    assert "type(n) is" in texts["guards"] or "n == 2" in texts["guards"]
    assert "n was 2, is now 2.5" in texts["recompiles"]
    assert "torch.relu(x) * n" in texts["graph"] and "torch.relu(x) * n" in texts["kernels"]
    assert "aten.relu.default" in texts["kernels"]


def test_topics_are_apart_and_a_level_turns_one_on(kept: Kept) -> None:
    logger = logging.getLogger("armature.guards")
    logger.setLevel(logging.INFO)
    try:
        with config.patch(log={"kernels"}):
            compile_twice()
    finally:
        logger.setLevel(logging.NOTSET)
    assert kept.texts.keys() == {"armature.guards", "armature.kernels"}


def test_a_frame_that_is_left_alone_or_fails_is_told_with_the_reason(kept: Kept) -> None:
    def fails(module: Any, inputs: Any) -> Any:
        raise RuntimeError("of the backend")

    with config.patch(log={"frame"}), pytest.raises(armature.errors.ArmatureError):
        armature.compile(lambda x: x + 1, backend=fails)(X)
    with config.patch(log={"frame"}):
        armature.compile(lambda n: n + 1)(3)
    told = "\n".join(kept.texts["armature.frame"])
    assert "of the backend" in told and "left alone: " in told


@pytest.mark.parametrize(
    ("more", "expected"),
    [("", "armature.recompiles: "), ("import logging; logging.basicConfig(format='MINE %(message)s')", "MINE ")],
)
def test_the_variable_writes_to_standard_error_as_the_program_wants(tmp_path: Path, more: str, expected: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.replace("{more}", more))
    found = forked.run(["program.py"], tmp_path, {"ARMATURE_LOG": "recompiles"})
    assert found.returncode == 0, found.stderr
    (head, line, *_) = found.stderr.splitlines()
    assert head.startswith(expected) and "program.py:5 fn is compiled again" in head
    assert "n was 2, is now 2.5" in line and "program.py:7" in line


def test_a_topic_that_there_is_not() -> None:
    with pytest.raises(armature.errors.BadSetting, match="frame, guards"), config.patch(log={"frames"}):
        pass
