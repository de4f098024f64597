"""Opcodes of class statements: the body runs as a function whose variables are the class's attributes."""

from __future__ import annotations

import builtins

from armature.trace.frame_state import Frame
from armature.trace.instructions import Instruction
from armature.trace.opcodes.names import cell_of
from armature.trace.opcodes.table import opcode
from armature.trace.values.base import Value
from armature.trace.values.mapping import DictValue, namespace_of


@opcode("LOAD_BUILD_CLASS")
def load_build_class(frame: Frame, inst: Instruction) -> None:
    frame.push(frame.tracer.as_value(builtins.__build_class__))


@opcode("LOAD_NAME")
def load_name(frame: Frame, inst: Instruction) -> None:
    name = str(inst.argval)
    value = frame.variables.get(name)
    frame.push(frame.tracer.names.load_global(frame, name) if value is None else value)


@opcode("STORE_NAME")
def store_name(frame: Frame, inst: Instruction) -> None:
    frame.variables[str(inst.argval)] = frame.pop()


@opcode("DELETE_NAME")
def delete_name(frame: Frame, inst: Instruction) -> None:
    name = str(inst.argval)
    if frame.variables.pop(name, None) is None:
        frame.tracer.raise_error(NameError, f"name '{name}' is not defined")


@opcode("LOAD_CLASSDEREF")
def load_classderef(frame: Frame, inst: Instruction) -> None:
    name = str(inst.argval)
    value = frame.variables.get(name)
    frame.push(cell_of(frame, name).get(frame.tracer, name) if value is None else value)


@opcode("LOAD_LOCALS")
def load_locals(frame: Frame, inst: Instruction) -> None:
    frame.push(namespace_of(frame.tracer, frame.variables))


@opcode("LOAD_FROM_DICT_OR_DEREF")
def load_from_dict_or_deref(frame: Frame, inst: Instruction) -> None:
    name = str(inst.argval)
    value = found_in(frame, name)
    frame.push(cell_of(frame, name).get(frame.tracer, name) if value is None else value)


@opcode("LOAD_FROM_DICT_OR_GLOBALS")
def load_from_dict_or_globals(frame: Frame, inst: Instruction) -> None:
    name = str(inst.argval)
    value = found_in(frame, name)
    frame.push(frame.tracer.names.load_global(frame, name) if value is None else value)


def found_in(frame: Frame, name: str) -> Value | None:
    """Pop a namespace; what it holds under the name."""
    namespace = frame.pop()
    key = frame.tracer.constant(name)
    return namespace.find(frame.tracer, key) if isinstance(namespace, DictValue) else None


@opcode("SETUP_ANNOTATIONS")
def setup_annotations(frame: Frame, inst: Instruction) -> None:
    frame.variables.setdefault("__annotations__", DictValue({}))
