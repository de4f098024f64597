"""The device back end: from kernels to Triton functions, to cubins, to callables."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import math
import os
import tokenize
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

import attrs
import torch

from armature.backend_api import (
    Alternative,
    Features,
    GraphCall,
    GroupSpec,
    KernelPlan,
    KernelSource,
    LibrarySpec,
    Work,
    in_order,
    join,
    launches_of,
    measured,
    raw_stream_getter,
)
from armature.plugin_api import BackendError
from armature_gpu_triton import flexible, launch
from armature_gpu_triton.binary import Binary
from armature_gpu_triton.blocks import Device
from armature_gpu_triton.features import FEATURES
from armature_gpu_triton.kernel_printer import HEADER
from armature_gpu_triton.processes import NoProcess, Processes
from armature_gpu_triton.source import BACKEND, print_kernels
from armature_gpu_triton.spec import KernelSpec
from armature_gpu_triton.timing import with_events

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


def device_of(index: int | None) -> Device:
    """The description of a CUDA device (None: the current one)."""
    facts = torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index)
    return Device(
        facts.name,
        facts.major * 10 + facts.minor,
        facts.multi_processor_count,
        getattr(facts, "shared_memory_per_block_optin", Device().shared),
    )


def module(name: str) -> ModuleType:
    """A module that imports Triton, which takes most of a second: not needed if all kernels are cached."""
    return importlib.import_module(f"armature_gpu_triton.{name}")


@attrs.define(eq=False)
class TritonBackend:
    """Triton kernels for CUDA devices.

    interpret: run kernels in Triton's interpreter, on CPU tensors; by default if TRITON_INTERPRET is set. timer:
    measures kernels; None: with CUDA events, and not at all in the interpreter. device: the description of a device by
    its index.
    """

    interpret: bool = attrs.field(factory=asked_to_interpret)
    device_types: frozenset[str] = frozenset(("cuda",))
    name: str = BACKEND
    features: Features = FEATURES
    timer: measured.Timer | None = None
    device: Callable[[int | None], Device] | None = None
    processes: Processes = attrs.field(factory=Processes, init=False)

    def described(self, index: int | None) -> Device:
        """The description of a device."""
        if self.device is not None:
            return self.device(index)
        return Device() if self.interpret or not torch.cuda.is_available() else device_of(index)

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

    def prepare(self, ctx: Services) -> None:
        """Start the process whose forks compile, while the graph is made."""
        if not self.interpret:
            self.processes.prepare()

    def generate(self, kernels: Sequence[Work], plan: KernelPlan, ctx: Services) -> KernelSource:
        """Print all kernels of one graph as a Python module of Triton functions."""
        device = self.described(kernels[0].device.index) if ctx.config.autotune else None
        return print_kernels(kernels, plan.buffers, (f"triton={metadata.version('triton')}",), device)

    def build(self, source: KernelSource, ctx: Services) -> Mapping[str, Callable[..., None]]:
        """A callable per kernel. Errors: BackendError with the compiler's message."""
        groups = tuple(cast("Sequence[GroupSpec]", source.meta["groups"]))
        build = _Build(source, ctx, self.processes, self.interpret)
        if any(group.alternatives for group in groups):
            groups = _Choices(self, build).run(groups)
        ready = build.launches(launch.specs_of(groups))
        return join(groups, ready.__getitem__, lambda group: launch.place_of(group, build.device_type))

    def compile_call(self, call: GraphCall, ctx: Services) -> Callable[..., object] | None:
        """Flexible attention. Errors: BackendError."""

        def build(source: KernelSource, specs: Sequence[KernelSpec]) -> Mapping[KernelSpec, launch.Launch]:
            return _Build(source, ctx, self.processes, self.interpret).launches(specs)

        return flexible.compile_call(call, build, "cpu" if self.interpret else "cuda")


@attrs.frozen(eq=False)
class _Build:
    """The build of one source."""

    source: KernelSource
    ctx: Services
    processes: Processes
    interpret: bool = False

    @property
    def device_type(self) -> str:
        """Where the callables run."""
        return "cpu" if self.interpret else "cuda"

    def launches(self, specs: Sequence[KernelSpec]) -> dict[KernelSpec, launch.Launch]:
        """A callable per function."""
        return self.interpreted(specs) if self.interpret else self.bound(specs)

    def path(self) -> Path:
        """The cached file of the generated module, where Triton, tracebacks and profilers find its lines."""

        def write(path: Path) -> None:
            path.write_text(self.source.text, encoding="utf-8")

        return self.ctx.cache.load((self.source.text,), ".py", write, lambda path: path)

    def functions(self) -> Mapping[str, object]:
        """The generated module, run here."""
        found: Mapping[str, object] = module("toolchain").functions_of(self.source.text, self.path())
        return found

    def interpreted(self, specs: Sequence[KernelSpec]) -> dict[KernelSpec, launch.Launch]:
        """Callables that run in the interpreter."""
        if not specs:
            return {}
        functions = self.functions()
        interpret = module("interpreted").interpret
        return {s: launch.interpreted_launch(interpret(functions[s.name]), s) for s in specs}

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

    def effort(self, spec: KernelSpec) -> float:
        """How long the function takes to compile, in no unit: a line is code for each element of a thread."""
        bodies = cast("Mapping[str, str]", self.source.meta["bodies"])
        return bodies[spec.name].count("\n") * math.prod(value for _, value in spec.constants) / spec.num_warps

    def binary(self, spec: KernelSpec, capability: int) -> Binary:
        """The cubin, cached or compiled now. Errors: BackendError with the compiler's message."""

        def write(path: Path) -> None:
            message = self.compiled(spec, capability, path)
            if message:
                raise BackendError(
                    backend="triton",
                    what=spec.name,
                    message=message,
                    fix="Report it with the kernel's text (armature code SCRIPT --stage kernels).",
                )

        return self.ctx.cache.load(self.key(spec, capability), ".cubin", write, Binary.read)

    def compiled(self, spec: KernelSpec, capability: int, target: Path) -> str:
        """Write a cubin, made by a process of its own where one can be started; "", or the compiler's message."""
        job = (self.source.text, str(self.path()), spec, capability, str(target))
        try:
            return self.processes.compile(job, self.ctx.workers.threads)
        except NoProcess:
            return str(module("compiling").answer(job))

    def compile(self, wanted: Sequence[tuple[KernelSpec, int]]) -> None:
        """Compile those that are not cached, in parallel; errors are left to whoever needs a binary."""

        def attempt(item: tuple[KernelSpec, int]) -> None:
            with contextlib.suppress(BackendError):
                self.binary(*item)

        missing = [(s, c) for s, c in wanted if not self.ctx.cache.holds(self.key(s, c), ".cubin")]
        missing.sort(key=lambda item: self.effort(item[0]), reverse=True)  # no long one is left for the end
        # Don't use ctx.workers: this may run on one of its threads, and could then wait forever for a free one.
        with ThreadPoolExecutor(max(1, self.ctx.workers.threads)) as pool:
            list(pool.map(attempt, missing))

    def binaries(self, wanted: Sequence[tuple[KernelSpec, int]]) -> list[Binary]:
        """Cubins for functions and capabilities. Errors: BackendError."""
        self.compile(wanted)
        return [self.binary(spec, capability) for spec, capability in wanted]

    def bound(self, specs: Sequence[KernelSpec]) -> dict[KernelSpec, launch.Launch]:
        """Callables that launch on a GPU, each on its own device."""
        if not specs:
            return {}
        devices = [torch.cuda.current_device() if s.device is None else s.device for s in specs]
        capabilities = [major * 10 + minor for major, minor in map(torch.cuda.get_device_capability, devices)]
        with ThreadPoolExecutor(1) as other:
            launcher = other.submit(launch.native, self.ctx)
            built = self.binaries(list(zip(specs, capabilities, strict=True)))
            native, stream = launcher.result(), raw_stream_getter()

        def variant(spec: KernelSpec, device: int, capability: int) -> launch.Launch:
            return launch.bind(native, spec, self.binary(spec, capability), device, stream, None)

        found: dict[KernelSpec, launch.Launch] = {}
        for spec, binary, device, capability in zip(specs, built, devices, capabilities, strict=True):
            lazy = launch.Lazy(partial(variant, spec.unaligned(), device, capability))
            found[spec] = launch.bind(native, spec, binary, device, stream, lazy)
        return found

    def problems(self, group: GroupSpec) -> dict[str, str]:
        """Alternatives that can't be built, or whose values don't fit in registers, and why.

        A check of an index also takes local memory. So an alternative counts as spilling if it takes more than the tile
        sizes of the same function that take the least.
        """
        found: dict[str, str] = {}
        spilled: dict[str, dict[str, int]] = {}
        for each in group.alternatives:
            for spec in launch.specs_of([each]):
                try:
                    bytes = self.binary(spec, capability_of(spec.device)).spilled
                except BackendError as error:
                    found[each.label] = measured.first_line(error)
                    break
                spilled.setdefault(spec.name, {})[each.label] = bytes
        for labels in spilled.values():
            least = min(labels.values())
            found.update((k, f"spills {n - least} bytes per thread") for k, n in labels.items() if n > least)
        return found


def without_comments(body: str) -> str:
    """A function's text without comments: these cite lines of the program, which a choice must not depend on."""
    parameters, _, statements = body.partition("\n")
    tokens = tokenize.generate_tokens(io.StringIO(f"def kernel{parameters}:\n{statements}").readline)
    return " ".join(token.string for token in tokens if token.type != tokenize.COMMENT)


def capability_of(index: int | None) -> int:
    """The compute capability of a device (None: the current one)."""
    major, minor = torch.cuda.get_device_capability(index)
    return major * 10 + minor


@attrs.frozen(eq=False)
class _Choices:
    """What choices among alternatives of the groups of one source depend on, and how they are measured."""

    backend: TritonBackend
    build: _Build

    def run(self, groups: Sequence[GroupSpec]) -> tuple[GroupSpec, ...]:
        """The groups, each with the chosen alternative."""
        blind = self.backend.interpret and self.backend.timer is None
        reason = "no device to measure on" if blind else ""
        chooser = measured.Chooser(
            self.build.source, self.build.ctx, lambda group: self.device(group).name, self.key, self.measured, reason
        )
        return chooser.run(groups)

    def device(self, group: GroupSpec) -> Device:
        """Where a group is measured."""
        return self.backend.described(group.device)

    def key(self, group: GroupSpec) -> tuple[str, ...]:
        """Everything that the choice depends on."""
        bodies = cast("Mapping[str, str]", self.build.source.meta["bodies"])
        device = self.device(group)
        parts: list[str] = [repr(device), torch.__version__, *self.build.source.flags, repr(group.arguments)]
        for each in group.alternatives:
            parts.append(each.label)
            for part in each.parts:
                if isinstance(part.spec, LibrarySpec):
                    parts.append(part.spec.without_name)
                elif isinstance(part.spec, KernelSpec):
                    parts += (
                        without_comments(bodies[part.spec.name]),
                        repr(attrs.evolve(part.spec, name="", device=None)),
                    )
        return tuple(parts)

    def measured(self, group: GroupSpec) -> measured.Measurement:
        """The times of all alternatives."""
        build, interpret = self.build, self.backend.interpret
        if not interpret:
            every = launch.specs_of(group.alternatives)
            build.compile([(spec, capability_of(spec.device)) for spec in every])
        problems = {} if interpret else build.problems(group)
        place = launch.place_of(group, build.device_type)

        def bound(each: Alternative) -> launch.Launch:
            ready = build.launches(launch.specs_of([each]))
            return in_order(each, launches_of(each, ready.__getitem__), place)

        with contextlib.nullcontext() if interpret else torch.cuda.device(place):
            return measured.measure(group, bound, problems, place, self.backend.timer or with_events)
