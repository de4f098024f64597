"""Marks opcode functions, and collects them into the table of the running Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TypeAlias

from armature.trace.bytecode.instructions import Instruction
from armature.trace.frame_state import Frame

OpcodeFunction: TypeAlias = Callable[[Frame, Instruction], None]


def opcode(*names: str) -> Callable[[OpcodeFunction], OpcodeFunction]:
    """Mark a function as the implementation of the opcodes of these names."""

    def mark(function: OpcodeFunction) -> OpcodeFunction:
        vars(function)["__opcode_names__"] = names
        return function

    return mark


def collect_opcodes(*modules: ModuleType) -> Mapping[str, OpcodeFunction]:
    """The marked functions of the modules, by opcode name. A later module's function replaces an earlier one's."""
    found: dict[str, OpcodeFunction] = {}
    for module in modules:
        for function in vars(module).values():
            if getattr(function, "__module__", None) == module.__name__:
                found.update(dict.fromkeys(getattr(function, "__opcode_names__", ()), function))
    return found
