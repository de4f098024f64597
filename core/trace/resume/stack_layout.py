"""The layout of a frame's stack at an instruction, and the variables in which its items are passed on."""

from __future__ import annotations

import dis
from enum import Enum
from typing import TypeAlias

from armature.frame.data import STACK
from armature.trace.bytecode.instructions import Instruction, loads_method
from armature.trace.opcodes.functions import callable_slots

PLAIN = frozenset({"STORE_FAST", "POP_TOP", "NOP"})
# Instructions that push no value; after all others the top of the stack is a plain object.
PUSHES_NOTHING = PLAIN | {
    "STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "STORE_GLOBAL", "STORE_DEREF", "STORE_NAME", "DELETE_ATTR",
    "DELETE_SUBSCR", "DELETE_FAST", "DELETE_GLOBAL", "DELETE_DEREF", "DELETE_NAME", "LIST_APPEND", "LIST_EXTEND",
    "SET_ADD", "SET_UPDATE",
    "MAP_ADD", "DICT_UPDATE", "DICT_MERGE", "SETUP_ANNOTATIONS", "RAISE_VARARGS", "RERAISE", "RETURN_VALUE",
}  # fmt: skip
KEEPS_STACK = frozenset({"NOP", "PRECALL", "KW_NAMES", "JUMP_FORWARD", "JUMP_BACKWARD"})
CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})


class Slot(Enum):
    """The kind of item at a position of the stack."""

    VALUE = "value"
    NULL = "null"
    LAST_INSTRUCTION = "last instruction"  # for RERAISE: the offset of the instruction that raised
    HANDLED = "handled"  # the previously handled exception, which POP_EXCEPT restores
    CONTEXT = "context"  # `__exit__` of a torch context manager that is left at a break and entered again


Layout: TypeAlias = tuple[Slot, ...]


def slot_name(position: int) -> str:
    """The variable for an item of the stack."""
    return f"{STACK}{position}"


def mode_name(position: int) -> str:
    """The variable for the grad mode inside the context manager at a stack position, which a call may have changed."""
    return f"__armature_mode_{position}"


def handled_name(number: int) -> str:
    """The variable for an exception that is being handled."""
    return f"__armature_handled_{number}"


def variables_of(layout: Layout) -> list[str]:
    """The variables in which the stack and the exceptions being handled are passed."""
    held = [slot_name(place) for place, slot in enumerate(layout) if slot in (Slot.VALUE, Slot.CONTEXT)]
    held += [mode_name(place) for place, slot in enumerate(layout) if slot is Slot.CONTEXT]
    return held + [handled_name(number) for number in range(layout.count(Slot.HANDLED))]


def kinds(layout: Layout) -> tuple[str, ...]:
    """The layout as part of a key, which is hashed at run time."""
    return tuple(slot.value for slot in layout)


def after(inst: Instruction, layout: Layout, *, jump: bool = False) -> Layout:
    """The layout after an instruction."""
    if inst.opname in KEEPS_STACK:
        return layout
    if inst.opname == "PUSH_NULL":
        return (*layout, Slot.NULL)
    if inst.opname == "FOR_ITER":
        return layout[:-1] if jump else (*layout, Slot.VALUE)
    if inst.opname in CALLS:
        return (*layout[: len(layout) - operands(inst)], Slot.VALUE)
    if loads_method(inst) or (inst.opname == "LOAD_GLOBAL" and inst.arg & 1):
        base = layout if inst.opname == "LOAD_GLOBAL" else layout[:-1]
        return (*base, *callable_slots(Slot.VALUE, Slot.NULL))
    grown = effect(inst, jump)
    if grown > 0:
        return (*layout, *[Slot.VALUE] * grown)
    left = layout[: len(layout) + grown]
    if inst.opname in PUSHES_NOTHING or "_IF_" in inst.opname or not left:
        return left
    return (*left[:-1], Slot.VALUE)


def operands(inst: Instruction) -> int:
    """How many stack items a call takes, including its function and NULL."""
    if inst.opname == "CALL_FUNCTION_EX":
        return 3 + (inst.arg & 1)
    return inst.arg + (3 if inst.opname == "CALL_KW" else 2)


def effect(inst: Instruction, jump: bool) -> int:
    """`dis.stack_effect`, including what 3.11 counts on PRECALL."""
    return dis.stack_effect(inst.opcode, inst.arg if inst.opcode >= dis.HAVE_ARGUMENT else None, jump=jump)
