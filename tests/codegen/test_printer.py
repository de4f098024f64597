"""Lines, index expressions and operations as text."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from armature.codegen.printer import PYTHON_INDEX, IndexPrinter, Lines, print_op, rounded
from armature.lower.data import Const, Op
from armature.lower.index import Index, Size, Var, add, floordiv, mod, mul, sub

ROW, COLUMN = Var("i", 7), Var("j", 5)


def test_lines_are_indented_and_noted() -> None:
    lines = Lines(column=12)
    with lines.indented("for x:", "end"):
        lines.add("y = x", "model.py:3")
    assert str(lines) == "for x:\n    y = x     # model.py:3\nend\n"


@st.composite
def indices(draw: st.DrawFn, depth: int = 3) -> Index:
    if depth == 0:
        return draw(st.sampled_from((ROW, COLUMN, 1, 3, -2)))
    left, right = draw(indices(depth - 1)), draw(indices(depth - 1))
    kind = draw(st.sampled_from((add, sub, mul, floordiv, mod)))
    return kind(left, draw(st.integers(1, 6))) if kind in (floordiv, mod) else kind(left, right)


@given(indices(), st.integers(0, 6), st.integers(0, 4))
def test_python_text_computes_the_index(index: Index, i: int, j: int) -> None:
    assert eval(PYTHON_INDEX.print(index), {"i": i, "j": j}) == evaluate(index, {ROW: i, COLUMN: j})


def evaluate(index: Index, values: dict[Var, int]) -> int:
    from_names = {var.name: value for var, value in values.items()}
    return int(eval(str(index), from_names))


def test_cpp_uses_short_forms_only_where_the_number_is_not_negative() -> None:
    assert IndexPrinter().print(floordiv(ROW, 2)) == "(i / 2)"
    steps = Size("s0", 4, low=-8)
    assert IndexPrinter().print(floordiv(add(ROW, steps), 2)) == "floordiv((i + s0), 2)"
    assert IndexPrinter().print(mod(add(ROW, steps), 2)) == "mod((i + s0), 2)"


def test_quotients_of_few_bits_have_forms_of_their_own() -> None:
    printer = IndexPrinter(short_floordiv="u32({0}) / {1}u", short_mod="u32({0}) % {1}u")
    assert printer.print(floordiv(mul(ROW, 2), 3)) == "u32((2 * i)) / 3u"
    assert printer.print(mod(ROW, 3)) == "u32(i) % 3u"
    wide, size = Var("i", 1 << 31), Size("s0", 4)
    assert printer.print(floordiv(wide, 3)) == "u32(i) / 3u"
    assert printer.print(floordiv(Var("i", (1 << 31) + 1), 3)) == "(i / 3)"
    assert printer.print(floordiv(ROW, size)) == "(i / s0)"
    assert printer.print(floordiv(Var("i", size), 3)) == "(i / 3)"


def test_names_and_numbers_can_be_replaced() -> None:
    printer = IndexPrinter(names={ROW: "row"}, number=lambda n: f"{n}L")
    assert printer.print(add(mul(ROW, 4), 3)) == "(4L * row + 3L)"
    assert printer.print(mul(Size("s0", 8), COLUMN)) == "(j * s0)"


def test_operations_come_from_the_table() -> None:
    forms = {"add": "{0} + {1}", "neg": lambda node, given: f"-{given[0]}:{node.dtype}"}
    zero = Const(0.0, torch.float32)
    assert print_op(forms, Op("add", (zero, zero), torch.float32), ("a", "b")) == "a + b"
    assert print_op(forms, Op("neg", (zero,), torch.float32), ("a",)) == "-a:torch.float32"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_constants_are_those_that_a_tensor_holds(dtype: torch.dtype) -> None:
    for value in (0.1, -0.0, 0.0, -0.0, 1 / 3, 65519, 7e4, 1e-8, -3, True, math.inf, -math.inf):
        found, held = rounded(value, dtype), torch.tensor(value, dtype=dtype).item()
        assert found == held and math.copysign(1, found) == math.copysign(1, held)
    assert math.isnan(rounded(math.nan, dtype))
