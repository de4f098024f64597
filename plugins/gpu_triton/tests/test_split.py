"""Kernels over few long rows, cut into pieces: what they compute, in the interpreter, and what they read."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import torch

from armature.context import CompileContext
from armature.lower.data import Buffer, BufferKind, Const, Load, Op, Reduce, Store
from armature.lower.index import Var, contiguous_strides
from armature.schedule.data import Kernel, KernelPlan, Launch, Pass
from armature.schedule.verify import verify_kernel
from armature.testing.lowering_kit import context
from armature_gpu_triton import launch, toolchain
from armature_gpu_triton.backend import TritonBackend
from armature_gpu_triton.loops import tile
from armature_gpu_triton.split import chunk, split

F32 = torch.float32
ROWS = {"rows, even": (2, 20_000), "rows, odd": (2, 20_011)}
COLUMNS = {"columns, even": (70, 1_030), "columns, odd": (70, 1_031)}
LAID = {**ROWS, **COLUMNS}


def buffers(laid: str, device: str = "cpu") -> dict[str, Buffer]:
    """x, y and z of all points, w and out of rows."""
    x, r = LAID[laid]
    shape = (r, x) if laid in COLUMNS else (x, r)
    found = {n: (shape, contiguous_strides(shape)) for n in ("x", "y", "z")} | dict.fromkeys(("w", "out"), ((x,), (1,)))
    where = torch.device(device)
    return {n: Buffer(n, F32, where, *layout, kind=BufferKind.INPUT) for n, layout in found.items()}


def scaled_and_summed(laid: str, device: str = "cpu", late: bool = False) -> Kernel:
    """x += y; z = x * w; out = the sum of x * z, as in the backward pass of a block with a scale and a residual.

    late: out is the sum plus the first element of x as it was before, which a join would read too late.
    """
    x, r = LAID[laid]
    i, j = Var("i", x), Var("j", r)
    at = (j, i) if laid in COLUMNS else (i, j)
    total = Op("add", (Load("x", at, F32), Load("y", at, F32)), F32)
    product = Op("mul", (total, Load("w", (i,), F32)), F32)
    summed = Reduce("sum", Op("mul", (total, Load("z", at, F32)), F32), (j,), F32)
    first = Load("x", (0, i) if laid in COLUMNS else (i, 0), F32)
    result = Op("add", (summed, first), F32) if late else summed
    stores = (Store("x", at, total), Store("z", at, product))
    item = Pass((summed,), stores, (Store("out", (i,), result),))
    return Kernel("scale_0", torch.device(device), (i,), (j,), (item,), ("y", "w"), ("x", "z", "out"))


@pytest.mark.parametrize("laid", LAID)
def test_results_in_the_memory_of_operands(laid: str, compile_context: CompileContext) -> None:
    kernel, every = scaled_and_summed(laid), buffers(laid)
    assert len(split(kernel, every).kernels) == (2 if "even" in laid else 3)
    plan = KernelPlan("g", (), {}, every, (Launch(kernel),), (), {})
    backend = TritonBackend(interpret=True)
    run = backend.build(backend.generate([kernel], plan, compile_context), compile_context)[kernel.name]
    torch.manual_seed(0)
    memory = {name: torch.randn(buffer.shape) for name, buffer in every.items()}
    w = memory["w"] if laid in COLUMNS else memory["w"][:, None]
    total = memory["x"] + memory["y"]
    expected = (total, total * w, (total * memory["z"]).sum(0 if laid in COLUMNS else 1))
    run(*(memory[name] for name in kernel.arguments))
    for name, value in zip(("x", "z", "out"), expected, strict=True):
        torch.testing.assert_close(memory[name], value, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("laid", LAID)
def test_each_operand_is_read_once_where_pieces_are_even(laid: str) -> None:
    kernel, every = scaled_and_summed(laid), buffers(laid)
    text = (
        TritonBackend().generate([kernel], KernelPlan("g", (), {}, every, (Launch(kernel),), (), {}), context(())).text
    )
    assert text.count("tl.load(") == (4 + 1 if "even" in laid else 3 + 3 + 1)  # the last one is of the pieces


@pytest.mark.parametrize("laid", LAID)
def test_a_kernel_whose_end_reads_what_it_has_changed_stays_whole(laid: str) -> None:
    assert len(split(scaled_and_summed(laid, late=True), buffers(laid)).kernels) == 1


@pytest.mark.parametrize("laid", LAID)
def test_the_parts_are_kernels(laid: str) -> None:
    every = buffers(laid)
    group = split(scaled_and_summed(laid), every)
    plan = KernelPlan("g", (), {}, every | dict(group.workspaces), tuple(map(Launch, group.kernels)), (), {})
    for kernel in group.kernels:
        verify_kernel(kernel, plan)


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("laid", ["rows, even", "columns, even"])
def test_machine_code(laid: str, capability: int, tmp_path: Path) -> None:
    kernel, every = scaled_and_summed(laid, "cuda"), buffers(laid, "cuda")
    source = TritonBackend().generate([kernel], KernelPlan("g", (), {}, every, (Launch(kernel),), (), {}), context(()))
    path = tmp_path / "split.py"
    path.write_text(source.text)
    functions = toolchain.functions_of(source.text, path)
    for spec in launch.specs_of(source.meta["groups"]):  # type: ignore[arg-type]
        assert toolchain.compile_function(functions[spec.name], spec, capability).cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("points", "pieces", "even", "length"),
    [
        (100_352, 512, False, 196),
        (100_352, 512, True, 224),  # 14 whole accesses, not 12.25
        (1_030, 4, True, 515),
        (20_011, 4, True, 5_003),  # a prime number: the last piece is shorter
    ],
)
def test_length_of_pieces(points: int, pieces: int, even: bool, length: int) -> None:
    assert chunk(points, pieces, even) == length


@pytest.mark.parametrize("laid", LAID)
def test_what_a_kernel_stored_is_loaded_by_the_next(laid: str, compile_context: CompileContext) -> None:
    """z = x + y; out = the sum of (z - the sum of z)**2."""
    every = buffers(laid)
    x, r = LAID[laid]
    i, j = Var("i", x), Var("j", r)
    at = (j, i) if laid in COLUMNS else (i, j)
    total = Op("add", (Load("x", at, F32), Load("y", at, F32)), F32)
    mean = Op("div", (Reduce("sum", total, (j,), F32), Const(float(r), F32)), F32)
    gap = Op("sub", (total, mean), F32)
    squares = Reduce("sum", Op("mul", (gap, gap), F32), (j,), F32)
    first = Pass((cast(Reduce, mean.args[0]),), (Store("z", at, total),), ())
    second = Pass((squares,), (), (Store("out", (i,), squares),))
    kernel = Kernel("gaps_0", torch.device("cpu"), (i,), (j,), (first, second), ("x", "y"), ("z", "out"))
    parts = split(kernel, every).kernels
    (after,) = [part for part in parts if "z" in part.reads]
    assert "x" not in after.reads and "y" not in after.reads
    plan = KernelPlan("g", (), {}, every, (Launch(kernel),), (), {})
    backend = TritonBackend(interpret=True)
    run = backend.build(backend.generate([kernel], plan, compile_context), compile_context)[kernel.name]
    torch.manual_seed(0)
    memory = {name: torch.randn(buffer.shape) for name, buffer in every.items()}
    run(*(memory[name] for name in kernel.arguments))
    z = memory["x"] + memory["y"]
    along = 0 if laid in COLUMNS else 1
    torch.testing.assert_close(memory["z"], z)
    expected = (z - z.mean(along, keepdim=True)).square().sum(along)
    torch.testing.assert_close(memory["out"], expected, rtol=1e-4, atol=1e-3)


def test_pieces_of_several_loops_are_read_along_memory() -> None:
    """The gradient of a convolution's bias: a piece has several images, each contiguous."""
    shape = (8, 512, 3000)
    i, n, j = Var("i", 512), Var("n", 8), Var("j", 3000)
    total = Reduce("sum", Load("x", (n, i, j), F32), (n, j), F32)
    where = torch.device("cpu")
    every = {
        "x": Buffer("x", F32, where, shape, contiguous_strides(shape), kind=BufferKind.INPUT),
        "out": Buffer("out", F32, where, (512,), (1,)),
    }
    kernel = Kernel("sum_0", where, (i,), (n, j), (Pass((total,), (), (Store("out", (i,), total),)),), ("x",), ("out",))
    group = split(kernel, every)
    pieces, _ = group.kernels
    config = tile(pieces, {**every, **group.workspaces}).config
    assert (config.xblock, config.rblock) == (1, 4096)
