"""An opcode is one function, as docs/recipes.md says."""

from __future__ import annotations

import dis
from types import ModuleType

import pytest
import torch

from armature.trace import eval_loop
from armature.trace.bytecode.instructions import Instruction
from armature.trace.frame_state import Frame
from armature.trace.opcodes import OPCODES, operators
from armature.trace.opcodes.table import collect_opcodes, opcode
from tests.support.tracing import trace


def module_of_a_version() -> ModuleType:
    """A module in which a negation is done three times."""

    @opcode("UNARY_NEGATIVE")
    def three_times(frame: Frame, inst: Instruction) -> None:
        for _ in range(3):
            OPCODES["UNARY_NEGATIVE"](frame, inst)

    made = ModuleType("version")
    three_times.__module__ = made.__name__
    vars(made)["three_times"] = three_times
    return made


def test_a_module_of_a_version_replaces_what_the_shared_ones_say() -> None:
    shared, both = collect_opcodes(operators), collect_opcodes(operators, module_of_a_version())
    assert shared.keys() == both.keys()
    assert {name for name in shared if shared[name] is not both[name]} == {"UNARY_NEGATIVE"}


def test_the_function_of_an_opcode_is_its_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(x: torch.Tensor) -> torch.Tensor:
        return -x

    def thrice(x: torch.Tensor) -> torch.Tensor:
        return -x

    assert "UNARY_NEGATIVE" in {inst.opname for inst in dis.get_instructions(thrice)}
    assert len(trace(once, torch.ones(2)).targets()) == 1
    changed = {**OPCODES, **collect_opcodes(module_of_a_version())}
    monkeypatch.setattr(eval_loop, "OPCODES", changed)
    assert len(trace(thrice, torch.ones(2)).targets()) == 3
