"""The device back end for CPUs: the kernels of a graph as one C++ source, built into a library that Python calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs
import torch

from armature.backend_api import Features, GroupSpec, KernelPlan, KernelSource, Work, join, measured
from armature.plugin_api import BackendError
from armature_cpu_cpp import choices, isa, launch, toolchain
from armature_cpu_cpp.alternatives import Functions
from armature_cpu_cpp.features import FEATURES
from armature_cpu_cpp.source import print_kernels, without_comments

if TYPE_CHECKING:
    from armature.plugin_api import Services


CPU = torch.device("cpu")


@attrs.define(eq=False)
class CpuBackend:
    """C++ with vectors and OpenMP. `target`: the instructions to use, by default this machine's. `timer`: times a
    call where there are several ways to compute a kernel."""

    name: str = "cpu_cpp"
    device_types: frozenset[str] = frozenset(("cpu",))
    features: Features = FEATURES
    target: isa.Isa = attrs.field(factory=isa.detect)
    timer: measured.Timer = choices.shortest

    def generate(self, kernels: Sequence[Work], plan: KernelPlan, ctx: Services) -> KernelSource:
        """Print the kernels. `flags` has the compiler's version and options and the version of our headers."""
        compiler = toolchain.find(ctx.config.cpp_compiler)
        functions = Functions(self.target.register_bytes, ctx.config.cpu_threads, ctx.config.autotune)
        text, groups = print_kernels(kernels, plan.buffers, functions)
        openmp = "parallel" in text
        options = toolchain.flags(self.target, openmp, ctx.config.cpp_flags)
        keys = (compiler.version, toolchain.header_digest(), *toolchain.libraries(openmp))
        meta = {"compiler": compiler.command, "options": options, "openmp": openmp, "groups": groups}
        return KernelSource(
            self.name, "cpp", text, {k.name: k.arguments for k in kernels}, (*options, *keys),
            {**meta, "bodies": functions.bodies}, {group.name: functions.text_of(group) for group in groups},
        )  # fmt: skip

    def build(self, source: KernelSource, ctx: Services) -> Mapping[str, Callable[..., None]]:
        """Compile sources that are not cached, load the library, and choose where there are several ways."""
        compiler = toolchain.find(ctx.config.cpp_compiler)
        options = source.meta["options"]
        if not isinstance(options, tuple):
            raise TypeError(f"options are {type(options).__name__}")

        def make(made: Path) -> None:
            text = made.with_suffix(".cpp")
            text.write_text(source.text, encoding="utf-8")
            toolchain.build(compiler, options, bool(source.meta["openmp"]), text, made)

        # Comments are left out of the key: they cite lines of the program, which may move without changing the library.
        parts = (self.name, without_comments(source.text), *source.flags)
        bodies = cast("Mapping[str, str]", source.meta["bodies"])
        groups = cast("tuple[GroupSpec, ...]", source.meta["groups"])
        functions: Mapping[str, Callable[..., None]] = {}
        if bodies:  # else each kernel is a call of torch
            functions = ctx.cache.load(parts, ".so", make, lambda path: launch.load(path, bodies))
        if any(group.alternatives for group in groups):
            groups = choices.chooser(source, ctx, functions, self.timer).run(groups)
        return join(groups, lambda function: functions[function.name], lambda group: CPU)

    def missing(self) -> str | None:
        """What prevents building kernels here, with the command that fixes it."""
        try:
            toolchain.find("")
        except BackendError as error:
            return str(error)
        return None
