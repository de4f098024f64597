"""The parts of printing that back ends share: commented lines, index expressions, operations from a table."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import attrs
import torch

from armature.lower.data import Buffer, Load, Op, Store
from armature.lower.index import FloorDiv, Index, Mod, Product, Size, Sum, Var, bounds, linear

OpForm: TypeAlias = str | Callable[[Op, Sequence[str]], str]  # "{0} + {1}", or a function of node and operands


class Lines:
    """Indented lines of text; comments are aligned in one column at the right where there is room."""

    def __init__(self, comment: str = "# ", column: int = 72, indent: str = "    ") -> None:
        self.comment = comment
        self.column = column
        self.step = indent
        self.depth = 0
        self.lines: list[str] = []

    def add(self, text: str = "", note: str = "") -> None:
        """Add one line, or several if the text has line ends; `note` becomes a comment on the first."""
        for number, line in enumerate(text.split("\n")):
            full = self.step * self.depth + line if line else ""
            if note and number == 0:
                full = f"{full.ljust(self.column)}  {self.comment}{note}" if line else f"{self.comment}{note}"
            self.lines.append(full)

    @contextmanager
    def indented(self, opening: str = "", closing: str = "") -> Iterator[None]:
        """`opening`, then deeper lines, then `closing` (each left out when empty)."""
        if opening:
            self.add(opening)
        self.depth += 1
        yield
        self.depth -= 1
        if closing:
            self.add(closing)

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


@attrs.frozen
class IndexPrinter:
    """Prints index expressions. The forms take the printed operands; results are in parentheses where needed.

    floordiv and mod are used when the numerator can't be negative (then C and Python agree), signed_... when it may be.
    short_..., if given, are used when the numerator is not negative and has 31 bits, and the denominator is a number.
    `names` overrides the text of variables and sizes. `number` prints an integer literal.
    """

    floordiv: str = "({0} / {1})"
    mod: str = "({0} % {1})"
    signed_floordiv: str = "floordiv({0}, {1})"
    signed_mod: str = "mod({0}, {1})"
    short_floordiv: str = ""
    short_mod: str = ""
    names: Mapping[Var | Size, str] = attrs.field(factory=dict)
    number: Callable[[int], str] = str

    def print(self, value: Index) -> str:
        """The text of the expression."""
        return PRINTED[type(value)](self, value)

    def named(self, value: Var | Size) -> str:
        """The text of a variable or size."""
        return self.names.get(value, value.name)

    def product(self, value: Product) -> str:
        """The text of a product, in parentheses."""
        return "(" + " * ".join(self.print(factor) for factor in value.factors) + ")"

    def quotient(self, value: FloorDiv | Mod) -> str:
        """The text of a quotient or remainder."""
        return self._form(value).format(self.print(value.num), self.print(value.den))

    def _form(self, value: FloorDiv | Mod) -> str:
        low, high = bounds(value.num)
        plain = low is not None and low >= 0
        divides = isinstance(value, FloorDiv)
        if plain and high is not None and high < 1 << 31 and isinstance(value.den, int):
            short = self.short_floordiv if divides else self.short_mod
            if short:
                return short
        if plain:
            return self.floordiv if divides else self.mod
        return self.signed_floordiv if divides else self.signed_mod

    def sum(self, value: Sum) -> str:
        """The text of a sum, in parentheses."""
        text = ""
        for factor, coefficient in value.terms:
            part = self.print(factor)
            if abs(coefficient) != 1:
                part = f"{self.number(abs(coefficient))} * {part}"
            sign = "-" if coefficient < 0 else "+"
            text = f"{text} {sign} {part}" if text else (f"-{part}" if coefficient < 0 else part)
        if value.const:
            text = f"{text} {'-' if value.const < 0 else '+'} {self.number(abs(value.const))}"
        return f"({text})"

    def address(self, access: Load | Store, buffers: Mapping[str, Buffer]) -> str:
        """Offset in elements from the buffer's data pointer."""
        return self.print(position(access, buffers))


PRINTED: Mapping[type, Callable[[IndexPrinter, Any], str]] = {
    int: lambda printer, value: printer.number(value),
    Var: IndexPrinter.named,
    Size: IndexPrinter.named,
    Sum: IndexPrinter.sum,
    Product: IndexPrinter.product,
    FloorDiv: IndexPrinter.quotient,
    Mod: IndexPrinter.quotient,
}
PYTHON_INDEX = IndexPrinter(
    floordiv="({0} // {1})", mod="({0} % {1})", signed_floordiv="({0} // {1})", signed_mod="({0} % {1})"
)


def position(access: Load | Store, buffers: Mapping[str, Buffer]) -> Index:
    """Offset in elements of the element that a load or store touches, simplified."""
    buffer = buffers[access.buffer]
    return linear(access.index, buffer.strides, buffer.offset)


def print_op(forms: Mapping[str, OpForm], node: Op, operands: Sequence[str]) -> str:
    """An operation by the back end's table. Errors: KeyError if it is missing (lowering checks Features first)."""
    form = forms[node.op]
    return form.format(*operands) if isinstance(form, str) else form(node, operands)


def rounded(value: float, dtype: torch.dtype) -> float:
    """A number as a tensor of the dtype holds it.

    Cached, because making a tensor takes half a millisecond while a graph is recorded with fakes.
    """
    return _rounded(float(value), math.copysign(1.0, value), dtype)


@functools.lru_cache(maxsize=4096)
def _rounded(value: float, sign: float, dtype: torch.dtype) -> float:
    return float(torch.tensor(value, dtype=dtype))  # the sign distinguishes 0.0 from -0.0, which compare equal
