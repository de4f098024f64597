"""Hand-built kernels that gather, mask, scatter, or have sizes that are only known at run time."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from armature.lower.data import Const, IndexValue, Masked, Node, Reduce, Store
from armature.lower.features import Features
from armature.lower.index import Var, add, floordiv, mod, mul
from armature.schedule.data import Pass
from armature.testing.kernel_cases import (
    BF16,
    BOOL,
    F32,
    F64,
    I32,
    I64,
    Case,
    Sketch,
    Skip,
    cast,
    op,
    randn,
)  # fmt: skip
from armature.testing.kernel_shapes import case, f32, variables

ACCESS_CASES: list[Case] = []  # filled by this module, and read by backend_kit only

# Gathers, masks and scatters.


def _of_dtype(group: str, name: str, dtype: torch.dtype, draw: Callable[[Sketch], Sketch]) -> Case:
    """A case for back ends that have the dtype."""
    full_name = f"{name}_{str(dtype).removeprefix('torch.')}"

    def make(device: torch.device, features: Features) -> Sketch:
        if dtype not in features.dtypes:
            raise Skip
        return draw(Sketch(full_name, device))

    return Case(group, full_name, make)


def _embedding(name: str, bad: int | None = None) -> Case:
    def make(device: torch.device, features: Features) -> Sketch:
        if not features.check_index:
            raise Skip
        k = Sketch(name, device)
        i, j = variables(23, 40)
        rows = randn(23, dtype=I64).abs()
        rows[11] = 3 if bad is None else bad
        k.buffer("ids", I64, (23,), rows)
        k.buffer("table", F32, (30, 40), randn(30, 40))
        row = Var("row", 30)
        place = op("check_index", k.load("ids", i), Const(30, I64), dtype=I64)
        k.buffer("out", F32, (23, 40))
        k.raises = None if bad is None else IndexError
        value = k.load("table", row, j, indirect=[(row, place)])
        return k.pointwise((i, j), Store("out", (i, j), op("mul", value, f32(2.0))))

    return Case("gathers" if bad is None else "gathers out of range", name, make)


ACCESS_CASES += [
    _embedding("embedding"),
    _embedding("embedding_out_of_range", bad=31),
    _embedding("embedding_before_the_first", bad=-1),
]


@case("gathers", ACCESS_CASES)
def gather_along_the_last(device: torch.device, features: Features) -> Sketch:
    """Each lane reads its own position."""
    k = Sketch("gather_along_the_last", device)
    i, j = variables(5, 38)
    k.buffer("ids", I64, (5, 38), randn(5, 38, dtype=I64).abs())
    k.buffer("x", F32, (5, 20), randn(5, 20))
    column = Var("column", 20)
    place = op("check_index", k.load("ids", i, j), Const(20, I64), dtype=I64)
    k.buffer("out", F32, (5, 38))
    return k.pointwise((i, j), Store("out", (i, j), k.load("x", i, column, indirect=[(column, place)])))


def _steps(step: int, dtype: torch.dtype) -> Case:
    """Neighbours read every so many elements, and the last element in memory."""

    def draw(k: Sketch) -> Sketch:
        i, j = variables(3, 45)
        k.buffer("x", dtype, (3, 45 * step), randn(3, 45 * step, dtype=dtype))
        k.buffer("out", dtype, (3, 45))
        k.buffer("inside", dtype, (3, 45))
        value = k.load("x", i, mul(j, step))
        # The last element in memory is read as well, and none behind it.
        last = k.load("x", i, add(mul(j, step), step - 1))
        here = op("lt", IndexValue(add(j, i), I64), Const(41, I64), dtype=BOOL)
        kept = Masked(here, last, Const(0, dtype), dtype)
        return k.pointwise((i, j), Store("out", (i, j), value), Store("inside", (i, j), kept))

    return _of_dtype("steps", f"every_{step}th", dtype, draw)


ACCESS_CASES += [_steps(step, F32) for step in (2, 3, 4, 5)] + [_steps(2, dtype) for dtype in (F64, I64, BOOL, BF16)]
ACCESS_CASES += [_steps(7, dtype) for dtype in (F64, I64, BOOL, BF16)]


def _pairs(size: int, dtype: torch.dtype, last: int = 1) -> Case:
    """Two values side by side, as the parts of complex numbers are; last: the place of what is stored last."""

    def draw(k: Sketch) -> Sketch:
        i, j = variables(5, size)
        k.buffer("x", dtype, (5, size), randn(5, size, dtype=dtype))
        k.buffer("y", dtype, (5, size), randn(5, size, dtype=dtype))
        k.buffer("out", dtype, (5, size, 2))
        first, second = (
            Store("out", (i, j, place), k.load(name, i, j)) for place, name in ((1 - last, "x"), (last, "y"))
        )
        return k.pointwise((i, j), first, second)

    return _of_dtype("pairs", f"pairs_{size}" + ("" if last else "_turned"), dtype, draw)


ACCESS_CASES += [_pairs(size, dtype) for size in (3, 37, 64) for dtype in (F32, F64, BF16)]
ACCESS_CASES += [_pairs(37, dtype) for dtype in (I64, BOOL)] + [_pairs(37, F32, last=0)]


def _repeats(times: int, dtype: torch.dtype) -> Case:
    """Neighbours read at quotients and remainders of their number, which are values too."""

    def draw(k: Sketch) -> Sketch:
        i, j = variables(5, 13 * times)
        k.buffer("x", dtype, (5, 13), randn(5, 13, dtype=dtype))
        k.buffer("out", dtype, (5, 13 * times))
        k.buffer("some", dtype, (5, 13 * times))
        k.buffer("numbers", I64, (5, 13 * times))
        row = mod(add(mul(i, 3), j), 5)
        here = op("gt", k.load("x", i, floordiv(j, times)), Const(0, dtype), dtype=BOOL)
        kept = Masked(here, k.load("x", row, mod(mul(j, 4), 13)), Const(0, dtype), dtype)
        return k.pointwise(
            (i, j),
            Store("out", (i, j), k.load("x", i, floordiv(j, times))),
            Store("some", (i, j), kept),
            Store("numbers", (i, j), IndexValue(add(mul(floordiv(j, times), 2), mul(row, -1)), I64)),
        )

    return _of_dtype("gathers", f"repeats_{times}", dtype, draw)


ACCESS_CASES += [_repeats(times, F32) for times in (2, 3, 7)] + [_repeats(3, dtype) for dtype in (F64, I64, BF16)]


def _rows_of_a_column(dtype: torch.dtype) -> Case:
    """Neighbours read one column of rows of their own, some of them nothing."""

    def draw(k: Sketch) -> Sketch:
        (j,) = variables(45)
        k.buffer("ids", I64, (45,), randn(45, dtype=I64).abs() % 9)
        k.buffer("x", dtype, (9, 5), randn(9, 5, dtype=dtype))
        k.buffer("out", dtype, (45,))
        k.buffer("some", dtype, (45,))
        row = Var("row", 9)
        value = k.load("x", row, 2, indirect=[(row, k.load("ids", j))])
        here = op("gt", k.load("ids", j), Const(1, I64), dtype=BOOL)
        kept = Masked(here, k.load("x", row, 3, indirect=[(row, k.load("ids", j))]), Const(0, dtype), dtype)
        return k.pointwise((j,), Store("out", (j,), value), Store("some", (j,), kept))

    return _of_dtype("gathers", "rows_of_a_column", dtype, draw)


ACCESS_CASES += [_rows_of_a_column(dtype) for dtype in (F32, F64, I64, BOOL, BF16)]


@case("gathers", ACCESS_CASES)
def loss_of_picked_rows(device: torch.device, features: Features) -> Sketch:
    """Negative log likelihood: a gather inside a reduction."""
    k = Sketch("loss_of_picked_rows", device)
    (i,) = variables(50)
    k.buffer("ids", I64, (50,), randn(50, dtype=I64).abs())
    k.buffer("x", F32, (50, 10), randn(50, 10))
    column = Var("column", 10)
    place = op("check_index", k.load("ids", i), Const(10, I64), dtype=I64)
    value = op("neg", k.load("x", i, column, indirect=[(column, place)]))
    total = Reduce("sum", value, (i,), F32)
    k.buffer("out", F32, ())
    return k.finish((), (i,), [Pass((total,), (), (Store("out", (), total),))])


@case("gathers", ACCESS_CASES)
def padding(device: torch.device, features: Features) -> Sketch:
    """Loads outside the buffer must not be made."""
    k = Sketch("padding", device)
    i, j = variables(9, 46)
    k.buffer("x", F32, (7, 42), randn(7, 42))

    def within(v: Var, size: int, shift: int) -> Node:
        place = IndexValue(add(v, -shift), I64)
        low = op("ge", place, Const(0, I64), dtype=BOOL)
        return op("logical_and", low, op("lt", place, Const(size, I64), dtype=BOOL))

    cond = op("logical_and", within(i, 7, 1), within(j, 42, 2))
    value = Masked(cond, k.load("x", add(i, -1), add(j, -2)), f32(-1.0), F32)
    k.buffer("out", F32, (9, 46))
    return k.pointwise((i, j), Store("out", (i, j), op("add", value, f32(0.5))))


@case("gathers", ACCESS_CASES)
def concatenation(device: torch.device, features: Features) -> Sketch:
    k = Sketch("concatenation", device)
    i, j = variables(4, 50)
    k.buffer("x", F32, (4, 21), randn(4, 21))
    k.buffer("y", F32, (4, 29), randn(4, 29))
    left = op("lt", IndexValue(j, I64), Const(21, I64), dtype=BOOL)
    right = op("ge", IndexValue(j, I64), Const(21, I64), dtype=BOOL)
    first = Masked(left, k.load("x", i, j), f32(0.0), F32)
    second = Masked(right, op("exp", k.load("y", i, add(j, -21))), f32(0.0), F32)
    k.buffer("out", F32, (4, 50))
    return k.pointwise((i, j), Store("out", (i, j), op("where", left, first, second, dtype=F32)))


@case("gathers", ACCESS_CASES)
def shifted_window_sum(device: torch.device, features: Features) -> Sketch:
    """A pooling window with padding inside a reduction."""
    k = Sketch("shifted_window_sum", device)
    (i,) = variables(37)
    (r,) = variables(3, prefix="r")
    k.buffer("x", F32, (37,), randn(37))
    place = add(i, r, -1)
    low = op("ge", IndexValue(place, I64), Const(0, I64), dtype=BOOL)
    cond = op("logical_and", low, op("lt", IndexValue(place, I64), Const(37, I64), dtype=BOOL))
    total = Reduce("max", Masked(cond, k.load("x", place), f32(-math.inf), F32), (r,), F32)
    k.buffer("out", F32, (37,))
    return k.finish((i,), (r,), [Pass((total,), (), (Store("out", (i,), total),))])


def _scatter(dtype: torch.dtype, combine: str = "sum") -> Case:
    kind = "add" if combine == "sum" else combine
    name = f"scatter_{kind}_{str(dtype).removeprefix('torch.')}"

    def make(device: torch.device, features: Features) -> Sketch:
        if dtype not in features.atomic_add or combine not in {"sum", *features.combining}:
            raise Skip
        k = Sketch(name, device)
        i, j = variables(64, 40)
        k.buffer("ids", I64, (64,), randn(64, dtype=I64).abs())
        k.buffer("grad", dtype, (64, 40), randn(64, 40, dtype=dtype))
        k.buffer("out", dtype, (10, 40), randn(10, 40, dtype=dtype))
        row = Var("row", 10)
        place = op("check_index", k.load("ids", i), Const(10, I64), dtype=I64)
        k.tolerance["out"] = 1e-5
        return k.pointwise((i, j), Store("out", (row, j), k.load("grad", i, j), True, ((row, place),), combine))

    return Case("scatters", name, make)


ACCESS_CASES += [_scatter(dtype) for dtype in (F32, F64, I32, I64)]
ACCESS_CASES += [_scatter(dtype, combine) for dtype in (F32, I64) for combine in ("max", "min", "prod")]


def _rows_to_add_to(k: Sketch, count: int, i: Var) -> tuple[tuple[Var], tuple[tuple[Var, Node]]]:
    """Buffers of `count` numbers to add to ten rows, and, for a store, the row that the number `i` is added to."""
    k.buffer("ids", I64, (count,), randn(count, dtype=I64).abs())
    k.buffer("grad", F32, (count,), randn(count))
    k.buffer("out", F32, (10,), randn(10))
    k.tolerance["out"] = 1e-4
    row = Var("row", 10)
    return (row,), ((row, op("check_index", k.load("ids", i), Const(10, I64), dtype=I64)),)


def _scatter_of_single_values(combine: str) -> Case:
    name = f"scatter_{combine}_of_single_values"

    def make(device: torch.device, features: Features) -> Sketch:
        if F32 not in features.atomic_add or combine not in {"sum", *features.combining}:
            raise Skip
        k = Sketch(name, device)
        (i,) = variables(333)
        index, rows = _rows_to_add_to(k, 333, i)
        return k.pointwise((i,), Store("out", index, k.load("grad", i), True, rows, combine))

    return Case("scatters", name, make)


ACCESS_CASES += [_scatter_of_single_values(combine) for combine in ("sum", "max", "min", "prod")]


@case("scatters", ACCESS_CASES)
def the_same_added_often(device: torch.device, features: Features) -> Sketch:
    """Along the last axis neither the position nor the added value changes."""
    if F32 not in features.atomic_add:
        raise Skip
    k = Sketch("the_same_added_often", device)
    i, j = variables(6, 37)
    index, rows = _rows_to_add_to(k, 6, i)
    return k.pointwise((i, j), Store("out", index, k.load("grad", i), True, rows))


def _sums_across_rows(dtype: torch.dtype, width: int, planes: int) -> Case:
    """Sums across 3 x 8 rows of each plane, in three parts, beside each row's own: of what is read, and of the result.
    What lies in their memory before does not count."""
    name = f"sums_across_{planes}_x_24_rows_of_{width}_{str(dtype).removeprefix('torch.')}"

    def make(device: torch.device, features: Features) -> Sketch:
        if features.across is None or width > features.across.most or dtype not in features.dtypes:
            raise Skip
        k = Sketch(name, device)
        plane, part, row, j = outer_and_inner = variables(planes, 3, 8, width)
        whole, parts = (planes, 24, width), (planes, 3, width)
        place, sum_place = (plane, add(mul(part, 8), row), j), (plane, part, j)
        k.buffer("x", dtype, whole, randn(*whole))
        k.buffer("y", dtype, whole, randn(*whole, seed=1))
        k.buffer("out", dtype, whole)
        k.buffer("read", F32, parts, randn(*parts))
        k.buffer("made", F32, parts, randn(*parts))
        x, y = cast(k.load("x", *place), F32), cast(k.load("y", *place), F32)
        total = Reduce("sum", op("mul", x, y), (j,), F32)
        result = op("sub", x, op("mul", y, total))
        first = Pass((total,), (Store("read", sum_place, y, True),), ())
        stores = (Store("out", place, cast(result, dtype)), Store("made", sum_place, result, True))
        k.tolerance |= {"read": 1e-5, "made": 1e-4, "out": 1e-4 if dtype == F32 else 2e-2}
        return k.finish(outer_and_inner[:3], (j,), [first, Pass((), stores, ())], sums=("read", "made"))

    return Case("sums across rows", name, make)


ACCESS_CASES += [
    _sums_across_rows(*each) for each in ((F32, 37, 2), (F32, 256, 4), (BF16, 64, 2), (F32, 5, 3), (BF16, 600, 2))
]


# Symbolic sizes.


@case("symbolic", ACCESS_CASES)
def symbolic_rows(device: torch.device, features: Features) -> Sketch:
    if not features.symbolic_sizes:
        raise Skip
    k = Sketch("symbolic_rows", device)
    n = k.size("s0", 13)
    i, j = variables(n, 37)
    x = k.load(k.buffer("x", F32, (n, 37), randn(13, 37)), i, j)
    k.buffer("out", F32, (n, 37))
    scale = IndexValue(n, F32)
    return k.pointwise((i, j), Store("out", (i, j), op("mul", x, scale)))


@case("symbolic", ACCESS_CASES)
def symbolic_softmax(device: torch.device, features: Features) -> Sketch:
    if not features.symbolic_sizes:
        raise Skip
    k = Sketch("symbolic_softmax", device)
    n, m = k.size("s0", 6), k.size("s1", 53)
    i, j = variables(n, m)
    x = k.load(k.buffer("x", F32, (n, m), randn(6, 53)), i, j)
    top = Reduce("max", x, (j,), F32)
    power = op("exp", op("sub", x, top))
    total = Reduce("sum", power, (j,), F32)
    k.buffer("out", F32, (n, m))
    store = Store("out", (i, j), op("div", power, total))
    return k.finish((i,), (j,), [Pass((top,), (), ()), Pass((total,), (), ()), Pass((), (store,), ())])


@case("symbolic", ACCESS_CASES)
def symbolic_transpose(device: torch.device, features: Features) -> Sketch:
    if not features.symbolic_sizes:
        raise Skip
    k = Sketch("symbolic_transpose", device)
    n = k.size("s0", 18)
    i, j = variables(21, n)
    x = k.load(k.buffer("x", F32, (n, 21), randn(18, 21)), j, i)
    k.buffer("out", F32, (21, n))
    return k.pointwise((i, j), Store("out", (i, j), x))


# Random numbers.


def _random_numbers(name: str, rows: int, columns: int, vector: int) -> Case:
    """The sum of each row's numbers, and the numbers; a thread takes several steps."""

    def make(device: torch.device, features: Features) -> Sketch:
        if "uniform" not in features.ops:
            raise Skip
        k = Sketch(name, device)
        i, j = variables(rows, columns)
        k.buffer("state", I64, (2,), torch.tensor([-(2**62) - 12345, 2**34 + 8]))
        element = IndexValue(add(mul(i, columns), j), I64)
        ways = (Const(vector, I64), Const(5, I64))
        number = op("uniform", k.load("state", 0), k.load("state", 1), element, *ways, dtype=F32)
        total = Reduce("sum", number, (j,), F32)
        k.buffer("numbers", F32, (rows, columns))
        k.buffer("sums", F32, (rows,))
        last = Pass((total,), (Store("numbers", (i, j), number),), (Store("sums", (i,), total),))
        return k.finish((i,), (j,), [last])

    return Case("random numbers", name, make)


ACCESS_CASES += [
    _random_numbers("random_numbers_in_fours", 6, 64, 8),
    _random_numbers("random_numbers_in_pairs", 3, 26, 2),
    _random_numbers("random_numbers_alone", 3, 13, 1),
]


# Products of matrices.


def _product(name: str, dtype: torch.dtype, total: torch.dtype) -> Case:
    """Rows of one matrix times columns of another one, as a loop, and what is added to it."""

    def make(device: torch.device, features: Features) -> Sketch:
        if "product" not in features.ops or dtype not in features.dtypes:
            raise Skip
        k = Sketch(name, device)
        i, j, r = variables(17, 21, 40)
        left = k.load(k.buffer("left", dtype, (17, 40), randn(17, 40, dtype=dtype)), i, r)
        right = k.load(k.buffer("right", dtype, (40, 21), randn(40, 21, dtype=dtype)), r, j)
        found = Reduce("sum", op("product", left, right, dtype=total), (r,), total)
        k.buffer("out", total, (17, 21))
        return k.finish((i, j), (r,), [Pass((found,), (), (Store("out", (i, j), found),))])

    return Case("products", name, make)


ACCESS_CASES += [
    _product("product_float32", torch.float32, torch.float32),
    _product("product_bfloat16", torch.bfloat16, torch.float32),
    _product("product_int8", torch.int8, torch.int32),
]
