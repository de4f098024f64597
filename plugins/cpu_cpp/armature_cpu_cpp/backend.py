"""The device back end for CPUs: the kernels of a graph as one C++ source, built into a library that Python calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from armature.backend_api import Features, KernelPlan, KernelSource, Work
from armature.plugin_api import BackendError
from armature_cpu_cpp import isa, launch, toolchain
from armature_cpu_cpp.features import FEATURES
from armature_cpu_cpp.source import print_kernels

if TYPE_CHECKING:
    from armature.plugin_api import Services


COMMENT = re.compile(r"[ \t]*//.*")  # no printed literal contains two slashes


@attrs.define(eq=False)
class CpuBackend:
    """C++ with vectors and OpenMP. `target`: the instructions to use, by default this machine's."""

    name: str = "cpu_cpp"
    device_types: frozenset[str] = frozenset(("cpu",))
    features: Features = FEATURES
    target: isa.Isa = attrs.field(factory=isa.detect)

    def generate(self, kernels: Sequence[Work], plan: KernelPlan, ctx: Services) -> KernelSource:
        """Print the kernels. `flags` has the compiler's version and options and the version of our headers."""
        compiler = toolchain.find(ctx.config.cpp_compiler)
        text, parts = print_kernels(kernels, plan.buffers, self.target.register_bytes, ctx.config.cpu_threads)
        openmp = "parallel" in text
        options = toolchain.flags(self.target, openmp, ctx.config.cpp_flags)
        keys = (compiler.version, toolchain.header_digest(), *toolchain.libraries(openmp))
        return KernelSource(
            self.name, "cpp", text, {k.name: k.arguments for k in kernels}, (*options, *keys),
            {"compiler": compiler.command, "options": options, "openmp": openmp}, parts,
        )  # fmt: skip

    def build(self, source: KernelSource, ctx: Services) -> Mapping[str, Callable[..., None]]:
        """Compile sources that are not cached, and load the library."""
        compiler = toolchain.find(ctx.config.cpp_compiler)
        options = source.meta["options"]
        if not isinstance(options, tuple):
            raise TypeError(f"options are {type(options).__name__}")

        def make(made: Path) -> None:
            text = made.with_suffix(".cpp")
            text.write_text(source.text, encoding="utf-8")
            toolchain.build(compiler, options, bool(source.meta["openmp"]), text, made)

        # Comments are left out of the key: they cite lines of the program, which may move without changing the library.
        parts = (self.name, COMMENT.sub("", source.text), *source.flags)
        return ctx.cache.load(parts, ".so", make, lambda path: launch.load(path, source.kernels))

    def missing(self) -> str | None:
        """What prevents building kernels here, with the command that fixes it."""
        try:
            toolchain.find("")
        except BackendError as error:
            return str(error)
        return None
