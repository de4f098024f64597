"""All kernels of a graph as one translation unit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from armature.backend_api import Buffer, GroupSpec, Lines, Work
from armature_cpu_cpp.alternatives import Functions

ENTRY = "armature_kernels"
"""The one exported function: takes DLPack's view function or null, gives a tuple of the kernels in their order."""
COMMENT = re.compile(r"[ \t]*//.*")  # no printed literal contains two slashes


def print_kernels(
    kernels: Sequence[Work], buffers: Mapping[str, Buffer], functions: Functions
) -> tuple[str, tuple[GroupSpec, ...]]:
    """The source text, and what each kernel calls. Deterministic: the same kernels give the same text."""
    groups = tuple(functions.group(kernel, buffers) for kernel in kernels)
    lines = Lines("// ", indent="  ")
    for header in ("armature_cpu.h", *sorted(functions.headers)):
        lines.add(f'#include "{header}"')
    lines.add("using namespace armature;")
    for text in functions.texts.values():
        lines.add()
        lines.lines += text.split("\n")
    lines.add()
    with lines.indented("static PyMethodDef kernel_table[] = {", "};"):
        for name in functions.texts:
            lines.add(f'{{"{name}", {name}::call, METH_FASTCALL, nullptr}},')
    lines.add(f"EXPORTED PyObject* {ENTRY}(void* view) {{ return functions(kernel_table, view); }}")
    return str(lines), groups


def without_comments(text: str) -> str:
    """The text without comments: they cite lines of the program, which may move without changing the library."""
    return COMMENT.sub("", text)
