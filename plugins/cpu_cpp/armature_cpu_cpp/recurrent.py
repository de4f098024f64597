"""Layers of recurrent networks as one loop over time (include/armature_recurrent.h): which pay, and their functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import torch

from armature_cpu_cpp import isa, launch, toolchain
from armature_cpu_cpp.source import ENTRY
from armature_cpu_cpp.vector import cpp_type

if TYPE_CHECKING:
    from armature.plugin_api import Services

DTYPES = frozenset((torch.float32, torch.float64))
SOURCE = """#include "armature_recurrent.h"
using namespace armature;
static PyMethodDef kernel_table[] = {{{{"{name}", recurrent::call_{name}<{type}>, METH_FASTCALL, nullptr}}}};
EXPORTED PyObject* {entry}(void* view) {{ return functions(kernel_table, view); }}
"""


@attrs.frozen
class Recurrence:
    """The loops over time of this back end. A library holds one, for any sizes."""

    target: isa.Isa = attrs.field(factory=isa.detect)

    def dtypes(self) -> frozenset[torch.dtype]:
        """Those for which the loops are known to be faster than torch's own functions on this machine: their products
        are, see `products.pays_by_rule`."""
        return DTYPES if isa.has_slow_library() else frozenset()

    def kernel(self, name: str, dtype: torch.dtype, ctx: Services) -> Callable[..., None]:
        """The function of that name, built unless it is stored. Errors: BackendError."""
        compiler = toolchain.find(ctx.config.cpp_compiler)
        options = toolchain.flags(self.target, True, ctx.config.cpp_flags)
        text = SOURCE.format(name=name, type=cpp_type(dtype), entry=ENTRY)

        def make(made: Path) -> None:
            source = made.with_suffix(".cpp")
            source.write_text(text, encoding="utf-8")
            toolchain.build(compiler, options, True, source, made)

        keys = (compiler.version, toolchain.header_digest(), *options, *toolchain.libraries(True))
        return ctx.cache.load((text, *keys), ".so", make, lambda path: launch.load(path, (name,)))[name]
