"""Which code is armature's own: not the example models, which an installation puts below the same folder."""

from __future__ import annotations

import torch
from torch import Tensor

import armature
from armature.events import CompileEvent, EventKind
from armature.frame.skip import OWN_FOLDER, is_own
from armature.pipeline.session import session
from armature.plugin_api import hookimpl
from armature.plugins import manager


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


class Frames:
    """Notes the files of frames that are traced."""

    def __init__(self) -> None:
        self.files: list[str] = []

    @hookimpl
    def armature_compile_event(self, event: CompileEvent) -> None:
        if event.kind is EventKind.START:
            self.files.append(event.file)


def learned(x: Tensor, w: Tensor) -> Tensor | None:
    product = w * 1
    w.data.add_(1)  # autograd does not see it, so AOTAutograd's own wrapper calls the backward graph
    part = x[:2]
    part.mul_(w.sum())
    (product.sum() + part.sum()).backward()
    return w.grad


def test_no_frame_of_a_compilation_is_traced() -> None:
    """The program calls `backward`, with the frame hook on, and the first call compiles the backward graph."""
    armature.reset()
    x, w = torch.randn(3, 4), torch.randn(4, 5)
    frames = Frames()
    with manager().registered(frames, "frames"):
        gradient = armature.compile(learned)(x.clone(), w.clone().requires_grad_())
    assert {file for file in frames.files if not file.startswith("<frozen")} == {__file__}
    torch.testing.assert_close(gradient, learned(x.clone(), w.clone().requires_grad_()))
