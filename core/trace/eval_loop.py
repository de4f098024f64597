"""The interpreter's main loop: fetch, dispatch, unwind."""

from __future__ import annotations

import dis
import functools
from types import CodeType

from armature.errors import invariant
from armature.frame.data import program_of
from armature.trace.base import LAST_INSTRUCTION, NotConstant, Value
from armature.trace.bytecode.instructions import STOPITERATION_ERROR, Instruction, instructions_of
from armature.trace.errors import UserRaised
from armature.trace.frame_state import Frame, Stopped
from armature.trace.locations import locations_of
from armature.trace.opcodes import OPCODES
from armature.trace.opcodes.table import OpcodeFunction
from armature.trace.opcodes.untraced import reason_for
from armature.trace.values.exception import ExceptionValue, handled_exception

# Instructions whose stack effect depends on the iterated object, or that 3.11 counts on the instruction before (CALL).
UNCHECKED = frozenset({
    "PRECALL", "CALL", "FOR_ITER", "SEND", "RETURN_GENERATOR", "CLEANUP_THROW", "END_FOR", "RETURN_VALUE",
    "RETURN_CONST", "YIELD_VALUE",
})  # fmt: skip


def untraced(frame: Frame, inst: Instruction) -> None:
    """The function for opcodes that are not traced: it breaks the graph."""
    reason = reason_for(inst.opname) or "armature does not know this opcode"
    frame.tracer.graph_break("untraced-opcode", opcode=inst.opname, reason=reason)


@functools.lru_cache(maxsize=4096)
def functions_of(code: CodeType) -> tuple[OpcodeFunction, ...]:
    """The opcode function of each instruction that a frame of the code runs."""
    program, instructions = program_of(code), instructions_of(code)
    own = functions_of(program) if program is not code else ()
    return (*own, *(OPCODES.get(inst.opname, untraced) for inst in instructions[len(own) :]))


def run(frame: Frame) -> None:
    """Run a frame until it returns or yields. Raises UserRaised when an exception of the program leaves it."""
    step = checked_steps if frame.tracer.config.strict else steps
    stop = frame.tracer.stack.stop
    if stop is not None and stop[0] == frame.ordinal:
        step = stopping_steps
    functions = functions_of(frame.code)
    frame.tracer.stack.has_handlers |= bool(program_of(frame.code).co_exceptiontable)
    if frame.thrown is not None:
        error, frame.thrown = frame.thrown, None
        error.known_traceback = None
        if not caught(frame, error):
            raise UserRaised(error)
    while not (frame.done or frame.paused):
        try:
            step(frame, functions)
        except UserRaised as raised:
            if isinstance(raised.value, ExceptionValue):
                note_raised(frame, raised.value)
            if not caught(frame, raised.value):
                raise
        except NotConstant as unknown:
            frame.tracer.graph_break("value-not-known", type=unknown.args[0].describe())


# The instructions that run when an `except` clause does not match.
MATCHING = frozenset({
    "CACHE", "NOP", "PUSH_EXC_INFO", "LOAD_GLOBAL", "LOAD_CONST", "LOAD_FAST", "BUILD_TUPLE", "CHECK_EXC_MATCH",
    "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_IF_FALSE", "JUMP_FORWARD", "COPY", "POP_EXCEPT", "RERAISE", "CLEANUP_THROW",
})  # fmt: skip


def only_matches(inst: Instruction) -> bool:
    """Whether the handler at an instruction only tests `except` clauses that don't match, and so runs no user code."""
    return inst.opname in MATCHING or (inst.opname == "CALL_INTRINSIC_1" and inst.arg == STOPITERATION_ERROR)


def exits_without_user_code(frame: Frame) -> bool:
    """Whether dropping a suspended generator runs nothing but `except` clauses that don't match GeneratorExit. The
    frame is finished afterwards."""
    functions = functions_of(frame.code)
    error: Value = ExceptionValue(GeneratorExit, [])
    frame.push(frame.tracer.constant(None))
    while caught(frame, error):
        try:
            while only_matches(inst := frame.instructions[frame.position]):
                frame.position += 1
                functions[frame.position - 1](frame, inst)
        except UserRaised as later:
            error = later.value
        else:
            return False
    return True


def steps(frame: Frame, functions: tuple[OpcodeFunction, ...]) -> None:
    """Run instructions until the frame returns or yields."""
    instructions = frame.instructions
    while not (frame.done or frame.paused):
        position = frame.position
        frame.position = position + 1
        functions[position](frame, instructions[position])


def checked_steps(frame: Frame, functions: tuple[OpcodeFunction, ...]) -> None:
    """Like `steps`, but verifies after each instruction that the stack has grown as CPython says."""
    instructions = frame.instructions
    while not (frame.done or frame.paused):
        position = frame.position
        inst = instructions[position]
        frame.position = position + 1
        depth = len(frame.stack)
        functions[position](frame, inst)
        if inst.opname in UNCHECKED:
            continue
        grown = len(frame.stack) - depth
        jumped = inst.target >= 0 and frame.position == inst.target
        arg = inst.arg if inst.opcode >= dis.HAVE_ARGUMENT else None
        expected = dis.stack_effect(inst.opcode, arg, jump=jumped)
        invariant(grown == expected, "stack effect", opcode=inst.opname, grown=grown, expected=expected)


def stopping_steps(frame: Frame, functions: tuple[OpcodeFunction, ...]) -> None:
    """Like `steps`, but stops at the moment at which the trace is to end."""
    instructions = frame.instructions
    _, rounds, last = frame.tracer.stack.stop or (0, 0, -1)
    while not (frame.done or frame.paused):
        position = frame.position
        if position == last and frame.rounds == rounds:
            raise Stopped(tuple(frame.tracer.stack.frames))
        frame.position = position + 1
        functions[position](frame, instructions[position])


def note_raised(frame: Frame, error: ExceptionValue) -> None:
    """Record where an exception is first raised, and which exception is being handled there."""
    tracer, inst = frame.tracer, frame.instructions[max(frame.position - 1, 0)]
    if not only_reraises(inst):
        error.known_traceback = None  # its traceback has one more entry now
    if error.raised_at:
        return
    error.raised_at = locations_of(tracer.stack.frames)
    handled = handled_exception(tracer)
    if handled is not None and handled is not error:
        error.attributes.setdefault("__context__", handled)


def only_reraises(inst: Instruction) -> bool:
    """Whether an exception raised by this instruction keeps its traceback as it is."""
    return inst.opname in ("RERAISE", "CLEANUP_THROW") or (inst.opname == "RAISE_VARARGS" and inst.arg == 0)


def caught(frame: Frame, error: Value) -> bool:
    """Jump to the handler that the exception table names for the instruction that raised; False if there is none."""
    protection = frame.instructions[max(frame.position - 1, 0)].protection
    if protection is None:
        return False
    del frame.stack[protection.depth :]
    if protection.push_lasti:
        frame.push(LAST_INSTRUCTION)
    frame.push(error)
    frame.position = protection.target
    return True
