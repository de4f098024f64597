"""Functions that continue in the middle of a frame.

Tracing reads the program's instructions itself, so a resume function contains none of them. A copy of those that may
still run is made when a resume function runs in eager mode; it has the program's lines and exception handlers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from types import CodeType
from weakref import ref

from bytecode import Instr, Label
from bytecode.instr import FreeVar, TryBegin, TryEnd

from armature.frame.data import ResumePoint, ResumeTable
from armature.frame.trampoline import Continue
from armature.torch_abi.eval_frame import skip_code
from armature.trace.bytecode.instructions import Protection, decode, remade_cells
from armature.trace.resume.frame_writer import CannotResume, FrameWriter, copies
from armature.trace.resume.liveness import NO_NEXT, names_read, reachable
from armature.trace.resume.stack_layout import Layout, kinds, variables_of

MAX_CODES = 256  # pieces made for one code object and its callees
# Python 3.13 runs the callees of these in its own loop, and looks for the handler one instruction before them.
INLINED = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW", "BINARY_SUBSCR", "LOAD_ATTR", "FOR_ITER", "SEND"})


def resume_code(
    table: ResumeTable, program: CodeType, entry: int, names: tuple[str, ...], layout: Layout
) -> tuple[CodeType, Hashable]:
    """The code of the function that resumes at `entry` with these variables bound and this stack. Also returns its
    key in the table. Raises CannotResume."""
    origin = table.copy_of(program)
    key = ("resume", id(origin), entry, names, kinds(layout))
    held = table.codes.get(key)
    if held is not None:
        return held, key
    if len(table.codes) >= MAX_CODES:
        raise CannotResume(f"{MAX_CODES} pieces of it were compiled already")
    arguments = [*names, *variables_of(layout)]
    first = decode(origin)[entry]
    qualname = f"{origin.co_qualname} (resumed at line {first.line})"
    write = functools.partial(eager_resume_code, origin, entry, layout, arguments, qualname)
    point = ResumePoint(origin, entry, 0, ref(table), write, names_read(origin)[entry], first.offset)
    out = writer_at(origin, entry)
    free = out.begin()
    hand_over(out, point, arguments, free)
    point.prologue = sum(isinstance(item, Instr) for item in out.items)
    out.open_cells()
    out.push_stack(layout)
    out.emit("NOP")
    made = out.assemble(arguments, free, qualname)
    made = table.codes[key] = made.replace(co_consts=(*made.co_consts, point))
    return made, key


def writer_at(origin: CodeType, position: int) -> FrameWriter:
    """A writer for frames that resume at a position."""
    out = FrameWriter(origin, remade_cells(origin))
    out.location = copies(origin)[position].location
    return out


def hand_over(out: FrameWriter, point: ResumePoint, arguments: list[str], free: list[str]) -> None:
    """Write the eager path: the loop that calls resume functions calls the copy of the program instead."""

    def load_whole() -> None:
        out.null_function(point.eager_code)
        out.call(0)

    hand_back(out, lambda: out.make(load_whole, [FreeVar(name) for name in free]), arguments)


def hand_back(out: FrameWriter, load: Callable[[], None], arguments: list[str]) -> None:
    """Return to the calling loop: the function that `load` pushes, with arguments, is to be called next."""
    out.null_function(Continue)
    load()
    out.emit("BUILD_TUPLE", out.move(arguments))
    out.emit("BUILD_TUPLE", 2)
    out.call(1)
    out.emit("RETURN_VALUE")


def eager_resume_code(origin: CodeType, entry: int, layout: Layout, arguments: list[str], qualname: str) -> CodeType:
    """The code of a resume function that runs in eager mode."""
    out = writer_at(origin, entry)
    free = out.begin()
    out.open_cells()
    out.push_stack(layout)
    labels: dict[int, Label] = {}
    out.emit("JUMP_FORWARD", label_of(labels, entry))
    copy_all(out, reachable(origin, entry), labels)
    made = out.assemble(arguments, free, qualname)
    skip_code(made)
    return made


skip_code(ResumePoint.eager_code.__code__, below=True)


def label_of(labels: dict[int, Label], position: int) -> Label:
    """The label at a position, made on first use."""
    return labels.setdefault(position, Label())


def copy_all(out: FrameWriter, kept: Sequence[int], labels: dict[int, Label]) -> None:
    """Copy instructions with their jumps and handlers. Those that they leave for get labels, to be placed behind."""
    instructions, inside = decode(out.origin), frozenset(kept)
    for position in kept:
        inst = instructions[position]
        for target in (inst.target, inst.protection.target if inst.protection is not None else -1):
            if target >= 0:
                label_of(labels, target)
    region: Protection | None = None
    begin: TryBegin | None = None
    for position in kept:
        inst = instructions[position]
        enters = inst.protection != region
        if enters or position in labels:
            if begin is not None:
                out.items.append(TryEnd(begin))
                begin = None
            region = inst.protection
        if position in labels:
            out.items.append(labels[position])
        if region is not None and begin is None:
            begin = TryBegin(label_of(labels, region.target), region.push_lasti, region.depth)
            out.items.append(begin)
            if enters and inst.opname in INLINED:
                out.emit("NOP")
        if inst.target < 0:
            out.copy(position)
        elif inst.target in inside:
            out.copy(position, labels[inst.target])
        else:
            out.emit(inst.opname.replace("_BACKWARD", "_FORWARD"), labels[inst.target])
        if position + 1 not in inside and inst.opname not in NO_NEXT:
            out.emit("JUMP_FORWARD", label_of(labels, position + 1))
    if begin is not None:
        out.items.append(TryEnd(begin))
