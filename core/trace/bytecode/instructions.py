"""Decoded code: instructions with resolved arguments, jump targets as positions, and the exception table."""

from __future__ import annotations

import dis
import functools
from collections.abc import Sequence
from types import CodeType
from typing import Any, TypeAlias, cast

import attrs

from armature.frame.data import resume_point
from armature.trace.bytecode.versions import LOADS_METHODS

STOPITERATION_ERROR = 3  # argument of CALL_INTRINSIC_1, from Python 3.12 on
# Python 3.13 has instructions that combine two. They can only name the first sixteen variable slots, and a resume
# function numbers its slots differently, so they are decoded as the two instructions they combine.
DOUBLED = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}


Span: TypeAlias = tuple[int, int, int, int]
"""First line, last line, first column and the column after the last, in bytes of UTF-8."""


@attrs.frozen
class Protection:
    """An entry of the exception table for an instruction: where its handler is, and how to trim the stack first."""

    target: int  # position of the handler's first instruction
    depth: int
    push_lasti: bool


@attrs.define(eq=False)
class Instruction:
    """One instruction. `target`: position of the instruction jumped to, -1 without a jump. `span`: where its expression
    is in the file, None if that is not known."""

    opname: str
    opcode: int
    arg: int
    argval: Any
    offset: int
    line: int
    target: int = -1
    protection: Protection | None = None
    span: Span | None = None


@functools.lru_cache(maxsize=4096)
def decode(code: CodeType) -> tuple[Instruction, ...]:
    """The instructions of a code object without caches and prefixes. Cached: each code is decoded once."""
    bytecode = dis.Bytecode(code)
    found = [single for inst in bytecode if inst.opname not in ("CACHE", "EXTENDED_ARG") for single in split(inst)]
    position = positions_of(code, found)
    jumps = {*dis.hasjrel, *dis.hasjabs}
    decoded = []
    names = slot_names(code)
    line = code.co_firstlineno
    for inst in found:
        line = (inst.positions.lineno if inst.positions is not None else None) or line
        target = position[int(inst.argval)] if inst.opcode in jumps else -1
        argval = argument_of(inst, code, names)
        span = cast(Span, inst.positions) if inst.positions is not None and None not in inst.positions else None
        single = Instruction(inst.opname, inst.opcode, inst.arg or 0, argval, inst.offset, line, target, span=span)
        decoded.append(single)
    for entry in getattr(bytecode, "exception_entries", ()):
        protection = Protection(position[entry.target], entry.depth, entry.lasti)
        for instruction in decoded:
            if entry.start <= instruction.offset < entry.end:
                instruction.protection = protection
    return tuple(decoded)


def may_catch(instructions: Sequence[Instruction], position: int) -> bool:
    """Whether an error there meets a `try` of the function, not only ends of `with` blocks."""
    protection = instructions[position].protection
    while protection is not None:
        first, second = instructions[protection.target : protection.target + 2]
        if first.opname == "PUSH_EXC_INFO" and second.opname != "WITH_EXCEPT_START":
            return True
        protection = first.protection
    return False


@functools.lru_cache(maxsize=4096)
def instructions_of(code: CodeType) -> tuple[Instruction, ...]:
    """The instructions that tracing runs for a frame of the code. A resume function has those of the whole program,
    followed by its own, which end with a jump into the program. `start_of` returns where they begin."""
    point = resume_point(code)
    if point is None:
        return decode(code)
    own = decode(code)[point.prologue :]
    enter = Instruction("JUMP_FORWARD", dis.opmap["JUMP_FORWARD"], 0, None, 0, own[-1].line, point.entry)
    return (*decode(point.origin), *own, enter)


def start_of(code: CodeType) -> int:
    """The position at which a frame of the code starts."""
    point = resume_point(code)
    return 0 if point is None else len(decode(point.origin))


def split(inst: dis.Instruction) -> tuple[dis.Instruction, ...]:
    """An instruction, as two if it combines two."""
    singles = DOUBLED.get(inst.opname)
    if singles is None or inst.arg is None:
        return (inst,)
    args = (inst.arg >> 4, inst.arg & 15)
    return tuple(
        inst._replace(opname=name, opcode=dis.opmap[name], arg=arg, argval=argval)
        for name, arg, argval in zip(singles, args, inst.argval)
    )


def positions_of(code: CodeType, found: list[dis.Instruction]) -> dict[int, int]:
    """Map every byte offset to a position. An offset inside caches or prefixes belongs to the instruction after it."""
    position: dict[int, int] = {}
    following = len(found)
    # a split instruction maps to its first half
    starts = {inst.offset: index for index, inst in reversed([*enumerate(found)])}
    for offset in range(len(code.co_code), -1, -2):
        following = starts.get(offset, following)
        position[offset] = following
    return position


@functools.lru_cache(maxsize=512)
def remade_cells(code: CodeType) -> frozenset[str]:
    """Cells whose slots an inlined comprehension temporarily uses for a variable of its own, as a cell or not."""
    cleared = {str(inst.argval) for inst in decode(code) if inst.opname == "LOAD_FAST_AND_CLEAR"}
    return frozenset(cleared.intersection(code.co_cellvars))


def slot_names(code: CodeType) -> tuple[str, ...] | None:
    """The names of the variables by slot if two slots share a name, else None.

    The variable of an inlined comprehension may have the name of a free variable of the function around it. It gets a
    name that begins with a dot here, which no name of the program does.
    """
    own = (*code.co_varnames, *(name for name in code.co_cellvars if name not in code.co_varnames))
    if not set(own).intersection(code.co_freevars):
        return None
    return (*(f".{name}" if name in code.co_freevars else name for name in own), *code.co_freevars)


def argument_of(inst: dis.Instruction, code: CodeType, names: tuple[str, ...] | None) -> object:
    """Resolve an instruction's argument. names: variable names by slot, where `dis` does not know them."""
    if inst.arg is None:
        return inst.argval
    if inst.opname == "KW_NAMES":  # `dis` does not look it up
        return code.co_consts[inst.arg]
    if names is not None and (inst.opcode in dis.haslocal or inst.opcode in dis.hasfree):
        return names[inst.arg]
    return inst.argval


def loads_method(inst: Instruction) -> bool:
    """Whether an instruction looks up a method in order to call it."""
    return inst.opname == LOADS_METHODS and (inst.opname == "LOAD_METHOD" or bool(inst.arg & 1))
