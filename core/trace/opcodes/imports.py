"""Opcodes of imports inside functions. The handler of `__import__` decides what is imported."""

from __future__ import annotations

import builtins
from types import BuiltinFunctionType, ModuleType

from armature.trace.base import Value
from armature.trace.bytecode.instructions import Instruction
from armature.trace.frame_state import Frame
from armature.trace.opcodes.table import opcode


def imported(frame: Frame, name: str, names: Value, level: Value) -> Value:
    """`__import__(name, globals(), locals(), names, level)`."""
    tracer, none = frame.tracer, frame.tracer.constant(None)
    return tracer.python.builtin(builtins.__import__, tracer.constant(name), none, none, names, level)


@opcode("IMPORT_NAME")
def import_name(frame: Frame, inst: Instruction) -> None:
    names, level = frame.pop(), frame.pop()
    if type(frame.builtins.get("__import__")) is not BuiltinFunctionType:
        frame.tracer.graph_break("own-import-function")
    frame.push(imported(frame, str(inst.argval), names, level))


@opcode("IMPORT_FROM")
def import_from(frame: Frame, inst: Instruction) -> None:
    """An attribute of the module, else its submodule of that name."""
    tracer, module, part = frame.tracer, frame.stack[-1], str(inst.argval)
    found = tracer.python.attribute_or_none(module, part)
    if found is None:
        held = module.as_object()
        if not isinstance(held, ModuleType):
            tracer.graph_break("import-from-unclear-module", name=part, module=module.describe())
        name = f"{held.__dict__.get('__name__')}.{part}"
        found = imported(frame, name, tracer.constant(("*",)), tracer.constant(0))
    frame.push(found)
