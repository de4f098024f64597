"""The device back end: an implementation of `armature.backend_api.DeviceBackend`."""

from __future__ import annotations

import importlib.util
import linecache
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch

from armature.backend_api import Features, Kernel, KernelPlan, KernelSource, Work
from armature.plugin_api import Services
from armature_numpy.ops import DTYPES, FORMS
from armature_numpy.printer import HEADER, print_kernel
from armature_numpy.runtime import REDUCE

FEATURES = Features(
    ops=frozenset((*FORMS, "check_index")),
    reductions=frozenset((*REDUCE, "argmax", "argmin")),
    dtypes=frozenset(DTYPES),
    atomic_add=frozenset((torch.float32, torch.float64, torch.int32, torch.int64)),
    batch=0,  # lists of tensors become one kernel each, because there are no launches to save
)


@attrs.frozen
class NumpyBackend:
    """Kernels as Python code over NumPy arrays."""

    name: str = "numpy"
    device_types: frozenset[str] = frozenset(("cpu",))
    features: Features = FEATURES

    def generate(self, kernels: Sequence[Work], plan: KernelPlan, ctx: Services) -> KernelSource:
        """Print the kernels, each as a function."""
        parts = {k.name: print_kernel(k, plan.buffers) for k in kernels if isinstance(k, Kernel)}
        text = HEADER + "\n\n".join(parts.values())
        return KernelSource(self.name, "python", text, {k.name: k.arguments for k in kernels}, parts=parts)

    def build(self, source: KernelSource, ctx: Services) -> Mapping[str, Callable[..., None]]:
        """Run the code, which defines the functions. A back end with a compiler stores built files in `ctx.cache`."""
        file = f"<numpy kernels {hash(source.text):x}>"
        linecache.cache[file] = (len(source.text), None, source.text.splitlines(keepends=True), file)  # for tracebacks
        namespace: dict[str, Any] = {}
        exec(compile(source.text, file, "exec"), namespace)
        return {name: namespace[name] for name in source.kernels}

    def missing(self) -> str | None:
        """What prevents it from working here, with the command that fixes it."""
        return None if importlib.util.find_spec("numpy") else "NumPy is not installed: pip install numpy"
