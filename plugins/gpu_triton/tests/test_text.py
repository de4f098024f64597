"""The text of generated kernels: each test is about one property."""

from __future__ import annotations

import attrs
import pytest
import torch

from armature.lower.data import Buffer, BufferKind, Const, IndexValue, Load, Node, Op, Origin, Reduce, Store
from armature.lower.index import Index, Size, Var, contiguous_strides
from armature.schedule.data import Kernel, KernelPlan, Launch, Pass
from armature.schedule.verify import verify_kernel
from armature.testing.lowering_kit import context
from armature_gpu_triton.backend import TritonBackend
from armature_gpu_triton.kernel_printer import KernelPrinter, print_function
from armature_gpu_triton.loops import tile
from armature_gpu_triton.split import split
from armature_gpu_triton.values import size_name

F32, BF16, I64 = torch.float32, torch.bfloat16, torch.int64
DEVICE = torch.device("cuda", 0)
ADD = Origin("aten.add.Tensor", "/home/me/model.py", 41, "forward", "y = x + bias")
RELU = Origin("aten.relu.default", "/home/me/model.py", 42, "forward", "return torch.relu(y)")
MEAN = Origin("aten.mean.dim", "/home/me/model.py", 7, "forward", "m = x.mean(-1)")
ROW, COLUMN = Var("i", 64), Var("j", 100)


def buffers(**shapes: tuple[Index, ...]) -> dict[str, Buffer]:
    return {n: Buffer(n, F32, DEVICE, s, contiguous_strides(s), BufferKind.INPUT) for n, s in shapes.items()}


def add_relu() -> Kernel:
    total = Op("add", (Load("x", (ROW, COLUMN), F32), Load("bias", (COLUMN,), F32)), F32, ADD)
    value = Op("maximum", (total, Const(0.0, F32)), F32, RELU)
    item = Pass((), (), (Store("out", (ROW, COLUMN), value),))
    return Kernel("add_relu_0", DEVICE, (ROW, COLUMN), (), (item,), ("x", "bias"), ("out",), (), (ADD, RELU))


def row_mean(columns: Index = 100, sizes: tuple[Size, ...] = ()) -> Kernel:
    j = Var("j", columns)
    total = Reduce("sum", Load("x", (ROW, j), F32), (j,), F32, MEAN)
    mean = Op("div", (total, IndexValue(columns, F32)), F32, MEAN)
    item = Pass((total,), (), (Store("out", (ROW,), mean),))
    return Kernel("mean_0", DEVICE, (ROW,), (j,), (item,), ("x",), ("out",), sizes, (MEAN,))


def text_of(kernel: Kernel, **shapes: tuple[Index, ...]) -> str:
    every = buffers(**shapes)
    printer = KernelPrinter(tile(kernel, every), every)
    return print_function(kernel, printer.parameters(), printer.print())


def test_pointwise_kernel_with_the_lines_it_comes_from() -> None:
    text = text_of(add_relu(), x=(64, 100), bias=(100,), out=(64, 100))
    assert (
        text
        == """\
# kernel add_relu_0
#   aten.add.Tensor    model.py:41  y = x + bias
#   aten.relu.default    model.py:42  return torch.relu(y)
@triton.jit
def add_relu_0(in0, in1, out0, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tmp0 = tl.load(in0 + x)
    tmp1 = tl.load(in1 + (x % 100))
    tmp2 = tmp0 + tmp1                                                    # model.py:41  y = x + bias
    tmp3 = helpers.maximum(tmp2, tl.full([1], 0.0, tl.float32))           # model.py:42  return torch.relu(y)
    tl.store(out0 + x, tmp3)
"""
    )


def test_short_rows_stay_in_registers() -> None:
    text = text_of(row_mean(), x=(64, 100), out=(64,))
    assert "for " not in text
    assert "r_in = r < 100" in text
    assert "red0 = helpers.reduce_sum(tl.where(r_in, tmp0, tl.full([1, 1], 0.0, tl.float32)))" in text


def test_long_rows_are_walked_in_pieces() -> None:
    text = text_of(row_mean(100_000), x=(64, 100_000), out=(64,))
    assert "for r_start in range(0, 100000, RBLOCK):" in text
    assert text.index("red0_all = tl.full(") < text.index("for r_start") < text.index("helpers.reduce_sum(red0_all)")


def test_symbolic_sizes_are_arguments_and_indices_have_64_bits() -> None:
    size = Size("s0", 100)
    text = text_of(row_mean(size, (size,)), x=(64, size), out=(64,))
    assert "out0, s0, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):" in text
    assert "tl.program_id(0).to(tl.int64)" in text
    assert "range(0, s0, RBLOCK)" in text


def test_offsets_have_32_bits_until_they_no_longer_fit() -> None:
    assert "int64" not in text_of(add_relu(), x=(64, 100), bias=(100,), out=(64, 100))
    i = Var("i", 2**31)
    item = Pass((), (), (Store("out", (i,), Load("x", (i,), F32)),))
    big = Kernel("copy_0", DEVICE, (i,), (), (item,), ("x",), ("out",))
    assert "tl.program_id(0).to(tl.int64)" in text_of(big, x=(2**31,), out=(2**31,))


def test_halves_are_computed_in_float32() -> None:
    shapes = buffers(x=(64,), out=(64,))
    shapes = {n: Buffer(n, BF16, DEVICE, b.shape, b.strides, b.kind) for n, b in shapes.items()}
    value = Op("mul", (Load("x", (ROW,), BF16), Const(0.1, BF16)), BF16)
    item = Pass((), (), (Store("out", (ROW,), value),))
    kernel = Kernel("mul_0", DEVICE, (ROW,), (), (item,), ("x",), ("out",))
    text = KernelPrinter(tile(kernel, shapes), shapes).print()
    rounded = torch.tensor(0.1, dtype=BF16).item()
    assert f"helpers.to_bfloat16((helpers.from_bfloat16(tmp0) * {rounded}))" in text


def normed_images(side: int) -> str:
    """As batch norm in inference: four vectors along the channels beside one image, which is read along its rows."""
    image, channel, place = Var("n", 8), Var("c", 256), Var("p", side * side)
    where = (image, channel, place)
    value: Node = Load("x", where, F32)
    for vector in ("mean", "variance", "weight", "bias"):
        value = Op("add", (value, Load(vector, (channel,), F32)), F32)
    names = ("x", "mean", "variance", "weight", "bias")
    item = Pass((), (), (Store("out", where, value),))
    kernel = Kernel("norm_0", DEVICE, where, (), (item,), names, ("out",))
    shapes = dict.fromkeys(names[1:], (256,))
    return text_of(kernel, x=(8, 256, side * side), out=(8, 256, side * side), **shapes)


def test_values_of_a_row_are_loaded_once_for_a_row_of_a_tile() -> None:
    text = normed_images(side=56)
    assert "x = (tl.program_id(0) // 13) * XBLOCK + tl.arange(0, XBLOCK)[:, None]" in text
    assert "r = (tl.program_id(0) % 13) * RBLOCK + tl.arange(0, RBLOCK)[None, :]" in text
    assert "tl.load(in0 + (r + 3136 * x), r_in)" in text
    assert "tl.load(in1 + (x % 256))" in text


def test_neighbours_load_neighbours_of_the_image_not_of_its_channels() -> None:
    """Rows of 49 points would leave most of a tile empty: the tile has one dimension."""
    text = normed_images(side=7)
    assert "RBLOCK" not in text
    assert "tl.load(in0 + x)" in text and "tl.store(out0 + x," in text
    assert "tl.load(in1 + ((x // 49) % 256))" in text


def test_a_transpose_moves_squares() -> None:
    """Both its load and its store would otherwise have to walk across the rows of one side."""
    i, j = Var("i", 300), Var("j", 500)
    item = Pass((), (), (Store("out", (j, i), Load("x", (i, j), F32)),))
    kernel = Kernel("turn_0", DEVICE, (j, i), (), (item,), ("x",), ("out",))
    every = buffers(x=(300, 500), out=(500, 300))
    found = tile(kernel, every)
    assert found.config.tiled and found.config.xblock >= 16 and found.config.rblock >= 16
    text = text_of(kernel, x=(300, 500), out=(500, 300))
    assert "tl.load(in0 + (500 * r + x), x_in & r_in)" in text
    assert "tl.store(out0 + (r + 300 * x), tmp0, x_in & r_in)" in text


def softmax_sum(least: bool = False) -> str:
    i, j = Var("i", 4096), Var("j", 32_000)
    value = Load("x", (i, j), F32)
    largest = Reduce("min" if least else "max", value, (j,), F32)
    total = Reduce("sum", Op("exp", (Op("sub", (value, largest), F32),), F32), (j,), F32)
    passes = (Pass((largest,), (), (Store("most", (i,), largest),)), Pass((total,), (), (Store("out", (i,), total),)))
    kernel = Kernel("softmax_0", DEVICE, (i,), (j,), passes, ("x",), ("most", "out"))
    return text_of(kernel, x=(4096, 32_000), most=(4096,), out=(4096,))


def test_a_softmax_walks_long_rows_once() -> None:
    text = softmax_sum()
    assert text.count("for r_start in") == text.count("tl.load(") == 1
    assert "red0_all, red1_all = helpers.online_softmax(red0_all, red1_all, tl.where(r_in, tmp0, " in text
    assert "red1 = helpers.reduce_sum(red1_all * tl.exp(red0_all - red0))" in text


def test_a_sum_relative_to_anything_else_takes_a_loop_of_its_own() -> None:
    text = softmax_sum(least=True)
    assert text.count("for r_start in") == 2 and "online" not in text


def test_few_long_rows_are_cut_into_pieces() -> None:
    i, j = Var("i", 2), Var("j", 1_000_000)
    total = Reduce("sum", Load("x", (i, j), F32), (j,), F32)
    item = Pass((total,), (), (Store("out", (i,), total),))
    kernel = Kernel("sum_0", DEVICE, (i,), (j,), (item,), ("x",), ("out",))
    every = buffers(x=(2, 1_000_000), out=(2,))
    plan = KernelPlan("g", (), {}, every, (Launch(kernel),), (), {})
    source = TritonBackend().generate([kernel], plan, context(()))
    assert source.text.count("@triton.jit") == 2
    assert "def sum_0_part0(" in source.text and "def sum_0_part1(" in source.text
    assert source.kernels == {"sum_0": ("x", "out")}
    (group,) = source.meta["groups"]  # type: ignore[misc, attr-defined]
    pieces = group.workspaces[0][1] // 2
    assert 64 <= pieces <= 512


def normalised(in_place: str) -> Kernel:
    """x - its sum, stored over x in the pass behind the sum, or in the very pass that sums."""
    i, j = Var("i", 2), Var("j", 1_000_000)
    value = Load("x", (i, j), F32)
    total = Reduce("sum", value, (j,), F32)
    if in_place == "behind":
        passes = (Pass((total,), (), ()), Pass((), (Store("x", (i, j), Op("sub", (value, total), F32)),), ()))
    else:
        passes = (Pass((total,), (Store("x", (i, j), Op("neg", (value,), F32)),), (Store("out", (i,), total),)),)
    writes = ("x",) if in_place == "behind" else ("x", "out")
    return Kernel("norm_0", DEVICE, (i,), (j,), passes, (), writes)


@pytest.mark.parametrize(("in_place", "functions"), [("behind", 3), ("within", 2)])
def test_a_result_may_stand_in_the_memory_of_an_operand_that_is_read_before(in_place: str, functions: int) -> None:
    kernel = normalised(in_place)
    every = buffers(x=(2, 1_000_000), out=(2,))
    source = TritonBackend().generate([kernel], KernelPlan("g", (), {}, every, (Launch(kernel),), (), {}), context(()))
    assert source.text.count("@triton.jit") == functions


def test_the_parts_of_a_cut_kernel_name_each_buffer_once() -> None:
    every = buffers(x=(2, 1_000_000), out=(2,))
    group = split(normalised("behind"), every)
    plan = KernelPlan("g", (), {}, every | dict(group.workspaces), tuple(map(Launch, group.kernels)), (), {})
    assert len(group.kernels) == 3
    for kernel in group.kernels:
        verify_kernel(kernel, plan)
        assert len(set(kernel.arguments)) == len(kernel.arguments)


def test_neighbours_load_neighbours_where_columns_are_cut() -> None:
    i, j = Var("i", 512), Var("j", 65_536)
    total = Reduce("sum", Load("x", (j, i), F32), (j,), F32)
    item = Pass((total,), (), (Store("out", (i,), total),))
    kernel = Kernel("sum_0", DEVICE, (i,), (j,), (item,), ("x",), ("out",))
    every = buffers(x=(65_536, 512), out=(512,))
    plan = KernelPlan("g", (), {}, every, (Launch(kernel),), (), {})
    text = TritonBackend().generate([kernel], plan, context(())).text
    (first,) = [line for line in text.partition("sum_0_part1")[0].splitlines() if "tl.load(in0" in line]
    assert "(x % 512)" in first
    assert "tl.load(in0 + (512 * r + x))" in text


@pytest.mark.parametrize("name", ["x", "tmp3", "tl", "for", "red0_all", "s 0", "XBLOCK"])
def test_names_of_sizes_never_clash(name: str) -> None:
    assert size_name(name).isidentifier() and size_name(name) != name


def test_module_holds_all_kernels_and_the_same_text_each_time() -> None:
    rows = row_mean()
    mean = attrs.evolve(
        rows,
        writes=("means",),
        passes=(
            attrs.evolve(rows.passes[0], outer_stores=(attrs.evolve(rows.passes[0].outer_stores[0], buffer="means"),)),
        ),
    )
    kernels = [add_relu(), mean]
    every = buffers(x=(64, 100), bias=(100,), out=(64, 100), means=(64,))
    plan = KernelPlan("g", (), {}, every, tuple(Launch(k) for k in kernels), (), {})
    first, second = (TritonBackend().generate(kernels, plan, context(())) for _ in range(2))
    assert first == second
    assert first.language == "python" and compile(first.text, "generated", "exec")
    assert set(first.kernels) == {"add_relu_0", "mean_0"}


def test_kernels_that_differ_only_in_buffers_share_a_function() -> None:
    """As the layers of a network do: each function is compiled once."""
    first = add_relu()
    value = first.passes[0].outer_stores[0].value
    item = Pass((), (), (Store("other", (ROW, COLUMN), value),))
    second = attrs.evolve(first, name="add_relu_1", passes=(item,), writes=("other",))
    every = buffers(x=(64, 100), bias=(100,), out=(64, 100), other=(64, 100))
    plan = KernelPlan("g", (), {}, every, (Launch(first), Launch(second)), (), {})
    source = TritonBackend().generate([first, second], plan, context(()))
    assert source.text.count("@triton.jit") == 1
    assert source.kernels == {"add_relu_0": ("x", "bias", "out"), "add_relu_1": ("x", "bias", "other")}
    groups = source.meta["groups"]
    assert [g.parts[0].spec.name for g in groups] == ["add_relu_0", "add_relu_0"]  # type: ignore[attr-defined]
