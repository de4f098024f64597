"""Hand-built kernels of every shape: loops, reductions, passes, gathers, masks, scatters, symbolic sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from armature.lower.data import Const, IndexValue, Masked, Node, Reduce, Scan, Store
from armature.lower.features import Features
from armature.lower.index import Index, Var, add, floordiv, mod, mul
from armature.schedule.data import Pass
from armature.testing.kernel_cases import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I32,
    I64,
    Case,
    Make,
    Sketch,
    Skip,
    cast,
    op,
    randn,
)  # fmt: skip

SHAPE_CASES: list[Case] = []  # filled by this module, and read by backend_kit only


def case(group: str, rows: list[Case], *, needs: Sequence[torch.dtype] = ()) -> Callable[[Make], Make]:
    """Add the decorated function to the rows; it is skipped if a dtype is missing."""

    def add_row(make: Make) -> Make:
        def checked(device: torch.device, features: Features) -> Sketch:
            if not set(needs) <= features.dtypes:
                raise Skip
            return make(device, features)

        rows.append(Case(group, make.__name__, checked))
        return make

    return add_row


def variables(*extents: Index, prefix: str = "i") -> tuple[Var, ...]:
    """Loop variables of these extents."""
    return tuple(Var(f"{prefix}{n}", e) for n, e in enumerate(extents))


def split(shape: Sequence[int], over: Sequence[int]) -> tuple[tuple[Var, ...], tuple[Var, ...], tuple[Var, ...]]:
    """Loop variables of a shape: all of them, those outside, and those of the axes `over`."""
    every = variables(*shape)
    outer = tuple(v for n, v in enumerate(every) if n not in over)
    return every, outer, tuple(v for n, v in enumerate(every) if n in over)


def f32(value: float) -> Const:
    """A float32 literal."""
    return Const(value, F32)


# Pointwise kernels.


@case("pointwise", SHAPE_CASES)
def chain_of_a_matrix(device: torch.device, features: Features) -> Sketch:
    k = Sketch("chain_of_a_matrix", device)
    i, j = variables(13, 37)
    x = k.load(k.buffer("x", F32, (13, 37), randn(13, 37)), i, j)
    y = k.load(k.buffer("y", F32, (37,), randn(37)), j)
    total = op("add", x, y)
    k.buffer("out", F32, (13, 37))
    return k.pointwise((i, j), Store("out", (i, j), op("mul", total, op("maximum", total, f32(0.0)))))


@case("pointwise", SHAPE_CASES)
def large_and_contiguous(device: torch.device, features: Features) -> Sketch:
    """Enough work for several threads, in three dimensions that can be merged."""
    k = Sketch("large_and_contiguous", device)
    v = variables(48, 129, 67)
    x = k.load(k.buffer("x", F32, (48, 129, 67), randn(48, 129, 67)), *v)
    k.buffer("out", F32, (48, 129, 67))
    return k.pointwise(v, Store("out", v, op("add", op("mul", x, x), f32(1.0))))


@case("pointwise", SHAPE_CASES)
def bias_over_channels(device: torch.device, features: Features) -> Sketch:
    k = Sketch("bias_over_channels", device)
    n, c, h, w = variables(3, 5, 7, 9)
    x = k.load(k.buffer("x", F32, (3, 5, 7, 9), randn(3, 5, 7, 9)), n, c, h, w)
    b = k.load(k.buffer("b", F32, (5,), randn(5)), c)
    k.buffer("out", F32, (3, 5, 7, 9))
    return k.pointwise((n, c, h, w), Store("out", (n, c, h, w), op("add", x, b)))


@case("pointwise", SHAPE_CASES)
def transposed_copy(device: torch.device, features: Features) -> Sketch:
    k = Sketch("transposed_copy", device)
    i, j = variables(70, 45)
    x = k.load(k.buffer("x", F32, (45, 70), randn(45, 70)), j, i)
    k.buffer("out", F32, (70, 45))
    return k.pointwise((i, j), Store("out", (i, j), op("mul", x, f32(2.0))))


@case("pointwise", SHAPE_CASES)
def channels_last_to_first(device: torch.device, features: Features) -> Sketch:
    k = Sketch("channels_last_to_first", device)
    n, c, h, w = variables(2, 24, 6, 6)
    x = k.load(k.buffer("x", F32, (2, 24, 6, 6), randn(2, 24, 6, 6), (864, 1, 144, 24)), n, c, h, w)
    y = k.load(k.buffer("y", F32, (2, 24, 6, 6), randn(2, 24, 6, 6, seed=3)), n, c, h, w)
    k.buffer("out", F32, (2, 24, 6, 6))
    return k.pointwise((n, c, h, w), Store("out", (n, c, h, w), op("add", x, y)))


@case("pointwise", SHAPE_CASES)
def strided_store_into_a_part(device: torch.device, features: Features) -> Sketch:
    k = Sketch("strided_store_into_a_part", device)
    i, j = variables(6, 20)
    x = k.load(k.buffer("x", F32, (6, 20), randn(6, 20)), i, j)
    k.buffer("out", F32, (6, 50), randn(6, 50))
    return k.pointwise((i, j), Store("out", (i, add(mul(j, 2), 3)), op("neg", x)))


@case("pointwise", SHAPE_CASES)
def scalar_point(device: torch.device, features: Features) -> Sketch:
    k = Sketch("scalar_point", device)
    x = k.load(k.buffer("x", F32, (), randn(1)))
    k.buffer("out", F32, ())
    return k.pointwise((), Store("out", (), op("sqrt", op("abs", x))))


@case("pointwise", SHAPE_CASES)
def no_points(device: torch.device, features: Features) -> Sketch:
    k = Sketch("no_points", device)
    i, j = variables(0, 8)
    x = k.load(k.buffer("x", F32, (0, 8)), i, j)
    k.buffer("out", F32, (0, 8))
    return k.pointwise((i, j), Store("out", (i, j), op("exp", x)))


@case("pointwise", SHAPE_CASES)
def counting(device: torch.device, features: Features) -> Sketch:
    """Index values: arange, a triangular mask, a coordinate behind a division."""
    k = Sketch("counting", device)
    i, j = variables(9, 40)
    x = k.load(k.buffer("x", F32, (9, 40), randn(9, 40)), i, j)
    keep = op("le", IndexValue(j, I64), IndexValue(i, I64), dtype=BOOL)
    k.buffer("masked", F32, (9, 40))
    k.buffer("steps", I64, (9, 40))
    k.buffer("folded", F32, (9, 40))
    place = add(mul(i, 40), j)
    return k.pointwise(
        (i, j),
        Store("masked", (i, j), op("where", keep, x, f32(-math.inf), dtype=F32)),
        Store("steps", (i, j), IndexValue(add(mul(j, 3), 1), I64)),
        Store("folded", (i, j), IndexValue(mod(floordiv(place, 7), 11), F32)),
    )


@case("pointwise", SHAPE_CASES)
def view_across_rows(device: torch.device, features: Features) -> Sketch:
    """Reads through a reshape that does not match the loops."""
    k = Sketch("view_across_rows", device)
    i, j = variables(8, 15)
    place = add(mul(i, 15), j)
    x = k.load(k.buffer("x", F32, (10, 12), randn(10, 12), (1, 10)), floordiv(place, 12), mod(place, 12))
    k.buffer("out", F32, (8, 15))
    return k.pointwise((i, j), Store("out", (i, j), op("add", x, f32(1.0))))


@case("pointwise", SHAPE_CASES, needs=(BF16,))
def half_precision(device: torch.device, features: Features) -> Sketch:
    k = Sketch("half_precision", device)
    (i,) = variables(333)
    x = k.load(k.buffer("x", BF16, (333,), randn(333)), i)
    y = k.load(k.buffer("y", BF16, (333,), randn(333, seed=4)), i)
    k.buffer("out", BF16, (333,))
    total = cast(op("add", cast(x, F32), cast(y, F32)), BF16)
    return k.pointwise((i,), Store("out", (i,), cast(op("mul", cast(total, F32), f32(1.5)), BF16)))


@case("pointwise", SHAPE_CASES, needs=(F16,))
def half_precision_ieee(device: torch.device, features: Features) -> Sketch:
    """Rounding to nearest even, subnormals, overflow, infinities and NaN."""
    k = Sketch("half_precision_ieee", device)
    values = torch.cat(
        (randn(300) * 100, torch.tensor([0.0, -0.0, 6e-8, 5.9e-8, 3e-8, 1e-5, 65504.0, 65519.9, 65520.0, 1e6]))
    )
    values = torch.cat((values, torch.tensor([math.inf, -math.inf, math.nan, 1.0 + 2**-11, 1.0 + 3 * 2**-11])))
    (i,) = variables(values.numel())
    x = k.load(k.buffer("x", F32, (values.numel(),), values), i)
    k.buffer("half", F16, (values.numel(),))
    k.buffer("back", F32, (values.numel(),))
    half = cast(x, F16)
    return k.pointwise((i,), Store("half", (i,), half), Store("back", (i,), cast(half, F32)))


@case("pointwise", SHAPE_CASES)
def several_widths(device: torch.device, features: Features) -> Sketch:
    """float32, float64, int64, uint8 and bool in one body."""
    k = Sketch("several_widths", device)
    (i,) = variables(101)
    x = k.load(k.buffer("x", F32, (101,), randn(101)), i)
    d = k.load(k.buffer("d", F64, (101,), randn(101, dtype=F64)), i)
    n = k.load(k.buffer("n", I64, (101,), randn(101, dtype=I64)), i)
    u = k.load(k.buffer("u", torch.uint8, (101,), randn(101, dtype=torch.uint8)), i)
    b = k.load(k.buffer("b", BOOL, (101,), randn(101, dtype=BOOL)), i)
    total = op("add", cast(x, F64), op("mul", d, cast(n, F64)))
    for name, dtype in (("total", F64), ("small", torch.uint8), ("flag", BOOL), ("pick", I64), ("single", F32)):
        k.buffer(name, dtype, (101,))
    positive = op("gt", total, Const(0.0, F64), dtype=BOOL)
    return k.pointwise(
        (i,),
        Store("total", (i,), total),
        Store("small", (i,), op("add", u, cast(b, torch.uint8))),
        Store("flag", (i,), op("logical_and", b, positive)),
        Store("pick", (i,), op("where", positive, n, cast(u, I64))),
        Store("single", (i,), op("where", b, x, cast(total, F32))),
    )


@case("pointwise", SHAPE_CASES)
def bits_of_a_float(device: torch.device, features: Features) -> Sketch:
    k = Sketch("bits_of_a_float", device)
    (i,) = variables(40)
    x = k.load(k.buffer("x", F32, (40,), randn(40)), i)
    k.buffer("out", I32, (40,))
    return k.pointwise((i,), Store("out", (i,), op("bitcast", x, dtype=I32)))


@case("pointwise", SHAPE_CASES)
def in_place(device: torch.device, features: Features) -> Sketch:
    """A buffer that is read and written at the same position."""
    k = Sketch("in_place", device)
    (i,) = variables(50)
    x = k.load(k.buffer("x", F32, (50,), randn(50)), i)
    return k.pointwise((i,), Store("x", (i,), op("add", x, f32(1.0))))


# Reductions.


def _reduce_all(
    name: str, shape: tuple[int, ...], over: tuple[int, ...], dtype: torch.dtype, ops: Sequence[str]
) -> Case:
    """A case that reduces the axes `over` by each reduction that the back end has."""

    def make(device: torch.device, features: Features) -> Sketch:
        kinds = [o for o in ops if o in features.reductions]
        if dtype not in features.dtypes or not kinds:
            raise Skip
        k = Sketch(name, device)
        every, outer, inner = split(shape, over)
        values = randn(*shape, dtype=dtype)
        if dtype.is_floating_point and "argmax" in ops:
            values.reshape(-1)[:: max(values.numel() // 3, 1)] = math.nan
        x = k.load(k.buffer("x", dtype, shape, values), *every)
        reductions, stores = [], []
        for kind in kinds:
            out = I64 if kind.startswith("arg") else dtype
            value = op("mul", x, Const(0.5, dtype)) if kind == "prod" and dtype.is_floating_point else x
            node = Reduce(kind, value, inner, out)
            k.buffer(f"out_{kind}", out, tuple(v.extent for v in outer))
            k.tolerance[f"out_{kind}"] = 1e-5
            reductions.append(node)
            stores.append(Store(f"out_{kind}", outer, node))
        return k.finish(outer, inner, [Pass(tuple(reductions), (), tuple(stores))])

    return Case("reductions", name, make)


NUMERIC = ("sum", "prod", "max", "min")
SHAPE_CASES += [
    _reduce_all("rows", (19, 83), (1,), F32, NUMERIC),
    _reduce_all("columns", (83, 19), (0,), F32, NUMERIC),
    _reduce_all("columns_wide", (300, 130), (0,), F32, ("sum", "max")),
    _reduce_all("all_of_it", (40, 50), (0, 1), F32, NUMERIC),
    _reduce_all("all_of_much", (1000, 700), (0, 1), F32, ("sum", "max", "argmax")),
    _reduce_all("channels", (4, 6, 5, 7), (0, 2, 3), F32, NUMERIC),
    _reduce_all("middle", (5, 21, 33), (1,), F32, NUMERIC),
    _reduce_all("ends", (5, 21, 33), (0, 2), F32, NUMERIC),
    _reduce_all("rows_double", (7, 45), (1,), F64, NUMERIC),
    _reduce_all("rows_long", (7, 45), (1,), I64, (*NUMERIC, "xor", "argmax", "argmin")),
    _reduce_all("rows_int", (7, 45), (1,), I32, (*NUMERIC, "xor")),
    _reduce_all("columns_long", (45, 37), (0,), I64, (*NUMERIC, "argmax")),
    _reduce_all("rows_bool", (7, 45), (1,), BOOL, ("any", "all")),
    _reduce_all("columns_bool", (45, 7), (0,), BOOL, ("any", "all")),
    _reduce_all("positions_in_rows", (9, 75), (1,), F32, ("argmax", "argmin", "max", "min")),
    _reduce_all("positions_in_columns", (75, 35), (0,), F32, ("argmax", "argmin", "max", "min")),
    _reduce_all("positions_in_two", (5, 9, 18), (1, 2), F32, ("argmax", "argmin")),
    _reduce_all("one_element", (6, 1), (1,), F32, NUMERIC),
    _reduce_all("logarithms_in_rows", (9, 75), (1,), F32, ("logsumexp",)),
    _reduce_all("logarithms_in_columns", (75, 35), (0,), F32, ("logsumexp",)),
]


@case("reductions", SHAPE_CASES)
def sum_of_many(device: torch.device, features: Features) -> Sketch:
    """Accuracy: a million float32 of one sign; a plain running sum would be off by 1e-3."""
    k = Sketch("sum_of_many", device)
    (i,) = variables(1_000_003)
    x = k.load(k.buffer("x", F32, (1_000_003,), randn(1_000_003).abs()), i)
    total = Reduce("sum", x, (i,), F32)
    k.buffer("out", F32, ())
    k.tolerance["out"] = 2e-6
    return k.finish((), (i,), [Pass((total,), (), (Store("out", (), total),))])


@case("reductions", SHAPE_CASES)
def tall_columns(device: torch.device, features: Features) -> Sketch:
    """Accuracy down the columns."""
    k = Sketch("tall_columns", device)
    i, j = variables(20_000, 19)
    x = k.load(k.buffer("x", F32, (20_000, 19), randn(20_000, 19).abs()), i, j)
    total = Reduce("sum", x, (i,), F32)
    k.buffer("out", F32, (19,))
    k.tolerance["out"] = 2e-6
    return k.finish((j,), (i,), [Pass((total,), (), (Store("out", (j,), total),))])


def _windows(channels: int) -> Case:
    """Sums over 7 x 7 neighbours with weights of each channel, as in depthwise convolutions of channels-last images."""
    name = f"windows_of_{channels}_channels"

    def make(device: torch.device, features: Features) -> Sketch:
        k = Sketch(name, device)
        image, row, column, channel = place = variables(2, 8, 8, channels)
        down, right = variables(7, 7, prefix="r")
        k.buffer("x", F32, (2, 14, 14, channels), randn(2, 14, 14, channels))
        k.buffer("weight", F32, (7, 7, channels), randn(7, 7, channels, seed=1))
        x = k.load("x", image, add(row, down), add(column, right), channel)
        total = Reduce("sum", op("mul", x, k.load("weight", down, right, channel)), (down, right), F32)
        k.buffer("out", F32, (2, 8, 8, channels))
        k.tolerance["out"] = 1e-4
        return k.finish(place, (down, right), [Pass((total,), (), (Store("out", place, total),))])

    return Case("reductions", name, make)


SHAPE_CASES += [_windows(channels) for channels in (64, 384)]


@case("reductions", SHAPE_CASES)
def empty_sum(device: torch.device, features: Features) -> Sketch:
    k = Sketch("empty_sum", device)
    i, j = variables(5, 0)
    x = k.load(k.buffer("x", F32, (5, 0)), i, j)
    total = Reduce("sum", x, (j,), F32)
    k.buffer("out", F32, (5,), randn(5))
    return k.finish((i,), (j,), [Pass((total,), (), (Store("out", (i,), op("add", total, f32(1.0))),))])


# Scans.


def _scan_all(name: str, shape: tuple[int, ...], over: tuple[int, ...], dtype: torch.dtype) -> Case:
    """A case that scans along the axes `over` by each of the operations that the back end has, some below a mask."""

    def make(device: torch.device, features: Features) -> Sketch:
        if dtype not in features.dtypes or not features.scans:
            raise Skip
        k = Sketch(name, device)
        every, outer, inner = split(shape, over)
        values = randn(*shape, dtype=dtype)
        x = k.load(k.buffer("x", dtype, shape, values if dtype == I64 else values.abs() / 4 + 0.8), *every)
        stores = []
        for kind in sorted(features.scans if dtype.is_floating_point else features.scans - {"logsumexp"}):
            scan = Scan(kind, x, inner, dtype)
            positive = op("gt", x, Const(1, dtype), dtype=BOOL)
            k.buffer(f"out_{kind}", dtype, shape)
            k.tolerance[f"out_{kind}"] = 2e-5
            stores.append(Store(f"out_{kind}", every, op("add", Masked(positive, scan, Const(0, dtype), dtype), x)))
        return k.finish(outer, inner, [Pass((), tuple(stores), ())])

    return Case("scans", name, make)


SHAPE_CASES += [
    _scan_all("scan_of_rows", (19, 83), (1,), F32),
    _scan_all("scan_of_long_rows", (3, 9001), (1,), F32),
    _scan_all("scan_of_columns", (83, 19), (0,), F32),
    _scan_all("scan_in_the_middle", (5, 40, 6), (1,), I64),
    _scan_all("scan_of_two_axes", (5, 7, 9), (1, 2), F32),
]


@case("scans", SHAPE_CASES)
def scan_of_shares(device: torch.device, features: Features) -> Sketch:
    """A scan of what two reductions give, and a reduction of the scan in the pass after them."""
    if "sum" not in features.scans or not {"sum", "max"} <= features.reductions or features.max_passes < 3:
        raise Skip
    k = Sketch("scan_of_shares", device)
    i, j = variables(6, 5000)
    x = k.load(k.buffer("x", F32, (6, 5000)), i, j)
    total = Reduce("sum", op("exp", x), (j,), F32)
    running = Scan("sum", op("div", op("exp", x), total), (j,), F32)
    largest = Reduce("max", running, (j,), F32)
    k.buffer("out", F32, (6, 5000))
    k.tolerance["out"] = 2e-5
    inner = Store("out", (i, j), op("sub", running, largest))
    return k.finish((i,), (j,), [Pass((total,), (), ()), Pass((largest,), (), ()), Pass((), (inner,), ())])


# Several passes.


def _softmax(name: str, shape: tuple[int, ...], axis: int, dtype: torch.dtype = F32) -> Case:
    def make(device: torch.device, features: Features) -> Sketch:
        if dtype not in features.dtypes:
            raise Skip
        k = Sketch(name, device)
        every = variables(*shape)
        inner = (every[axis],)
        outer = tuple(v for n, v in enumerate(every) if n != axis)
        loaded: Node = k.load(k.buffer("x", dtype, shape, randn(*shape) * 4), *every)
        x = loaded if dtype == F32 else cast(loaded, F32)
        top = Reduce("max", x, inner, F32)
        power = op("exp", op("sub", x, top))
        total = Reduce("sum", power, inner, F32)
        value: Node = op("div", power, total)
        k.buffer("out", dtype, shape)
        store = Store("out", every, value if dtype == F32 else cast(value, dtype))
        return k.finish(outer, inner, [Pass((top,), (), ()), Pass((total,), (), ()), Pass((), (store,), ())])

    return Case("passes", name, make)


SHAPE_CASES += [
    _softmax("softmax_rows", (21, 77), 1),
    _softmax("softmax_of_channels", (3, 10, 39), 1),
    _softmax("softmax_of_leading", (12, 33), 0),
    _softmax("softmax_half", (9, 50), 1, BF16),
    _softmax("softmax_one_long_row", (1, 100_000), 1),
]


@case("passes", SHAPE_CASES)
def layer_norm(device: torch.device, features: Features) -> Sketch:
    k = Sketch("layer_norm", device)
    i, j = variables(17, 70)
    x = k.load(k.buffer("x", F32, (17, 70), randn(17, 70)), i, j)
    weight = k.load(k.buffer("weight", F32, (70,), randn(70)), j)
    bias = k.load(k.buffer("bias", F32, (70,), randn(70, seed=5)), j)
    mean = op("div", Reduce("sum", x, (j,), F32), f32(70.0))
    away = op("sub", x, mean)
    spread = Reduce("sum", op("mul", away, away), (j,), F32)
    scale = op("rsqrt", op("add", op("div", spread, f32(70.0)), f32(1e-5)))
    for name, shape in (("out", (17, 70)), ("mean", (17,)), ("rstd", (17,))):
        k.buffer(name, F32, shape)
    first = mean.args[0]
    assert isinstance(first, Reduce)
    value = op("add", op("mul", op("mul", away, scale), weight), bias)
    return k.finish(
        (i,), (j,),
        [
            Pass((first,), (), (Store("mean", (i,), mean),)),
            Pass((spread,), (), (Store("rstd", (i,), scale),)),
            Pass((), (Store("out", (i, j), value),), ()),
        ],
    )  # fmt: skip


@case("passes", SHAPE_CASES)
def batch_norm_statistics(device: torch.device, features: Features) -> Sketch:
    """Mean and variance of each channel over n, h and w, then the normalised values."""
    k = Sketch("batch_norm_statistics", device)
    n, c, h, w = variables(4, 6, 5, 9)
    x = k.load(k.buffer("x", F32, (4, 6, 5, 9), randn(4, 6, 5, 9)), n, c, h, w)
    count = f32(180.0)
    total = Reduce("sum", x, (n, h, w), F32)
    mean = op("div", total, count)
    away = op("sub", x, mean)
    spread = Reduce("sum", op("mul", away, away), (n, h, w), F32)
    scale = op("rsqrt", op("add", op("div", spread, count), f32(1e-5)))
    k.buffer("running", F32, (6,), randn(6))
    old = k.load("running", c)
    moved = op("add", op("mul", old, f32(0.9)), op("mul", mean, f32(0.1)))
    k.buffer("out", F32, (4, 6, 5, 9))
    return k.finish(
        (c,), (n, h, w),
        [
            Pass((total,), (), (Store("running", (c,), moved),)),
            Pass((spread,), (), ()),
            Pass((), (Store("out", (n, c, h, w), op("maximum", op("mul", away, scale), f32(0.0))),), ()),
        ],
    )  # fmt: skip


@case("passes", SHAPE_CASES)
def store_seen_by_the_next_pass(device: torch.device, features: Features) -> Sketch:
    k = Sketch("store_seen_by_the_next_pass", device)
    i, j = variables(6, 35)
    x = k.load(k.buffer("x", F32, (6, 35), randn(6, 35)), i, j)
    k.buffer("powers", F32, (6, 35))
    k.buffer("out", F32, (6, 35))
    power = op("exp", x)
    total = Reduce("sum", power, (j,), F32)
    again = op("div", k.load("powers", i, j), total)
    return k.finish(
        (i,), (j,),
        [Pass((total,), (Store("powers", (i, j), power),), ()), Pass((), (Store("out", (i, j), again),), ())],
    )  # fmt: skip


@case("passes", SHAPE_CASES)
def loss_over_everything(device: torch.device, features: Features) -> Sketch:
    """Mean squared error: a reduction to one value with a prologue and an epilogue."""
    k = Sketch("loss_over_everything", device)
    i, j = variables(300, 515)
    x = k.load(k.buffer("x", F32, (300, 515), randn(300, 515)), i, j)
    y = k.load(k.buffer("y", F32, (300, 515), randn(300, 515, seed=7)), i, j)
    away = op("sub", x, y)
    total = Reduce("sum", op("mul", away, away), (i, j), F32)
    k.buffer("out", F32, ())
    return k.finish((), (i, j), [Pass((total,), (), (Store("out", (), op("div", total, f32(300 * 515.0))),))])
