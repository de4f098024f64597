"""What generated code looks like, one property a test."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable

import pytest
import torch

import armature
from armature.codegen.data import KernelSource
from armature.lower.data import Const, IndexValue, Masked, Node, Reduce, Store
from armature.lower.index import Var, add, sub
from armature.pipeline.session import session
from armature.schedule.data import Pass
from armature.testing.kernel_cases import BOOL, F32, I64, Sketch, op, randn
from armature.testing.kernel_shapes import f32, variables
from armature_cpu_cpp.loops import plan_nest
from armature_cpu_cpp.vector import cpp_type, literal

from .conftest import kit_case

Printed = Callable[..., KernelSource]
CPU = torch.device("cpu")


def body(source: KernelSource) -> str:
    """The part functions, without the functions that Python calls."""
    return "\n".join(re.findall(r"^static void .*?^}", source.text, re.M | re.S))


def chain(name: str, rows: int, columns: int) -> Sketch:
    """relu(x + 1) of a matrix."""
    k = Sketch(name, CPU)
    i, j = Var("i0", rows), Var("i1", columns)
    x = k.load(k.buffer("x", F32, (rows, columns)), i, j)
    k.buffer("out", F32, (rows, columns))
    return k.pointwise((i, j), Store("out", (i, j), op("maximum", op("add", x, f32(1.0)), f32(0.0))))


def test_a_contiguous_chain_is_one_loop_over_full_vectors(printed: Printed) -> None:
    text = body(printed(chain("chain_0", 8, 64)))
    assert text.count("full_vectors<N>(0, 512, ") == 1
    assert "for (" not in text and "vectors<N>" in text


def test_statements_bear_the_users_line(printed: Printed) -> None:
    text = body(printed(chain("chain_0", 8, 64)))
    assert re.search(r"tmp1 = tmp0 \+ 1\.0f; +// model\.py:41  y = example\(x\)", text)


def test_functions_that_are_loops_have_a_header_of_their_own_and_kernels_of_vectors(printed: Printed) -> None:
    k = Sketch("sums_0", CPU)
    i = Var("i0", 64)
    x = k.load(k.buffer("x", F32, (64,), randn(64)), i)
    k.buffer("out", F32, (64,))
    source = printed(k.pointwise((i,), Store("out", (i,), op("add", op("igamma", op("abs", x), f32(2.0)), x))))
    assert 'include "armature_series.h"' in source.text
    assert "vectors<N>" in body(source) and "igamma(" in body(source)
    assert "armature_series" not in printed(chain("chain_0", 8, 64)).text


def test_small_kernels_are_serial_and_large_ones_parallel(printed: Printed) -> None:
    assert "parallel(" not in printed(chain("small_0", 8, 64)).text
    assert printed(chain("large_0", 1024, 1024)).text.count("parallel(") == 1


def test_large_kernels_let_other_python_threads_run(printed: Printed) -> None:
    assert "Released others;" in printed(chain("large_0", 1024, 1024)).text
    assert "Released others;" not in printed(chain("small_0", 8, 64)).text


def test_an_odd_length_has_a_tail(printed: Printed) -> None:
    assert "  vectors<N>(0, 77, " in body(printed(chain("odd_0", 7, 11)))


def test_rows_are_reduced_by_vectors_that_take_turns(printed: Printed) -> None:
    k = Sketch("rows_0", CPU)
    i, j = Var("i0", 16), Var("i1", 1024)
    total = Reduce("sum", k.load(k.buffer("x", F32, (16, 1024), randn(16, 1024)), i, j), (j,), F32)
    k.buffer("out", F32, (16,))
    k.finish((i,), (j,), [Pass((total,), (), (Store("out", (i,), total),))])
    text = body(printed(k))
    assert "interleaved<N, 4, NONE>(0, 1024, " in text
    assert "across_sum(red0_acc)" in text


def test_columns_are_reduced_without_joining_lanes(printed: Printed) -> None:
    text = body(printed("columns_wide"))
    assert "across_" not in text
    assert text.index("vectors<N>(") < text.index("for (i64 r0")


@pytest.mark.parametrize("columns", [256, 240, 72])
def test_sums_of_columns_overlap_whatever_is_computed_of_them(columns: int, printed: Printed) -> None:
    def lanes(name: str, *after: str) -> int:
        k = Sketch(name, CPU)
        i, j = Var("i0", columns), Var("i1", 25)
        total = Reduce("sum", k.load(k.buffer("x", F32, (25, columns), randn(25, columns)), j, i), (j,), F32)
        value = functools.reduce(lambda value, each: op(each, value), after, total)
        k.buffer("out", F32, (columns,))
        source = printed(k.finish((i,), (j,), [Pass((total,), (), (Store("out", (i,), value),))]))
        return int(re.findall(r"constexpr int N = (\d+);", body(source))[0])

    one = int(re.findall(r"constexpr int N = (\d+);", body(printed(chain("chain_0", 8, 64))))[0])
    assert lanes("sums_0") == lanes("sums_1", "erf", "exp", "tanh") >= 2 * one


@pytest.mark.parametrize(("channels", "threads", "turned"), [(384, 1, True), (384, 32, False), (64, 1, False)])
def test_a_large_weight_is_read_in_parts_that_fit_a_cache(channels: int, threads: int, turned: bool) -> None:
    """Unless the threads would have too little to share."""
    sketch = kit_case(f"windows_of_{channels}_channels")
    nest = plan_nest(sketch.kernel, sketch.buffers, register_bytes=64, threads=threads)
    sizes = [v.extent for v in nest.outer]
    assert sizes == ([2, 8, 384, 8] if turned else [2, 8, 8, channels]) and nest.vector is not None
    assert nest.vector.extent == channels


def test_softmax_computes_the_exponential_once(printed: Printed) -> None:
    text = body(printed("softmax_rows"))
    assert text.count(" exp(") == 1
    assert text.count("load(l, tmp2_row + r0)") == 1


def test_a_concatenation_is_cut_and_has_no_masks(printed: Printed) -> None:
    text = body(printed("concatenation"))
    assert "_mask" not in text and "load_where" not in text
    assert text.count("vectors<N>(") + text.count("vector<N>(") == 2


def window_in_a_row(size: int) -> Sketch:
    """The maximum of 9 neighbours, as far as they are in the row."""
    k = Sketch(f"window_{size}", CPU)
    (i,) = variables(size)
    k.buffer("x", F32, (size,), randn(size))
    k.buffer("out", F32, (size,))
    items: list[Node] = []
    for step in range(-4, 5):
        place = IndexValue(add(i, step), I64)
        low, high = op("ge", place, Const(0, I64), dtype=BOOL), op("lt", place, Const(size, I64), dtype=BOOL)
        items.append(Masked(op("logical_and", low, high), k.load("x", add(i, step)), f32(-math.inf), F32))
    return k.pointwise((i,), Store("out", (i,), functools.reduce(lambda a, b: op("maximum", a, b), items)))


def test_a_window_has_masks_at_the_borders_only(printed: Printed) -> None:
    left, middle, right = body(printed(window_in_a_row(400))).split("LANES(l, i0)")[1:]
    assert "lanes_from(" in left and "lanes_below(" in right
    assert "_mask" not in middle and middle.count("load(l, ") == 9


def test_a_window_in_a_short_row_is_not_cut(printed: Printed) -> None:
    assert body(printed(window_in_a_row(20))).count("LANES(l, i0)") == 1


def test_padding_outside_of_a_row_is_a_branch(printed: Printed) -> None:
    text = body(printed("padding"))
    assert "load_where" not in text


def test_steps_are_loads_of_whole_registers(printed: Printed) -> None:
    text = body(printed("every_3th_float32"))
    assert "load_steps<3>(l, in0 + " in text and "load_steps_where<3>(l, " in text
    assert "gather" in body(printed("every_5th_float32"))


def test_values_side_by_side_are_stored_together(printed: Printed) -> None:
    for case in ("pairs_37_float32", "pairs_37_turned_float32"):
        text = body(printed(case))
        assert text.count("store_pairs(l, out0 + ") == 1 and "scatter" not in text


def test_rows_picked_by_each_lane_are_gathered_at_once(printed: Printed) -> None:
    text = body(printed("rows_of_a_column_float32"))
    assert "gather_at(" in text and "gather_at_where(" in text
    assert "_lanes" not in text


def test_quotients_of_the_vectors_variable_are_vectors(printed: Printed) -> None:
    text = body(printed("repeats_3_float32"))
    assert "quotient<3>(" in text and "remainder<13>(" in text
    assert "[&](i64 k)" not in text  # nothing is done lane by lane


def test_a_piece_of_one_point_is_not_gathered(printed: Printed) -> None:
    k = Sketch("reflected", CPU)
    (i,) = variables(40)
    x = k.buffer("x", F32, (39,), randn(39))
    k.buffer("out", F32, (40,))
    first = op("lt", IndexValue(i, I64), Const(1, I64), dtype=BOOL)
    early = Masked(first, k.load(x, sub(1, i)), f32(0.0), F32)
    late = Masked(op("logical_not", first), k.load(x, add(i, -1)), f32(0.0), F32)
    text = body(printed(k.pointwise((i,), Store("out", (i,), op("where", first, early, late, dtype=F32)))))
    assert text.count("load(l, ") == 2 and "gather" not in text


def test_rare_backward_reads_do_not_turn_the_loops(printed: Printed) -> None:
    k = Sketch("short_rows", CPU)
    i, j = variables(256, 18)
    x = k.buffer("x", F32, (256, 16), randn(256, 16))
    k.buffer("out", F32, (256, 18))
    number = IndexValue(j, I64)
    early = op("lt", number, Const(1, I64), dtype=BOOL)
    inside = op("lt", number, Const(17, I64), dtype=BOOL)
    tests = early, op("logical_and", op("logical_not", early), inside), op("logical_not", inside)
    places = sub(1, j), add(j, -1), sub(31, j)
    loads = [Masked(t, k.load(x, i, p), f32(0.0), F32) for t, p in zip(tests, places, strict=True)]
    later = op("where", inside, loads[1], loads[2], dtype=F32)
    value = op("exp", op("where", early, loads[0], later, dtype=F32))
    text = body(printed(k.pointwise((i, j), Store("out", (i, j), value))))
    assert "scatter" not in text and "gather" not in text


def test_a_transposing_copy_uses_up_the_lines_it_loads(printed: Printed) -> None:
    text = body(printed("transposed_copy"))
    assert text.index("vectors<N>(") < text.index("for (i64 ")


def turned(rows: int, columns: int) -> Sketch:
    """A copy of a matrix by columns."""
    k = Sketch("turned_0", CPU)
    i, j = Var("i0", rows), Var("i1", columns)
    x = k.load(k.buffer("x", F32, (rows, columns)), i, j)
    k.buffer("out", F32, (columns, rows))
    return k.pointwise((j, i), Store("out", (j, i), x))


@pytest.mark.parametrize(("columns", "way"), [(1000, "gather_steps"), (1024, "scatter")])
def test_lanes_of_a_copy_are_not_in_one_set_of_the_cache(printed: Printed, columns: int, way: str) -> None:
    """Rows of 1024 numbers are 4096 bytes apart. What is along the lines of the other side runs inside."""
    text = body(printed(turned(64, columns)))
    assert [name for name in ("gather_steps", "scatter") if name in text] == [way]
    assert text.index("full_vectors") < text.index("for (")


def test_scatters_are_shared_by_column(printed: Printed) -> None:
    text = printed("scatter_add_float32").text
    assert "atomic" not in text
    assert "store(l, " in text


def test_long_sums_go_through_blocks(printed: Printed) -> None:
    text = printed("sum_of_many").text
    assert "_block += 512" in text
    assert "parallel_reduce(" in text


def test_equal_kernels_give_equal_text(printed: Printed) -> None:
    assert printed("layer_norm", "softmax_rows").text == printed("layer_norm", "softmax_rows").text


def test_layers_that_repeat_share_their_code(printed: Printed) -> None:
    source = printed(chain("first_0", 8, 64), chain("second_1", 8, 64), chain("third_2", 8, 48))
    assert source.text.count("static void part(") == 2
    assert "namespace second_1 = first_0;" in source.text
    assert list(source.kernels) == ["first_0", "second_1", "third_2"]


def test_sizes_are_arguments(printed: Printed) -> None:
    source = printed("symbolic_softmax")
    assert next(iter(source.kernels.values()))[-2:] == ("s0", "s1")
    assert "const i64 s1 = given.integer(3);" in source.text


def distance(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    difference = x - y
    return difference, torch.nn.functional.smooth_l1_loss(x, y)


def test_a_total_takes_along_what_is_kept_of_its_elements() -> None:
    """Threads divide the elements of one total too, so that nothing is gained by storing what it adds up."""
    armature.reset()
    x, y = torch.randn(300, 211), torch.randn(300, 211)
    torch.testing.assert_close(armature.compile(distance)(x, y), distance(x, y))
    (compilation,) = session().compilations
    assert sum(graph.program.kernel_count for graph in compilation.graphs) == 1


def test_lines_that_go_on_after_a_backslash_lose_no_statement() -> None:
    """C++ goes on with a comment after a backslash: the statement below it would be part of the comment."""

    def normed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x.sin() + \
            y.cos()  # fmt: skip
        return z - z.sum(-1, keepdim=True) * \
            z.exp()  # fmt: skip

    x, y = torch.randn(16, 64), torch.randn(16, 64)
    torch.testing.assert_close(armature.compile(normed)(x, y), normed(x, y))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_literals_of_halves_are_their_bits(dtype: torch.dtype) -> None:
    for value in (0.1, -0.0, 0.0, 1 / 3, 7e4, 1e-8, -3.0, math.inf, -math.inf, math.nan):
        bits = int(torch.tensor(value, dtype=dtype).view(torch.int16).item()) & 0xFFFF
        assert literal(value, dtype) == f"{cpp_type(dtype)}{{{bits:#06x}}}"
