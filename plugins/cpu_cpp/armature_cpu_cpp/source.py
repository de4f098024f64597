"""All kernels of a graph as one translation unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armature.backend_api import Batch, Buffer, Lines, Op, Work, body_of
from armature_cpu_cpp.batch import BatchPrinter
from armature_cpu_cpp.kernel_printer import KernelPrinter
from armature_cpu_cpp.loops import plan_nest
from armature_cpu_cpp.ops import SERIES
from armature_cpu_cpp.values import identifier

ENTRY = "armature_kernels"
"""The one exported function: takes DLPack's view function or null, gives a tuple of the kernels in their order."""


def printer_of(work: Work, buffers: Mapping[str, Buffer], register_bytes: int, threads: int) -> KernelPrinter:
    """The printer of a kernel or a batch."""
    lines = Lines("// ", indent="  ")
    if not isinstance(work, Batch):
        return KernelPrinter(plan_nest(work, buffers, register_bytes, threads), buffers, lines)
    body = body_of(work, buffers)
    return BatchPrinter(work, body, plan_nest(body.kernel, body.slots, register_bytes, threads), lines)


def print_kernels(
    kernels: Sequence[Work], buffers: Mapping[str, Buffer], register_bytes: int, threads: int
) -> tuple[str, dict[str, str]]:
    """The source text, and the part of each kernel. Deterministic: the same kernels give the same text."""
    lines = Lines("// ", indent="  ")
    parts: dict[str, str] = {}
    lines.add('#include "armature_cpu.h"')
    lines.add("using namespace armature;")
    series = False
    printed: dict[str, str] = {}  # maps a kernel's text to the first kernel with that text
    for kernel in kernels:
        name = identifier(kernel.name)
        printer = printer_of(kernel, buffers, register_bytes, threads)
        printer.print()
        series |= any(isinstance(node, Op) and node.op in SERIES for node in printer.body.depends)
        text = str(printer.lines)
        first = printed.setdefault(text, name)
        lines.add()
        begin = len(lines.lines)
        for line in printer.heading():
            lines.add("", line)
        if first != name:  # layers of a model repeat: identical kernels are compiled once
            lines.add(f"namespace {name} = {first};")
        else:
            with lines.indented(f"namespace {name} {{"):
                lines.add(f'static const char* const NAME = "{name}";')
            lines.add(text.rstrip("\n"))
            lines.add("}")
        parts[kernel.name] = "\n".join(lines.lines[begin:])
    lines.add()
    with lines.indented("static PyMethodDef kernel_table[] = {", "};"):
        for kernel in kernels:
            name = identifier(kernel.name)
            lines.add(f'{{"{name}", {name}::call, METH_FASTCALL, nullptr}},')
    lines.add(f"EXPORTED PyObject* {ENTRY}(void* view) {{ return functions(kernel_table, view); }}")
    if series:
        lines.lines.insert(1, '#include "armature_series.h"')
    return str(lines), parts
