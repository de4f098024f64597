"""Products of matrices in compilations that measure, through Triton's interpreter: what each way computes, the text of
the template, and which tile sizes are considered."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import attrs
import pytest
import torch
import triton
from torch.nn import functional

import armature
from armature.backend_api import GroupSpec, KernelChoice
from armature.pipeline.session import session
from armature_gpu_triton import blocks, toolchain
from armature_gpu_triton.binary import Binary
from armature_gpu_triton.spec import KernelSpec

Preferring = Callable[[str], AbstractContextManager[None]]


def compiled(fn: Callable[..., object], **options: object) -> Callable[..., object]:
    found: Callable[..., object] = armature.compile(fn, fullgraph=True, mode="max-autotune-no-cudagraphs", **options)
    return found


def choices() -> list[KernelChoice]:
    return [choice for source in session().kernel_sources() for choice in source.choices]


Tensor = torch.Tensor


def plain(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return x @ w


def biased(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return torch.addmm(b, x, w)


def scaled(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return torch.addmm(r, x, w, beta=0.5, alpha=2)


def activated(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return functional.gelu(x @ w + b) + r


def prepared(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return (x * x[:, :1]) @ (w - 1)


def padded(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return functional.pad(x[:, :60], (4, 6)) @ w


def turned(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    product = (x @ w).relu()
    return product, product.t() * 2


def batched(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    factors = torch.arange(3, device=x.device).to(x.dtype)[:, None, None]
    return (torch.bmm(x * factors, w + factors) * 0.125).tanh()


def added_to_batches(x: Tensor, w: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return torch.baddbmm(r[None], x.unflatten(1, (2, -1)).transpose(0, 1), w.unflatten(0, (2, -1)))


PROGRAMS = (plain, biased, scaled, activated, prepared, padded, turned, batched, added_to_batches)
TOLERANCE = {torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 1.5e-1}


@pytest.mark.parametrize("word", ["library", "x"])
@pytest.mark.parametrize(
    ("fn", "dtype"),
    [*((fn, torch.bfloat16) for fn in PROGRAMS), (activated, torch.float32), (activated, torch.float16)],
)
def test_each_way_gives_what_eager_gives(
    fn: Callable[..., object], dtype: torch.dtype, word: str, preferring: Preferring
) -> None:
    torch.manual_seed(0)
    m, n, k = 37, 50, 70
    args = [torch.randn(s).to(dtype) for s in ((m, k), (n, k), (n,), (m, n))]
    args[1] = args[1].t()
    with preferring(word):
        found = compiled(fn)(*args)
        torch.testing.assert_close(found, fn(*args), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        (choice,) = [c for c in choices() if any(t.label == "library" for t in c.tried)]
        assert choice.how == "measured" and word in choice.chosen and len(choice.tried) >= 4
        assert session().totals().extern == 0


@pytest.mark.parametrize("word", ["library", "x"])
def test_sizes_that_change(word: str, preferring: Preferring) -> None:
    w, b = torch.randn(40, 24), torch.randn(24)
    with preferring(word):
        quick = compiled(lambda x: (x @ w + b).relu() + x[:, :24], dynamic=True)
        for rows in (5, 33, 64, 1):
            x = torch.randn(rows, 40)
            torch.testing.assert_close(quick(x), (x @ w + b).relu() + x[:, :24], rtol=1e-4, atol=1e-4)
        assert word in choices()[0].chosen


@pytest.mark.parametrize("word", ["library", "loops", "16x"])
def test_a_single_row(word: str, preferring: Preferring) -> None:
    x, w = torch.randn(1, 2000), torch.randn(2000, 400)  # on a CPU, narrower products are always loops
    with preferring(word):
        torch.testing.assert_close(compiled(lambda x, w: (x @ w).relu())(x, w), (x @ w).relu(), rtol=1e-4, atol=1e-3)
        assert word in choices()[0].chosen


@pytest.mark.parametrize("word", ["library", "x"])
def test_integers(word: str, preferring: Preferring) -> None:
    x, w = (torch.randint(-128, 128, shape).to(torch.int8) for shape in ((32, 64), (64, 48)))
    scale = torch.rand(48)

    def quantised(x: Tensor, w: Tensor) -> Tensor:
        return torch._int_mm(x, w).float() * scale

    with preferring(word):
        torch.testing.assert_close(compiled(quantised)(x, w), quantised(x, w))
        assert word in choices()[0].chosen


def test_weights_of_fewer_bits_are_widened_inside(preferring: Preferring) -> None:
    x, w, scale = torch.randn(32, 64), torch.randint(-128, 128, (48, 64)).to(torch.int8), torch.rand(48, 1)

    def dequantised(x: Tensor, w: Tensor) -> Tensor:
        return x @ (w.float() * scale).t()

    with preferring("x"):
        torch.testing.assert_close(compiled(dequantised)(x, w), dequantised(x, w), rtol=1e-3, atol=1e-2)
        assert session().totals().kernels == 1


def test_training(preferring: Preferring) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.GELU(), torch.nn.Linear(40, 10))
    x = torch.randn(33, 20)
    found = []
    with preferring("x"):
        for run in (compiled(model), model):
            model.zero_grad()
            run(x).square().sum().backward()  # type: ignore[attr-defined]
            found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        assert session().totals().extern == 0
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-3)


def test_the_default_mode_leaves_products_to_the_library(preferring: Preferring) -> None:
    x, w = torch.randn(37, 70), torch.randn(70, 50)
    with preferring("x"):
        armature.compile(lambda x, w: (x @ w).relu(), fullgraph=True)(x, w)
        assert session().totals().extern == 1 and not choices()
        assert "BLOCK_M" not in session().kernel_sources()[0].text


TEXT = """
    program = tl.program_id(0)
    # Programs that run at the same time share rows and columns of a square, which stay in the L2 cache.
    square = GROUP * ((96 + BLOCK_N - 1) // BLOCK_N)
    first = program // square * GROUP
    height = tl.minimum(((40 + BLOCK_M - 1) // BLOCK_M) - first, GROUP)
    m = ((first + program % square % height) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    n = (program % square // height * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    m_in = m < 40
    n_in = n < 96
    red0 = tl.full([BLOCK_M, BLOCK_N], 0, tl.float32)
    for k_start in range(0, 128, BLOCK_K):
        k = k_start + tl.arange(0, BLOCK_K)
        k_of_left, k_of_right = k[None, :], k[:, None]
        a0 = tl.load(in0 + (k_of_left + 128 * m), m_in, 0)
        b0 = tl.load(in1 + (k_of_right + 128 * n), n_in, 0)
        red0 = helpers.dot(a0, b0, red0, "ieee")
    tmp0 = tl.load(in2 + n, n_in)
    tmp1 = tmp0.to(tl.float32)
    tmp2 = red0 + tmp1
    tmp3 = tmp2.to(tl.float16)
    tmp4 = tmp3.to(tl.float32)
    tmp5 = helpers.maximum(tmp4, tl.full([1, 1], 0.0, tl.float32))
    tmp6 = tmp5.to(tl.float16)
    tl.store(out0 + (96 * m + n), tmp6, m_in & n_in)
"""
LIBRARY = """
    with torch.no_grad():  # out= takes no arguments that need gradients, as parameters do
        torch.addmm(
            in0.as_strided([96], [1]),
            in1.as_strided([40, 128], [128, 1]),
            in2.as_strided([128, 96], [1, 128]),
            out=out0.as_strided([40, 96], [96, 1]),
        )
"""


def test_the_text_of_the_template(preferring: Preferring) -> None:
    x, w, b = torch.randn(40, 128).half(), torch.randn(96, 128).half(), torch.randn(96).half()
    with preferring("x"):
        compiled(lambda x, w, b: (functional.linear(x, w, b)).relu())(x, w, b)
        (source,) = session().kernel_sources()
    text = "\n".join(line.partition("  # test_")[0].rstrip() for line in source.text.splitlines())
    assert TEXT.strip("\n") in text, source.text
    assert LIBRARY.strip("\n") in text, source.text
    assert text.count("BLOCK_M: tl.constexpr") == 1  # one function for all tile sizes


@pytest.mark.parametrize(("precision", "word"), [("highest", '"ieee"'), ("high", '"tf32"')])
def test_float32_is_rounded_as_torch_rounds_it(precision: str, word: str, preferring: Preferring) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        with preferring("x"):
            compiled(lambda x: x @ x)(torch.randn(64, 64))
            assert word in session().kernel_sources()[0].text
    finally:
        torch.set_float32_matmul_precision(before)


H100 = blocks.Device("H100", 90, 132, 227 << 10)


@pytest.mark.parametrize(
    "sizes",
    [(1, 4096, 4096, 4096, 2), (1, 16, 4096, 4096, 2), (64, 128, 128, 64, 2), (1, 8192, 64, 512, 4), (1, 3, 5, 7, 2)],
)
def test_few_tile_sizes_are_considered(sizes: tuple[int, int, int, int, int]) -> None:
    wanted = blocks.Sizes(*sizes)
    found = blocks.candidates(wanted, H100)
    assert 1 <= len(found) <= blocks.MOST_MEASURED and len(set(found)) == len(found)
    assert all(blocks.shared_bytes(b, wanted.bytes) <= H100.shared for b in found)
    assert len(blocks.candidates(wanted, blocks.Device(shared=48 << 10))) >= 1


def test_large_matrices_get_large_tiles_and_thin_ones_do_not() -> None:
    large = blocks.candidates(blocks.Sizes(1, 8192, 8192, 8192, 2), H100)[0]
    thin = blocks.candidates(blocks.Sizes(1, 16, 8192, 8192, 2), H100)[0]
    assert large.m * large.n >= 128 * 128 and thin.m == 16


def specs_of_template(preferring: Preferring, fn: Callable[..., object], *args: Tensor) -> tuple[str, list[KernelSpec]]:
    with preferring("x"):
        compiled(fn)(*args)
        source = session().kernel_sources()[0]
        groups: tuple[GroupSpec, ...] = source.meta["groups"]  # type: ignore[assignment]
    every = [part.spec for group in groups for each in group.alternatives for part in each.parts]
    return source.text, [s for s in every if isinstance(s, KernelSpec) and s.name.endswith("_template")]


def compile_template(text: str, spec: KernelSpec, capability: int, folder: Path) -> Binary:
    path = folder / "template.py"
    path.write_text(text)
    return toolchain.compile_function(toolchain.functions_of(text, path)[spec.name], spec, capability)


DISASSEMBLER = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
UNITS = {80: "HMMA", 90: "HGMMA"}  # instructions of the matrix units, by capability


@pytest.mark.parametrize("capability", UNITS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_templates_become_machine_code(
    dtype: torch.dtype, capability: int, preferring: Preferring, tmp_path: Path
) -> None:
    args = [torch.randn(shape).to(dtype) for shape in ((64, 70), (70, 96), (96,), (64, 96))]
    text, specs = specs_of_template(preferring, activated, *args)
    built = [compile_template(text, spec, capability, tmp_path) for spec in (specs[0], specs[-1].unaligned())]
    assert all(binary.cubin.startswith(b"\x7fELF") and binary.spilled == 0 for binary in built)


@pytest.mark.skipif(not DISASSEMBLER.exists(), reason="Triton comes without a disassembler")
@pytest.mark.parametrize("capability", UNITS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_multiplied_by_matrix_units(
    dtype: torch.dtype, capability: int, preferring: Preferring, tmp_path: Path
) -> None:
    args = [torch.randn(shape).to(dtype) for shape in ((128, 256), (256, 128), (128,), (128, 128))]
    text, specs = specs_of_template(preferring, activated, *args)
    constants = (("BLOCK_M", 64), ("BLOCK_N", 64), ("BLOCK_K", 64), ("GROUP", 8))
    spec = attrs.evolve(specs[0], constants=constants, num_warps=4)
    (tmp_path / "kernel.cubin").write_bytes(compile_template(text, spec, capability, tmp_path).cubin)
    command = [str(DISASSEMBLER), "-sass", str(tmp_path / "kernel.cubin")]
    assert UNITS[capability] in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_values_that_do_not_fit_in_registers_are_noticed(preferring: Preferring, tmp_path: Path) -> None:
    text, specs = specs_of_template(preferring, plain, torch.randn(64, 64), torch.randn(64, 64), *[torch.randn(1)] * 2)
    constants = (("BLOCK_M", 256), ("BLOCK_N", 256), ("BLOCK_K", 16), ("GROUP", 8))
    crowded = attrs.evolve(specs[0], constants=constants, num_warps=2)
    assert compile_template(text, crowded, 80, tmp_path).spilled > 0
