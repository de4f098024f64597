"""Decoded code: instructions with resolved arguments, jump targets as positions, and the exception table."""

from __future__ import annotations

import dis
import functools
from types import CodeType

import attrs


@attrs.frozen
class Protection:
    """What an entry of the exception table says for an instruction: where to go, and how to trim the stack first."""

    target: int  # position of the handler's first instruction
    depth: int
    push_lasti: bool


@attrs.define(eq=False)
class Instruction:
    """One instruction. `target`: position of the instruction jumped to, -1 without a jump."""

    opname: str
    opcode: int
    arg: int
    argval: object
    offset: int
    line: int
    target: int = -1
    protection: Protection | None = None


@functools.lru_cache(maxsize=4096)
def decode(code: CodeType) -> tuple[Instruction, ...]:
    """The instructions of a code object, without caches and prefixes. Kept: the same code is decoded once."""
    bytecode = dis.Bytecode(code)
    found = [inst for inst in bytecode if inst.opname not in ("CACHE", "EXTENDED_ARG")]
    position = positions_of(code, found)
    jumps = {*dis.hasjrel, *dis.hasjabs}
    decoded = []
    line = code.co_firstlineno
    for inst in found:
        line = (inst.positions.lineno if inst.positions is not None else None) or line
        target = position[int(inst.argval)] if inst.opcode in jumps else -1
        decoded.append(Instruction(inst.opname, inst.opcode, inst.arg or 0, inst.argval, inst.offset, line, target))
    for entry in getattr(bytecode, "exception_entries", ()):
        protection = Protection(position[entry.target], entry.depth, entry.lasti)
        for instruction in decoded:
            if entry.start <= instruction.offset < entry.end:
                instruction.protection = protection
    return tuple(decoded)


def positions_of(code: CodeType, found: list[dis.Instruction]) -> dict[int, int]:
    """Byte offset to position, for every offset: one inside caches or prefixes belongs to the instruction after it."""
    position: dict[int, int] = {}
    following = len(found)
    starts = {inst.offset: index for index, inst in enumerate(found)}
    for offset in range(len(code.co_code), -1, -2):
        following = starts.get(offset, following)
        position[offset] = following
    return position
