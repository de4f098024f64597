"""Opcodes that read and write variables: constants, locals, globals, cells."""

from __future__ import annotations

import builtins

from armature.trace.base import Value
from armature.trace.bytecode.instructions import Instruction
from armature.trace.frame_state import Frame
from armature.trace.opcodes.functions import push_callable
from armature.trace.opcodes.table import opcode
from armature.trace.values.function import CellValue


def load_variable(frame: Frame, name: str) -> None:
    """Push a local variable."""
    value = frame.variables.get(name)
    if value is None:
        lazy = frame.lazy.pop(name, None)
        if lazy is None:
            frame.tracer.raise_error(
                UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value"
            )
        value = frame.variables[name] = frame.tracer.objects.wrap(*lazy)
    frame.stack.append(value)


def store_variable(frame: Frame, name: str) -> None:
    """Pop into a local variable."""
    frame.lazy.pop(name, None)
    frame.variables[name] = frame.stack.pop()


def cell_of(frame: Frame, name: str) -> CellValue:
    """The cell of a cell or free variable. One is made if an inlined comprehension has not made it yet."""
    cell = frame.cells.get(name)
    if cell is None:
        cell = frame.cells[name] = CellValue()
    return cell


@opcode("LOAD_BUILD_CLASS")
def load_build_class(frame: Frame, inst: Instruction) -> None:
    frame.push(frame.tracer.as_value(builtins.__build_class__))


@opcode("LOAD_CONST")
def load_const(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(frame.tracer.names.constant(inst.argval))


@opcode("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW")
def load_fast(frame: Frame, inst: Instruction) -> None:
    value = frame.variables.get(inst.argval)
    if value is None:
        load_variable(frame, inst.argval)
    else:
        frame.stack.append(value)


@opcode("STORE_FAST")
def store_fast(frame: Frame, inst: Instruction) -> None:
    store_variable(frame, inst.argval)


@opcode("DELETE_FAST")
def delete_fast(frame: Frame, inst: Instruction) -> None:
    name = str(inst.argval)
    if frame.lazy.pop(name, None) is None and frame.variables.pop(name, None) is None:
        message = f"cannot access local variable '{name}' where it is not associated with a value"
        frame.tracer.raise_error(UnboundLocalError, message)


@opcode("LOAD_GLOBAL")
def load_global(frame: Frame, inst: Instruction) -> None:
    value = frame.tracer.names.load_global(frame, str(inst.argval))
    if inst.arg & 1:
        push_callable(frame, value)
    else:
        frame.stack.append(value)


@opcode("STORE_GLOBAL")
def store_global(frame: Frame, inst: Instruction) -> None:
    frame.tracer.names.store(frame.namespace, str(inst.argval), frame.stack.pop())


@opcode("DELETE_GLOBAL")
def delete_global(frame: Frame, inst: Instruction) -> None:
    frame.tracer.names.load_global(frame, str(inst.argval))
    frame.tracer.names.store(frame.namespace, str(inst.argval), None)


def pop_variable(frame: Frame, name: str) -> Value | None:
    """Remove and return the value of a variable that is not a cell; None if it was unbound."""
    held, lazy = frame.variables.pop(name, None), frame.lazy.pop(name, None)
    return frame.tracer.objects.wrap(*lazy) if held is None and lazy is not None else held


@opcode("MAKE_CELL")
def make_cell(frame: Frame, inst: Instruction) -> None:
    name = str(inst.argval)
    frame.cells[name] = CellValue(pop_variable(frame, name))


@opcode("RESUME")
def resume(frame: Frame, inst: Instruction) -> None:
    if frame.cells and inst.arg == 0:  # at the start of the function, not after a `yield`
        frame.own_cells = dict(frame.cells)


@opcode("LOAD_CLOSURE")
def load_closure(frame: Frame, inst: Instruction) -> None:
    frame.stack.append(cell_of(frame, str(inst.argval)))


@opcode("LOAD_DEREF")
def load_deref(frame: Frame, inst: Instruction) -> None:
    name = str(inst.argval)
    frame.stack.append(cell_of(frame, name).get(frame.tracer, name))


@opcode("STORE_DEREF")
def store_deref(frame: Frame, inst: Instruction) -> None:
    cell_of(frame, str(inst.argval)).set(frame.tracer, frame.stack.pop())


@opcode("DELETE_DEREF")
def delete_deref(frame: Frame, inst: Instruction) -> None:
    name = str(inst.argval)
    cell = cell_of(frame, name)
    cell.get(frame.tracer, name)
    cell.set(frame.tracer, None)
