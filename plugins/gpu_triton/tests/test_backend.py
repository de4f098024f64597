"""What the back end says of itself, and what building does with caches."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
import torch

import armature
from armature.backend_api import DeviceBackend, KernelPlan, KernelSource, Work
from armature.context import CompileContext
from armature.plugin_api import Services, hookimpl
from armature.plugins import manager
from armature.run.cache import Cache
from armature.run.workers import Workers
from armature.testing.backend_kit import CASES, kernel_of, plan_of, with_own_names
from armature.testing.lowering_kit import context
from armature_gpu_triton import backend as backend_module
from armature_gpu_triton import helpers, interpreted, plugin
from armature_gpu_triton.backend import TritonBackend, _Build
from armature_gpu_triton.compiling import Job
from armature_gpu_triton.features import FEATURES
from armature_gpu_triton.launch import specs_of
from armature_gpu_triton.ops import FORMS, LIBDEVICE
from armature_gpu_triton.processes import Processes
from armature_gpu_triton.spec import KernelSpec


def test_hook_answers_for_cuda_only() -> None:
    assert isinstance(plugin.armature_device_backend("cuda"), TritonBackend)
    assert plugin.armature_device_backend("cpu") is None


def test_features_are_what_the_table_prints() -> None:
    assert set(FORMS) >= FEATURES.ops
    assert torch.complex64 not in FEATURES.dtypes and torch.bfloat16 in FEATURES.dtypes


def test_interpreter_has_every_device_function() -> None:
    names = {n for n in vars(helpers) if not n.startswith("_") and hasattr(getattr(helpers, n), "fn")}
    assert names and names <= set(vars(interpreted))
    called = {*LIBDEVICE, "fmod", "pow", "rint", "trunc"}
    assert called <= set(vars(interpreted.libdevice)) and all(hasattr(helpers.libdevice, n) for n in called)


def test_every_device_function_says_what_it_does() -> None:
    for name, value in vars(helpers).items():
        if not name.startswith("_") and hasattr(value, "fn"):
            assert inspect.getdoc(value.fn), name


def test_missing_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_module, "triton_version", lambda: None)
    assert "pip install 'triton>=3.4'" in str(TritonBackend().missing())
    monkeypatch.setattr(backend_module, "triton_version", lambda: (3, 1))
    assert "too old" in str(TritonBackend().missing())


def test_missing_device_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "nvidia-smi" in str(TritonBackend(interpret=False).missing())
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "without CUDA" in str(TritonBackend(interpret=False).missing())
    assert TritonBackend(interpret=True).missing() is None


def test_source_can_be_kept() -> None:
    case = next(c for c in CASES if c.name == "layer_norm")
    plan = plan_of([with_own_names(case.make(torch.device("cpu"), FEATURES))])
    source = TritonBackend().generate(plan.kernels, plan, context(()))
    assert pickle.loads(pickle.dumps(source)) == source


def test_built_kernels_are_found_without_triton(compile_context: CompileContext, tmp_path: Path) -> None:
    """The second build of a source compiles nothing."""
    case = next(c for c in CASES if c.name == "rows")
    plan = plan_of([with_own_names(case.make(torch.device("cpu"), FEATURES))])
    ctx = attrs.evolve(compile_context, cache=Cache(tmp_path), events=[])
    source = TritonBackend().generate(plan.kernels, plan, ctx)
    specs = specs_of(source.meta["groups"])  # type: ignore[arg-type]
    build = _Build(source, ctx, Processes())
    first = build.binaries([(s, 90) for s in specs])
    misses = ctx.cache.misses
    second = build.binaries([(s, 90) for s in specs])
    assert first == second and ctx.cache.misses == misses > 0
    build.binaries([(specs[0].unaligned(), 90)])
    assert ctx.cache.misses == misses + 1
    damaged: list[bytes] = []
    for path in ctx.cache.files():  # cubins, and the text that they are compiled from
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
        damaged.append(bytes(content))
    again = build.binaries([(s, 90) for s in specs])
    # Of the code, the length: ptxas of Triton 3.6 writes the time of the source's file among the lines for debuggers.
    shapes = [[attrs.evolve(b, cubin=bytes(len(b.cubin))) for b in built] for built in (first, again)]
    assert shapes[0] == shapes[1] and not any(b.cubin in content for b in again for content in damaged)
    assert len(ctx.cache.rebuilt) == len(specs) + 1


def test_plugin_does_not_import_triton() -> None:
    """Triton takes most of a second to import, and a cached kernel needs none of it."""
    lines = (
        "import sys, torch",
        "before = 'triton' in sys.modules",
        "import armature_gpu_triton.plugin as plugin",
        "plugin.armature_device_backend('cuda')",
        "print(before or 'triton' not in sys.modules)",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_wide_tiles_are_interpreted_alike(compile_context: CompileContext) -> None:
    """A kernel cut into pieces gives what torch gives."""
    case = next(c for c in CASES if c.name == "loss_over_everything")
    sketch = with_own_names(case.make(torch.device("cpu"), FEATURES))
    plan = plan_of([sketch])
    backend = TritonBackend(interpret=True)
    launches = backend.build(backend.generate(plan.kernels, plan, compile_context), compile_context)
    kernel = kernel_of(sketch)
    memory = {n: m.clone() for n, m in sketch.memory.items()}
    launches[kernel.name](*(memory[n] for n in kernel.arguments))
    x, y = (memory[n] for n in kernel.reads)
    torch.testing.assert_close(memory[kernel.writes[0]][0], (x - y).pow(2).mean())


class Noted(Processes):
    """Notes which functions are compiled, and compiles none."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def compile(self, job: Job, limit: int) -> str:
        self.names.append(job[2].name)
        return "not compiled"


def test_what_takes_longest_is_compiled_first(compile_context: CompileContext, tmp_path: Path) -> None:
    long, wide, short = "(x)\n" + "    y = x\n" * 9, "(x)\n    y = x\n", "(x)\n    y = x\n"
    bodies = {"short": short, "wide": wide, "long": long}
    source = KernelSource("triton", "python", "", {}, meta={"bodies": bodies})
    specs = [KernelSpec(name, ("*fp32",), (0,), (("XBLOCK", 128),), (1, 1, 1)) for name in bodies]
    specs[1] = attrs.evolve(specs[1], constants=(("XBLOCK", 4096),), num_warps=8)
    noted = Noted()
    ctx = attrs.evolve(compile_context, cache=Cache(tmp_path), workers=Workers(1), events=[])
    _Build(source, ctx, noted).compile([(spec, 90) for spec in specs])
    assert noted.names == ["wide", "long", "short"]


@attrs.frozen
class Serves:
    """A plugin that serves "cpu" by this back end."""

    backend: DeviceBackend
    ARMATURE_PRIORITY = 100

    @hookimpl
    def armature_device_backend(self, device_type: str) -> DeviceBackend | None:
        return self.backend if device_type == "cpu" else None


class Preparing(TritonBackend):
    """Notes what it is asked to do."""

    steps: list[str]

    def prepare(self, ctx: Services) -> None:
        self.steps.append("prepare")

    def generate(self, kernels: Sequence[Work], plan: KernelPlan, ctx: Services) -> KernelSource:
        self.steps.append("generate")
        return super().generate(kernels, plan, ctx)


def test_compilers_start_before_kernels_are_made(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Preparing(True, frozenset(("cpu",)))
    backend.steps = []
    with manager().registered(Serves(backend), "preparing"):
        armature.compile(torch.nn.functional.silu)(torch.ones(3))
    assert backend.steps == ["prepare", "generate"]
    started: list[Processes] = []
    monkeypatch.setattr(Processes, "prepare", lambda pool: started.append(pool))
    compiling, interpreting = TritonBackend(False), TritonBackend(True)
    for each in (compiling, interpreting):
        each.prepare(context(()))
    assert started == [compiling.processes]
