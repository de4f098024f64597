"""Finds, for a graph break inside loops, the expressions that those loops iterate over, as the program writes them."""

from __future__ import annotations

import ast
import dis
import linecache
import textwrap
from collections.abc import Iterator, Mapping
from types import CodeType

from armature.frame.data import STACK, FrameRequest, resume_point


def iterated(request: FrameRequest) -> Mapping[str, str]:
    """Map the variable that holds a loop's iterator to the expression after `in`. Loops without source code are left
    out."""
    point = resume_point(request.code)
    if point is None:
        return {}
    held = [name for name, value in request.locals.items() if name.startswith(STACK) and isinstance(value, Iterator)]
    held.sort(key=lambda name: int(name.removeprefix(STACK)))
    if point.loops is None:
        point.loops = loops_around(point.origin, point.offset)
    # The stack may hold further iterators, but each is below those of the loops inside its own loop.
    pairs = zip(reversed(held), reversed(point.loops))
    return {name: text for name, text in pairs if text}


def loops_around(code: CodeType, offset: int) -> list[str]:
    """The expression that each loop around an instruction iterates over, outermost first; "" where source code is
    missing."""
    starts = (inst for inst in dis.get_instructions(code) if inst.opname == "FOR_ITER")
    return [expression_of(code, inst) for inst in starts if inst.offset <= offset < inst.argval]


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
