"""The device back end: from kernels to Triton functions, to cubins, to callables."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attrs
import torch

from armature.backend_api import Features, KernelPlan, KernelSource, Work, raw_stream_getter
from armature_gpu_triton import launch
from armature_gpu_triton.binary import Binary
from armature_gpu_triton.features import FEATURES
from armature_gpu_triton.kernel_printer import HEADER
from armature_gpu_triton.source import BACKEND, print_kernels
from armature_gpu_triton.spec import GroupSpec, KernelSpec

if TYPE_CHECKING:
    from armature.plugin_api import Services

OLDEST = (3, 4)
TEXTS = ("helpers.py",)  # files besides a kernel's own text that determine its cubin


def asked_to_interpret() -> bool:
    """Whether Triton's own switch is set."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes")


def triton_version() -> tuple[int, ...] | None:
    """Version of the installed Triton; None if there is none. Does not import it."""
    if importlib.util.find_spec("triton") is None:
        return None
    return tuple(int(n) for n in metadata.version("triton").split("+")[0].split(".")[:2] if n.isdigit())


@attrs.define(eq=False)
class TritonBackend:
    """Triton kernels for CUDA devices.

    interpret: run kernels in Triton's interpreter, on CPU tensors; by default if TRITON_INTERPRET is set.
    """

    interpret: bool = attrs.field(factory=asked_to_interpret)
    device_types: frozenset[str] = frozenset(("cuda",))
    name: str = BACKEND
    features: Features = FEATURES

    def missing(self) -> str | None:
        """What is missing, and how to install it."""
        version = triton_version()
        if version is None:
            return "Triton is not installed: pip install 'triton>=3.4'"
        if version < OLDEST:
            return f"Triton {'.'.join(map(str, version))} is too old: pip install -U 'triton>=3.4'"
        if self.interpret:
            return None
        if torch.version.hip is not None:
            return "this torch is built for ROCm, and the back end makes code for CUDA: install a CUDA build of torch"
        if torch.version.cuda is None:
            return "this torch is built without CUDA: pip install torch from https://download.pytorch.org/whl/cu130"
        if not torch.cuda.is_available():
            return "no CUDA device is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES"
        return None if launch.compiler() else f"no C compiler for the launcher. {launch.FIX}"

    def generate(self, kernels: Sequence[Work], plan: KernelPlan, ctx: Services) -> KernelSource:
        """Print all kernels of one graph as a Python module of Triton functions."""
        return print_kernels(kernels, plan.buffers, (f"triton={metadata.version('triton')}",))

    def build(self, source: KernelSource, ctx: Services) -> Mapping[str, Callable[..., None]]:
        """A callable per kernel. Errors: BackendError with the compiler's message."""
        groups = tuple(cast("Sequence[GroupSpec]", source.meta["groups"]))
        build = _Build(source, ctx)
        specs = launch.specs_of(groups)
        if self.interpret:
            return launch.join(groups, build.interpreted(specs), "cpu")
        return launch.join(groups, build.bound(specs), "cuda")


@attrs.frozen(eq=False)
class _Build:
    """The build of one source."""

    source: KernelSource
    ctx: Services

    @property
    def toolchain(self) -> Any:
        """Imported only when something has to be compiled, because importing Triton takes most of a second."""
        return importlib.import_module("armature_gpu_triton.toolchain")

    def functions(self) -> Mapping[str, Any]:
        """The generated module, run from a cached file, where Triton, tracebacks and profilers find its lines."""

        def write(path: Path) -> None:
            path.write_text(self.source.text, encoding="utf-8")

        found: Mapping[str, Any] = self.ctx.cache.load(
            (self.source.text,), ".py", write, lambda path: self.toolchain.functions_of(self.source.text, path)
        )
        return found

    def interpreted(self, specs: Sequence[KernelSpec]) -> dict[str, launch.Launch]:
        """Callables that run in the interpreter."""
        if not specs:
            return {}
        functions = self.functions()
        return {s.name: launch.interpreted_launch(self.toolchain.interpret(functions[s.name]), s) for s in specs}

    def key(self, spec: KernelSpec, capability: int) -> tuple[str, ...]:
        bodies = cast("Mapping[str, str]", self.source.meta["bodies"])
        folder = Path(__file__).parent
        plain = attrs.evolve(spec, name="", device=None, grid=(0, 0, 0))
        return (
            HEADER,
            bodies[spec.name],
            repr(plain),
            f"sm_{capability}",
            *self.source.flags,
            *((folder / name).read_text() for name in TEXTS),
        )

    def binary(self, spec: KernelSpec, capability: int, functions: Mapping[str, Any] | None = None) -> Binary:
        """The cubin, cached or compiled now."""

        def write(path: Path) -> None:
            found = self.functions() if functions is None else functions
            self.toolchain.compile_function(found[spec.name], spec, capability).write(path)

        return self.ctx.cache.load(self.key(spec, capability), ".cubin", write, Binary.read)

    def binaries(self, wanted: Sequence[tuple[KernelSpec, int]]) -> list[Binary]:
        """Cubins for functions and capabilities; those not cached are compiled in parallel.

        LLVM and ptxas run outside of Python's lock.
        """
        missing = [(s, c) for s, c in wanted if not self.ctx.cache.holds(self.key(s, c), ".cubin")]
        functions = self.functions() if missing else None
        if len(missing) > 1:
            # Not ctx.workers: this may run on one of its threads, and would wait for a free one forever.
            with ThreadPoolExecutor(max(1, self.ctx.workers.threads)) as pool:
                list(pool.map(lambda item: self.binary(item[0], item[1], functions), missing))
        return [self.binary(spec, capability, functions) for spec, capability in wanted]

    def bound(self, specs: Sequence[KernelSpec]) -> dict[str, launch.Launch]:
        """Callables that launch on a GPU, each on its own device."""
        if not specs:
            return {}
        devices = [torch.cuda.current_device() if s.device is None else s.device for s in specs]
        capabilities = [major * 10 + minor for major, minor in map(torch.cuda.get_device_capability, devices)]
        module, stream = launch.native(self.ctx), raw_stream_getter()

        def variant(spec: KernelSpec, device: int, capability: int) -> launch.Launch:
            return launch.bind(module, spec, self.binary(spec, capability), device, stream, None)

        found: dict[str, launch.Launch] = {}
        built = self.binaries(list(zip(specs, capabilities, strict=True)))
        for spec, binary, device, capability in zip(specs, built, devices, capabilities, strict=True):
            lazy = launch.Lazy(partial(variant, spec.unaligned(), device, capability))
            found[spec.name] = launch.bind(module, spec, binary, device, stream, lazy)
        return found
