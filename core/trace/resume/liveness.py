"""Which variables of a frame are still read after an instruction."""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Set
from types import CodeType
from typing import TypeVar

from armature.trace.bytecode.instructions import Instruction, decode

State = TypeVar("State")
NO_NEXT = frozenset({
    "RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD",
    "JUMP_BACKWARD_NO_INTERRUPT",
})  # fmt: skip
# Functions and attributes that inspect a frame's variables: if a code names one, all variables are live.
LOOKS_AT_FRAMES = frozenset({
    "locals", "vars", "eval", "exec", "dir", "breakpoint", "_getframe", "currentframe", "stack", "set_trace",
    "f_locals", "embed", "exc_info", "tb_frame", "print_stack", "extract_stack", "super",
})  # fmt: skip
WRITES = frozenset({"STORE_FAST"})
REBINDS = frozenset({"STORE_FAST", "DELETE_FAST"})


def successors(instructions: tuple[Instruction, ...], position: int) -> list[int]:
    """Positions that may run after an instruction, including a handler of its exceptions."""
    inst = instructions[position]
    found = [] if inst.opname in NO_NEXT else [position + 1]
    if inst.target >= 0:
        found.append(inst.target)
    if inst.protection is not None:
        found.append(inst.protection.target)
    return [step for step in found if step < len(instructions)]


def reachable(code: CodeType, entry: int) -> list[int]:
    """The positions that may run from an entry on, in order."""
    instructions = decode(code)
    seen = {entry}
    todo = [entry]
    while todo:
        for step in successors(instructions, todo.pop()):
            if step not in seen:
                seen.add(step)
                todo.append(step)
    return sorted(seen)


def accesses(inst: Instruction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The local variables that an instruction needs bound, and those that it binds."""
    name = inst.opname
    if "_FAST" not in name:
        return (), ()
    if name in WRITES:
        return (), (str(inst.argval),)
    return (str(inst.argval),), ()


def settled(found: list[State], follows: Callable[[int], State]) -> tuple[State, ...]:
    """Solve a data-flow problem: iterate each instruction's result from its successors' until none changes."""
    changed = True
    while changed:
        changed = False
        for position in range(len(found) - 1, -1, -1):
            now = follows(position)
            if now != found[position]:
                found[position] = now
                changed = True
    return tuple(found)


@functools.lru_cache(maxsize=1024)
def live_variables(code: CodeType) -> tuple[frozenset[str], ...]:
    """For each instruction, the local variables whose values may be read from there on."""
    instructions = decode(code)
    live: list[frozenset[str]] = [frozenset()] * len(instructions)

    def follows(position: int) -> frozenset[str]:
        reads, writes = accesses(instructions[position])
        after: frozenset[str] = frozenset().union(*(live[step] for step in successors(instructions, position)))
        now = (after - frozenset(writes)) | frozenset(reads)
        protection = instructions[position].protection  # the exception may come before the variable is written
        return now if protection is None else now | live[protection.target]

    return settled(live, follows)


@functools.lru_cache(maxsize=512)
def names_read(code: CodeType) -> tuple[frozenset[str], ...]:
    """For each instruction, the names of globals and attributes that may be looked up from there on."""
    instructions = decode(code)
    names: list[frozenset[str]] = [frozenset()] * len(instructions)
    found: frozenset[str] = frozenset()
    for position in range(len(instructions) - 1, -1, -1):
        inst = instructions[position]
        if inst.opcode in dis.hasname and inst.argval not in found:
            found |= {str(inst.argval)}
        names[position] = found
    return tuple(names[position] for position in earliest(instructions))


def earliest(instructions: tuple[Instruction, ...]) -> tuple[int, ...]:
    """For each instruction, the first position that may run after it, or its own."""
    first = list(range(len(instructions)))
    return settled(first, lambda here: min((here, *(first[step] for step in successors(instructions, here)))))


def live_at(code: CodeType, position: int) -> frozenset[str]:
    """The live variables at a position where the program resumes; all of them if it inspects frames."""
    if LOOKS_AT_FRAMES.intersection(code.co_names) or "__class__" in code.co_freevars:
        return frozenset(code.co_varnames)
    return live_variables(code)[position]


@functools.lru_cache(maxsize=512)
def deletes_cells(code: CodeType) -> bool:
    """Whether a code object may empty a cell."""
    return any(inst.opname == "DELETE_DEREF" for inst in decode(code))


def read_unbound(code: CodeType, position: int, unbound: frozenset[str]) -> frozenset[str]:
    """The frame's own cells that may be read or deleted while empty, from a position on. unbound: those empty there."""
    if not unbound and not deletes_cells(code):
        return frozenset()
    instructions = decode(code)
    own = frozenset(code.co_cellvars)
    empty = {position: unbound & own}
    found: set[str] = set()
    todo = [position]
    while todo:
        here = todo.pop()
        name, cell = instructions[here].opname, frozenset({str(instructions[here].argval)}) & own
        after = empty[here]
        if name in ("LOAD_DEREF", "DELETE_DEREF"):
            found |= cell & after
        if name == "STORE_DEREF":
            after -= cell
        if name == "DELETE_DEREF":
            after |= cell
        for step in successors(instructions, here):
            now = empty.get(step, frozenset()) | after
            if step not in empty or now != empty[step]:
                empty[step] = now
                todo.append(step)
    return frozenset(found)


def rebound(code: CodeType, position: int, names: Set[str]) -> frozenset[str]:
    """Which of the given variables may be set or deleted from a position on."""
    if not names:
        return frozenset()
    instructions = decode(code)
    found = (instructions[here] for here in reachable(code, position))
    return frozenset(str(inst.argval) for inst in found if inst.opname in REBINDS) & names
