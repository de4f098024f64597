"""The launcher against a stand-in for the CUDA driver: what is bound, what a call passes, what goes wrong."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from armature.backend_api import GroupSpec, Part, in_order
from armature.context import CompileContext
from armature.errors import BackendError
from armature_gpu_triton import launch
from armature_gpu_triton.binary import Binary
from armature_gpu_triton.spec import KernelSpec

NAMES = ("function", "x", "y", "z", "block_x", "block_y", "block_z", "shared", "stream")
SPEC = KernelSpec("add_0", ("*fp32", "*fp32", "i64"), (0, 1), (("XBLOCK", 128),), (5, 1, 1))


class Driver:
    """The launcher's module over the stand-in, and what the stand-in saw."""

    def __init__(self, module: Any, library: ctypes.CDLL) -> None:
        self.module = module
        library.fake_log.restype = ctypes.POINTER(ctypes.c_uint64)
        self.log = library.fake_log()

    def seen(self) -> dict[str, int]:
        return {name: self.log[at] for at, name in enumerate(NAMES)}

    def params(self, count: int) -> list[int]:
        return [self.log[9 + at] for at in range(count)]

    @property
    def launches(self) -> int:
        return self.log[13]

    def kernel(self, spec: KernelSpec = SPEC, unaligned: Callable[..., None] | None = None, **changes: Any) -> Any:
        binary = Binary(**({"name": "add_0", "cubin": b"cubin...", "shared": 0, "block": 128} | changes))
        return launch.bind(self.module, spec, binary, 1, lambda device: 7000 + device, unaligned)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, compile_context: CompileContext) -> Driver:
    tool = launch.compiler()
    if tool is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("driver") / "libfakecuda.so"
    source = Path(__file__).parent / "fake_driver.c"
    subprocess.run([*tool.split(), "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    return Driver(launch.native(compile_context, str(path)), ctypes.CDLL(str(path)))


def aligned(count: int) -> torch.Tensor:
    """A tensor whose memory starts at a multiple of 16 bytes."""
    flat = torch.empty(count + 4)
    return flat[(-flat.data_ptr() % 16) // 4 :]


def test_a_call_passes_pointers_sizes_grid_and_stream(driver: Driver) -> None:
    a, b = aligned(8), aligned(8)
    driver.kernel()(a, b, 2**40 + 3)
    assert driver.seen() == {
        "function": 0x1000 + len("add_0"), "x": 5, "y": 1, "z": 1, "block_x": 128, "block_y": 1, "block_z": 1,
        "shared": 0, "stream": 7001,
    }  # fmt: skip
    assert driver.params(4) == [a.data_ptr(), b.data_ptr(), 2**40 + 3, 0]


def test_grid_of_symbolic_sizes_is_computed_from_the_arguments(driver: Driver) -> None:
    spec = KernelSpec("add_0", ("*fp32", "i64"), (), (("XBLOCK", 128),), "lambda _0, s0: ((s0 + 127) // 128, 1, 1)")
    kernel = driver.kernel(spec)
    before = driver.launches
    kernel(4096, 300)
    assert driver.seen()["x"] == 3 and driver.params(2) == [4096, 300]
    kernel(4096, 0)  # nothing to do: nothing is launched
    assert driver.launches == before + 1


def test_a_number_is_read_from_the_memory_of_its_tensor(driver: Driver) -> None:
    spec = KernelSpec("add_0", ("*fp32", "fp64"), (0,), (("XBLOCK", 128),), (5, 1, 1))
    a, number = aligned(8), torch.tensor(0.1, dtype=torch.float64)
    driver.kernel(spec)(a, number)
    assert driver.params(2) == [a.data_ptr(), int(number.view(torch.int64))]


def test_unaligned_pointer_goes_to_the_other_variant(driver: Driver) -> None:
    calls: list[tuple[object, ...]] = []
    kernel = driver.kernel(unaligned=lambda *args: calls.append(args))
    before = driver.launches
    kernel(aligned(8), aligned(8)[1:], 1)
    assert driver.launches == before and len(calls) == 1 and calls[0][2] == 1
    with pytest.raises(ValueError, match="aligned to 16"):
        driver.kernel()(aligned(8)[1:], aligned(8), 1)


def test_big_shared_memory_is_asked_for(driver: Driver) -> None:
    kernel = driver.kernel(shared=100_000)
    kernel(aligned(8), aligned(8), 1)
    assert driver.log[15] == 8 * 1_000_000 + 100_000 and driver.seen()["shared"] == 100_000


def test_context_of_another_device_is_pushed_for_the_call(driver: Driver) -> None:
    kernel = driver.kernel()
    kernel(aligned(8), aligned(8), 1)
    before = driver.log[14]
    kernel(aligned(8), aligned(8), 1)
    assert driver.log[14] == before + 1


@pytest.mark.parametrize("args", [(), (1, 2), (1, 2, 3, 4)])
def test_wrong_number_of_arguments(driver: Driver, args: tuple[int, ...]) -> None:
    with pytest.raises(TypeError, match="takes 3 positional arguments"):
        driver.kernel()(*args)


def test_arguments_of_a_wrong_type(driver: Driver) -> None:
    with pytest.raises(AttributeError, match="data_ptr"):
        driver.kernel()("text", aligned(8), 1)
    with pytest.raises(TypeError):
        driver.kernel()(aligned(8), aligned(8), 1.5)


def test_driver_errors_are_raised_with_their_text(driver: Driver) -> None:
    with pytest.raises(RuntimeError, match="CUDA error 200 in cuModuleLoadData: made up"):
        driver.kernel(cubin=b"garbage")
    spec = KernelSpec("add_0", ("*fp32",), (), (), (13, 1, 1))
    with pytest.raises(RuntimeError, match="CUDA error 700 in cuLaunchKernel"):
        driver.kernel(spec)(16)


def test_kernel_is_collected_with_what_it_holds(driver: Driver) -> None:
    class Variant:
        def __call__(self, *args: object) -> None:
            raise NotImplementedError

    variant = Variant()
    watch = weakref.ref(variant)
    kernel = driver.kernel(unaligned=variant)
    variant.kernel = kernel  # type: ignore[attr-defined]  # a cycle
    del variant, kernel
    gc.collect()
    assert watch() is None


def test_missing_driver_is_named(compile_context: CompileContext) -> None:
    with pytest.raises(OSError, match="libnothere"):
        launch.native(compile_context, "libnothere.so.1")


def test_missing_compiler_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match="apt-get install gcc"):
        launch.build_native(tmp_path / "out.so")


def test_compiler_message_is_in_the_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bad = tmp_path / "launcher.c"
    bad.write_text("#include <Python.h>\nint broken(\n")
    monkeypatch.setattr(launch, "SOURCE", bad)
    with pytest.raises(BackendError, match=r"launcher\.c"):
        launch.build_native(tmp_path / "out.so")


def test_groups_share_arguments_and_workspaces() -> None:
    spec = KernelSpec("part", (), (), (), (1, 1, 1))
    parts = (Part(spec, (0, "work")), Part(spec, ("work", 1)))
    calls: list[tuple[object, ...]] = []

    def step(*args: object) -> None:
        calls.append(args)

    group = GroupSpec("sum_0", parts, (("work", 6, torch.float64),))
    call = in_order(group, [step, step], torch.device("cpu"))
    call("x", "out")
    work = calls[0][1]
    assert isinstance(work, torch.Tensor) and work.numel() == 6 and work.dtype == torch.float64
    assert calls[0][0] == "x" and calls[1] == (work, "out")


def test_single_part_is_launched_without_python_between() -> None:
    spec = KernelSpec("one", (), (), (), (1, 1, 1))

    def step(*args: object) -> None:
        raise NotImplementedError

    assert in_order(GroupSpec("one", (Part(spec, (0,)),)), [step], torch.device("cpu")) is step
