"""Opcodes of imports inside functions: of modules that are loaded already."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from armature.frame.sources import ObjectSource
from armature.trace.instructions import Instruction
from armature.trace.opcodes.table import opcode
from armature.trace.state import Frame
from armature.trace.values.exception import ExceptionValue


@opcode("IMPORT_NAME")
def import_name(frame: Frame, inst: Instruction) -> None:
    names, level = frame.pop().as_constant(), frame.pop().as_constant()
    names, level = (level, names) if not isinstance(level, int) else (names, level)
    name = str(inst.argval)
    if level:
        package = str(frame.namespace.get("__package__") or "")
        name = importlib.util.resolve_name("." * int(level) + name, package)  # type: ignore[call-overload]
    module = sys.modules.get(name)
    if name not in sys.modules and importlib.util.find_spec(top := name.partition(".")[0]) is None:
        missing = frame.tracer.constant(f"No module named {top!r}")
        frame.tracer.guards.absent(ObjectSource(sys.modules, "sys.modules"), top)
        raise frame.tracer.raising(ExceptionValue(ModuleNotFoundError, [missing]))
    if not isinstance(module, ModuleType):
        frame.tracer.graph_break("unsupported-operation", operation="import", type=f"module {name}, not loaded yet")
    if not names and not level:
        module = sys.modules[name.partition(".")[0]]
    frame.push(frame.tracer.wrap(module, frame.tracer.object_source(module)))


@opcode("IMPORT_FROM")
def import_from(frame: Frame, inst: Instruction) -> None:
    module = frame.stack[-1]
    name = str(inst.argval)
    held = module.as_object()
    if isinstance(held, ModuleType) and name not in held.__dict__:
        inner = sys.modules.get(f"{held.__name__}.{name}")
        if inner is not None:
            frame.push(frame.tracer.wrap(inner, frame.tracer.object_source(inner)))
            return
    frame.push(module.get_attribute(frame.tracer, name))
