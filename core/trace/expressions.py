"""The expression that a frame under trace is at, by the columns that Python keeps, and the values that it works on."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from itertools import islice
from types import CodeType
from typing import TYPE_CHECKING

import attrs
import torch

from armature.breaks.types import FrameSummary, SeenValue
from armature.trace.values.base import Value
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.trace.values.base import FrameView

MOST_VALUES = 8
LONGEST = 160  # characters of a description

Span = tuple[int, int, int, int]
"""First line, last line, first column and the column after the last, in bytes of UTF-8."""


def with_columns(summary: FrameSummary, frame: FrameView) -> FrameSummary:
    """The summary with the columns of the expression; the summary itself where Python does not know them."""
    span = span_at(frame.code, offset_of(frame))
    if span is None or span[0] != summary.line:
        return summary
    line, end_line, column, end_column = span
    return attrs.evolve(
        summary,
        column=characters(summary.file, line, column),
        end_line=end_line,
        end_column=characters(summary.file, end_line, end_column),
    )


def offset_of(frame: FrameView) -> int:
    """The byte offset of the instruction that runs, or ran last."""
    return frame.instructions[max(frame.position - 1, 0)].offset


def span_at(code: CodeType, offset: int) -> Span | None:
    """Where the expression of an instruction stands in the file; None where that is not known."""
    line, end_line, column, end_column = next(islice(code.co_positions(), offset // 2, None), (None,) * 4)
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return line, end_line, column, end_column


def characters(file: str, line: int, column: int) -> int:
    """A column in bytes of UTF-8 as one in characters."""
    return len(linecache.getline(file, line).encode()[:column].decode(errors="replace"))


def seen_values(frame: FrameView) -> tuple[SeenValue, ...]:
    """The local variables that the expression names, and what they are there."""
    span = span_at(frame.code, offset_of(frame))
    found: dict[str, str] = {}
    for name in _names_in(frame, span):
        value = frame.variables.get(name) or getattr(frame.cells.get(name), "content", None)
        if isinstance(value, Value):
            found.setdefault(name, described(value))
        elif name in frame.lazy:
            found.setdefault(name, f"a {type(frame.lazy[name][0]).__name__}")
    return tuple(SeenValue(name, text) for name, text in islice(found.items(), MOST_VALUES))


def _names_in(frame: FrameView, span: Span | None) -> Iterator[str]:
    """Local variables that are read within the span, or on the line where columns are not known."""
    positions = list(frame.code.co_positions())
    for inst in frame.instructions:
        if not inst.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")) or type(inst.argval) is not str:
            continue
        line, end_line, column, end_column = positions[inst.offset // 2]
        if span is None or None in (line, end_line, column, end_column):
            within = line == frame.line
        else:
            within = span[::2] <= (line, column) and (end_line, end_column) <= span[1::2]
        if within:
            yield inst.argval


def described(value: Value) -> str:
    """A value for people: a tensor with dtype, sizes and device."""
    if isinstance(value, TensorValue):
        return described_tensor(value.fake)
    text = value.describe()
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def described_tensor(tensor: torch.Tensor) -> str:
    """`a tensor float32[2, 4] on cpu, requires grad`; a size that is a symbol has the symbol's name."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    sizes = ", ".join(map(str, tensor.shape))
    grad = ", requires grad" if tensor.requires_grad else ""
    return f"a tensor {dtype}[{sizes}] on {tensor.device}{grad}"
