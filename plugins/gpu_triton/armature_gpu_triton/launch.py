"""Callables for built kernels: on a GPU through the launcher in `native/launcher.c`, else in Triton's interpreter.

Everything that does not change between calls is bound here, once. If a kernel became a single function, its callable is
the C launcher itself, without Python in between.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import torch

from armature.backend_api import Alternative, GroupSpec
from armature.plugin_api import BackendError
from armature_gpu_triton.binary import Binary
from armature_gpu_triton.ops import FLOAT8, NUMBER
from armature_gpu_triton.spec import KernelSpec

if TYPE_CHECKING:
    from armature.plugin_api import Services

Launch = Callable[..., None]
SOURCE = Path(__file__).parent / "native" / "launcher.c"
NAME = "armature_launcher"
DRIVER = "libcuda.so.1"
COMPILERS = ("cc", "gcc", "clang")
FIX = "Install a C compiler and Python's headers (apt-get install gcc python3-dev), or set CC."


def compiler() -> str | None:
    """The C compiler: $CC, or the first of cc, gcc and clang that is installed."""
    named = os.environ.get("CC")
    return named if named else next((c for c in COMPILERS if shutil.which(c)), None)


def build_native(path: Path) -> None:
    """Compile the launcher to an extension module. Errors: BackendError with the compiler's message."""
    tool = compiler()
    include = sysconfig.get_path("include")
    if tool is None or not Path(include, "Python.h").exists():
        raise BackendError(backend="triton", what="its launcher", message="no C compiler or no Python.h", fix=FIX)
    command = [*tool.split(), "-O2", "-shared", "-fPIC", f"-I{include}", str(SOURCE), "-o", str(path)]
    # build in the same folder, so that only one file system needs room
    environment = os.environ | {"TMPDIR": str(path.parent)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise BackendError(backend="triton", what="its launcher", message=done.stderr[-2000:], fix=FIX)


@cache
def load_native(path: Path) -> ModuleType:
    """The extension module at `path`."""
    loader = importlib.machinery.ExtensionFileLoader(NAME, str(path))
    spec = importlib.util.spec_from_file_location(NAME, path, loader=loader)
    if spec is None:
        raise ImportError(f"not an extension module: {path}")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@cache
def opened(module: ModuleType, driver: str) -> ModuleType:
    """The extension module, bound to the driver's entry points."""
    module.open(driver)
    return module


def native(ctx: Services, driver: str = DRIVER) -> ModuleType:
    """The launcher's module, built on first use."""
    key = (SOURCE.read_text(), sysconfig.get_config_var("SOABI") or "", compiler() or "")
    return opened(ctx.cache.load(key, ".so", build_native, load_native), driver)


def kinds_of(spec: KernelSpec) -> str:
    """A letter per argument, as the launcher expects."""
    letters = {"i32": "i", "i64": "l", NUMBER: "n"}
    return "".join(letters.get(t, "a" if at in spec.aligned else "p") for at, t in enumerate(spec.signature))


def bind(
    module: ModuleType,
    spec: KernelSpec,
    binary: Binary,
    device: int,
    stream: Callable[[int], int],
    unaligned: Launch | None,
) -> Launch:
    """Load a cubin on a device and bind everything that a launch needs."""
    static = isinstance(spec.grid, tuple)
    launch: Launch = module.Kernel(
        function=module.load(binary.cubin, binary.name, binary.shared, device),
        device=device,
        grid=spec.grid if static else (0, 0, 0),
        block=binary.block,
        shared=binary.shared,
        kinds=kinds_of(spec),
        stream=stream,
        grid_of=None if static else eval(str(spec.grid)),
        unaligned=unaligned,
    )
    return launch


class OnGrid(Protocol):
    """A function of Triton: `function[grid](...)` launches it."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]: ...


def interpreted_launch(function: OnGrid, spec: KernelSpec) -> Launch:
    """Run the function in Triton's interpreter. Errors: IndexError if a checked index is out of range."""
    grid_of = spec.grid if isinstance(spec.grid, tuple) else eval(spec.grid)
    constants = dict(spec.constants)

    def launch(*args: object) -> None:
        grid = grid_of if isinstance(grid_of, tuple) else grid_of(*args)
        given = (a.view(torch.uint8) if isinstance(a, torch.Tensor) and a.dtype in FLOAT8 else a for a in args)
        try:
            function[grid](*given, **constants)
        except Exception as error:
            if isinstance(error.__cause__, IndexError):
                raise error.__cause__ from None
            raise

    return launch


class Lazy:
    """The variant of a kernel for unaligned pointers, built on its first use."""

    def __init__(self, build: Callable[[], Launch]) -> None:
        self.build = build
        self.launch: Launch | None = None

    def __call__(self, *args: object) -> None:
        if self.launch is None:
            self.launch = self.build()
        self.launch(*args)


def specs_of(groups: Sequence[GroupSpec | Alternative]) -> list[KernelSpec]:
    """The functions that the groups launch, each once."""
    every = dict.fromkeys(part.spec for group in groups for part in group.parts)
    return [spec for spec in every if isinstance(spec, KernelSpec)]


def place_of(group: GroupSpec, device: str) -> torch.device:
    """Where a group's workspaces are, on devices of type `device`."""
    indexed = device == "cuda" and group.device is not None
    return torch.device(f"{device}:{group.device}" if indexed else device)
