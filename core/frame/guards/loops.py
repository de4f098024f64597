"""Finds, for a graph break inside loops, what those loops iterate over, as the program writes it, and what each round
sets; and what the break has given, if its size depends on values."""

from __future__ import annotations

import ast
import dis
import linecache
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType

from armature.frame.data import STACK, FrameRequest, Loop, Path, ResumePoint, resume_point


def iterated(request: FrameRequest) -> Mapping[str, str]:
    """Map the variable that holds a loop's iterator to the expression after `in`. Loops without source code are left
    out."""
    return {name: loop.expression for name, loop in resumed_in(request).items() if loop.expression}


def resumed_in(request: FrameRequest) -> Mapping[str, Loop]:
    """The loops that a frame resumes in, by the variable that holds the iterator; none for other frames."""
    point = resume_point(request.code)
    if point is None:
        return {}
    held = [name for name, value in request.locals.items() if name.startswith(STACK) and isinstance(value, Iterator)]
    held.sort(key=lambda name: int(name.removeprefix(STACK)))
    if point.loops is None:
        point.loops = loops_around(point.origin, point.offset)
    # The stack may hold further iterators, but each is below those of the loops inside its own loop.
    return dict(zip(reversed(held), reversed(point.loops)))


def sized_by_values(request: FrameRequest) -> str:
    """The variable with the result of the operator at which the graph broke, if its first size depends on values; else
    ""."""
    point = resume_point(request.code)
    if point is None:
        return ""
    if point.sized is None:
        point.sized = _sized_at(point, [name for name in request.locals if name.startswith(STACK)])
    return point.sized


def _sized_at(point: ResumePoint, held: Sequence[str]) -> str:
    table = point.table()
    if table is None or not table.sized:
        return ""
    before = [inst for inst in dis.get_instructions(point.origin) if inst.offset < point.offset]
    name = max(held, key=lambda each: int(each.removeprefix(STACK)), default="")  # the topmost
    if before and before[-1].opname == "STORE_FAST":
        name = str(before.pop().argval)
    if not before or (point.origin, before[-1].offset) not in table.sized:
        return ""
    other_axis = before[-1].opname == "BINARY_SUBSCR" and before[-2].opname == "BUILD_TUPLE"  # x[:, mask]
    return "" if other_axis else name


def loops_around(code: CodeType, offset: int) -> list[Loop]:
    """The loops around an instruction, outermost first."""
    every = list(dis.get_instructions(code))
    return [
        Loop(expression_of(code, inst), tuple(_targets(every[place + 1 :])))
        for place, inst in enumerate(every)
        if inst.opname == "FOR_ITER" and inst.offset <= offset < inst.argval
    ]


def _targets(after: Sequence[dis.Instruction]) -> Iterator[tuple[str, Path]]:
    """The variables that the instructions after FOR_ITER set, up to a target that is no local variable."""
    stack: list[Path] = [()]
    for inst in after:
        if inst.opname == "UNPACK_SEQUENCE":
            path = stack.pop()
            stack += [(*path, item) for item in reversed(range(inst.argval))]
        elif inst.opname in ("STORE_FAST", "STORE_FAST_STORE_FAST"):
            names = (inst.argval,) if isinstance(inst.argval, str) else inst.argval
            yield from ((name, stack.pop()) for name in names)
        else:
            return
        if not stack:
            return


def expression_of(code: CodeType, inst: dis.Instruction) -> str:
    """The expression that a loop iterates over. Python 3.11 records the position of the whole loop; later versions
    record that of the expression itself."""
    where = inst.positions
    if where is None or None in (where.lineno, where.end_lineno, where.col_offset, where.end_col_offset):
        return ""
    lines = [line.encode() for line in linecache.getlines(code.co_filename)]
    found = lines[(where.lineno or 1) - 1 : where.end_lineno]
    if not found:
        return ""
    found[-1] = found[-1][: where.end_col_offset]
    found[0] = b" " * (where.col_offset or 0) + found[0][where.col_offset :]
    text = textwrap.dedent(b"".join(found).decode(errors="replace")).strip()
    try:
        parsed = ast.parse(text).body[0]
    except (SyntaxError, IndexError):  # the file has changed since it was loaded
        return ""
    if isinstance(parsed, (ast.For, ast.AsyncFor)):
        return ast.unparse(parsed.iter)
    if isinstance(parsed, ast.Expr) and isinstance(parsed.value, (ast.ListComp, ast.SetComp, ast.DictComp)):
        return ast.unparse(parsed.value.generators[0].iter)
    return text
