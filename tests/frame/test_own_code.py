"""Which code is armature's own: not the example models, which an installation puts below the same folder."""

from __future__ import annotations

import torch

import armature
from armature.frame.skip import OWN_FOLDER, is_own
from armature.pipeline.session import session


def from_file(name: str) -> dict[str, object]:
    """The names of a module at a place below the package's folder."""
    names: dict[str, object] = {}
    exec(compile("def program(x):\n    return x.sin() + 1\n", f"{OWN_FOLDER}/{name}", "exec"), names)
    return names


def test_example_models_are_programs() -> None:
    armature.reset()
    program = from_file("example_models/made.py")["program"]
    x = torch.randn(3)
    torch.testing.assert_close(armature.compile(program)(x), x.sin() + 1)  # type: ignore[operator]
    assert session().totals().graphs == 1
    assert not is_own(program.__code__)  # type: ignore[attr-defined]


def test_what_stands_beside_them_is_its_own() -> None:
    assert is_own(from_file("example_models.py")["program"].__code__)  # type: ignore[attr-defined]
    assert is_own(armature.compile.__code__)
