"""The source expression that a frame under trace is evaluating, found by the columns in its code, and its operands."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator, Mapping
from itertools import islice
from types import CodeType
from typing import TYPE_CHECKING

import attrs
import torch

from armature.breaks.types import FrameSummary, SeenValue
from armature.frame.data import program_of
from armature.trace.base import Value
from armature.trace.bytecode.instructions import Instruction, Span, decode
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.trace.base import FrameView

MOST_VALUES = 8
LONGEST = 160  # characters of a description


def with_columns(summary: FrameSummary, frame: FrameView) -> FrameSummary:
    """The summary with the columns of the expression added; unchanged if the code has no columns."""
    span = span_of(frame)
    if span is None or span[0] != summary.line:
        return summary
    line, end_line, column, end_column = span
    return attrs.evolve(
        summary,
        column=characters(summary.file, line, column),
        end_line=end_line,
        end_column=characters(summary.file, end_line, end_column),
    )


def text_at(summary: FrameSummary) -> str:
    """The source text of a summary's expression, on one line; the whole line if the columns are not known."""
    if summary.column < 0:
        return summary.text
    if summary.end_line == summary.line:
        return linecache.getline(summary.file, summary.line)[summary.column : summary.end_column] or summary.text
    lines = [linecache.getline(summary.file, line) for line in range(summary.line, summary.end_line + 1)]
    lines[-1] = lines[-1][: summary.end_column]
    try:
        text = ast.unparse(ast.parse(f"({''.join(lines)[summary.column :]}\n)", mode="eval"))
    except SyntaxError:  # a statement, or a file that has changed
        return summary.text
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def span_of(frame: FrameView) -> Span | None:
    """The position in the file of the expression that the current instruction belongs to."""
    return frame.instructions[max(frame.position - 1, 0)].span


def characters(file: str, line: int, column: int) -> int:
    """Convert a column in bytes of UTF-8 to one in characters."""
    return len(linecache.getline(file, line).encode()[:column].decode(errors="replace"))


def seen_values(frame: FrameView) -> tuple[SeenValue, ...]:
    """The local variables that the expression names, with descriptions of their values."""
    span = span_of(frame)
    found: dict[str, str] = {}
    for name in _names_in(frame, span):
        value = frame.variables.get(name) or getattr(frame.cells.get(name), "content", None)
        if isinstance(value, Value):
            found.setdefault(name, described(value))
        elif name in frame.lazy:
            found.setdefault(name, f"a {type(frame.lazy[name][0]).__name__}")
    return tuple(SeenValue(name, text) for name, text in islice(found.items(), MOST_VALUES))


def _names_in(frame: FrameView, span: Span | None) -> Iterator[str]:
    """Local variables that are read within the span, or on the line if columns are not known."""
    reads = local_reads(program_of(frame.code))
    first, last = (frame.line, frame.line) if span is None else span[:2]
    for line in range(first, last + 1):
        for inst in reads.get(line, ()):
            here = inst.span
            if span is None or here is None or (span[::2] <= here[::2] and here[1::2] <= span[1::2]):
                yield str(inst.argval)


@functools.lru_cache(maxsize=512)
def local_reads(code: CodeType) -> Mapping[int, list[Instruction]]:
    """The instructions that read local variables, by line."""
    found: dict[int, list[Instruction]] = {}
    for inst in decode(code):
        if inst.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")):
            found.setdefault(inst.line, []).append(inst)
    return found


def described(value: Value) -> str:
    """A description of a value for users: for a tensor its dtype, sizes and device."""
    if isinstance(value, TensorValue):
        return described_tensor(value.fake)
    text = value.describe()
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def described_tensor(tensor: torch.Tensor) -> str:
    """For example `a tensor float32[2, 4] on cpu, requires grad`. A symbolic size is shown by its symbol's name."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    sizes = ", ".join(map(str, tensor.shape))
    grad = ", requires grad" if tensor.requires_grad else ""
    return f"a tensor {dtype}[{sizes}] on {tensor.device}{grad}"
