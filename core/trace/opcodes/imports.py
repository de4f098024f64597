"""Opcodes of imports inside functions: of modules that are loaded already."""

from __future__ import annotations

import importlib.util
import sys
from types import BuiltinFunctionType, ModuleType
from typing import TYPE_CHECKING

from armature.frame.sources import ItemSource, ObjectSource, object_source
from armature.trace.frame_state import Frame
from armature.trace.instructions import Instruction
from armature.trace.opcodes.table import opcode
from armature.trace.trust import is_trusted
from armature.trace.values.exception import ExceptionValue, raising

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace
    from armature.trace.values.base import Value

LOADED = ObjectSource(sys.modules, "sys.modules")


@opcode("IMPORT_NAME")
def import_name(frame: Frame, inst: Instruction) -> None:
    tracer = frame.tracer
    names, level = frame.pop().as_constant(), frame.pop().as_constant()
    names, level = (level, names) if not isinstance(level, int) else (names, level)
    name = str(inst.argval)
    if type(frame.builtins.get("__import__")) is not BuiltinFunctionType:
        tracer.graph_break("own-import-function")
    if level:
        package = frame.namespace.get("__package__")
        if not isinstance(package, str) or not package:
            tracer.graph_break("import-without-package")
        name = importlib.util.resolve_name("." * int(level) + name, package)
    if name not in sys.modules and importlib.util.find_spec(top := name.partition(".")[0]) is None:
        tracer.guards.absent(LOADED, top)
        raise raising(tracer, ExceptionValue(ModuleNotFoundError, [tracer.constant(f"No module named {top!r}")]))
    value = loaded(tracer, name)
    for one in names if isinstance(names, tuple) else ():
        part_of(tracer, value, name, str(one))
    if not names and not level and "." in name:
        value = loaded(tracer, name.partition(".")[0])
    frame.push(value)


def loaded(tracer: Trace, name: str) -> Value:
    """The module that `sys.modules` has by a name. Those of torch and of the standard library stay there."""
    module = sys.modules.get(name)
    if not isinstance(module, ModuleType):
        tracer.graph_break("imports-module", module=name)
    fixed = is_trusted(module) and module.__name__ == name
    return tracer.wrap(module, object_source(module) if fixed else ItemSource(LOADED, name))


def part_of(tracer: Trace, module: Value, name: str, part: str) -> Value:
    """`part` of `from name import part`: an attribute, else a module below it that is loaded."""
    held = module.as_object()
    found = None if part == "*" else tracer.python.attribute_or_none(module, part)
    if found is not None:
        return found
    if not isinstance(held, ModuleType) or held.__dict__.get("__name__") != name:
        tracer.graph_break("import-from-unclear-module", name=part, module=module.describe())
    return loaded(tracer, f"{name}.{part}")


@opcode("IMPORT_FROM")
def import_from(frame: Frame, inst: Instruction) -> None:
    module = frame.stack[-1]
    held = module.as_object()
    name = held.__name__ if isinstance(held, ModuleType) else ""
    frame.push(part_of(frame.tracer, module, name, str(inst.argval)))
