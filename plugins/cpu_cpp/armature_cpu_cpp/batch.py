"""A batch of kernels in C++: one part function, and an entry that runs it over a table of members in one region."""

from __future__ import annotations

from armature.backend_api import Batch, Body, Lines
from armature_cpu_cpp.kernel_printer import KernelPrinter
from armature_cpu_cpp.loops import Nest
from armature_cpu_cpp.vector import cpp_type


class BatchPrinter(KernelPrinter):
    """Prints the common kernel with a special entry. Threads divide the work of all members."""

    def __init__(self, batch: Batch, body: Body, nest: Nest, lines: Lines) -> None:
        super().__init__(nest, body.slots, lines)
        self.batch = batch
        self.common = body

    def heading(self) -> list[str]:
        """Comments above it: its origin, and the buffers of its pointers in each member."""
        first = super().heading()[:-1]
        slots = list(self.common.slots)
        rows = [
            ", ".join(
                f"{self.pointers[slot]}: {binding.buffer}" for slot, binding in zip(slots, row.bindings, strict=True)
            )
            for row in self.common.rows
        ]
        return [*first, *rows]

    def table(self) -> None:
        """Per member its number of points, and per pointer of the part function the argument and its offset."""
        position = {name: k for k, name in enumerate(self.batch.arguments)}
        order = [list(self.common.slots).index(name) for name in self.pointers]
        self.lines.add("struct At { int argument; i64 offset; };")
        self.lines.add("struct Member { i64 points; At at[POINTERS]; };")
        with self.lines.indented("static const Member members[MEMBERS] = {", "};"):
            for row in self.common.rows:
                bindings = [row.bindings[k] for k in order]
                at = ", ".join(f"{{{position[p.buffer]}, {p.offset}}}" for p in bindings)
                self.lines.add(f"{{{row.points}, {{{at}}}}},")

    def entry(self) -> None:
        """The function called by Python."""
        kernel, nest, lines = self.kernel, self.nest, self.lines
        count, pointers = len(self.batch.arguments), len(self.pointers)
        opening = "static PyObject* call(PyObject*, PyObject* const* args, Py_ssize_t count) {"
        with lines.indented(opening, "}"):
            lines.add(f"constexpr int MEMBERS = {len(self.common.rows)}, POINTERS = {pointers};")
            self.table()
            lines.add(f"Arguments given(NAME, args, count, {count});")
            lines.add(f"char* base[{count}];")
            lines.add(f"for (int k = 0; k < {count}; ++k) base[k] = given.tensor<char>(k);")
            lines.add("if (given.failed) return nullptr;")
            lines.add("bool bad = false;")
            values = []
            for k, name in enumerate(self.pointers):
                kind = ("const " if name in kernel.reads else "") + cpp_type(self.buffers[name].dtype)
                values.append(f"reinterpret_cast<{kind}*>(base[member.at[{k}].argument]) + member.at[{k}].offset")
            values += ["member.points"] * len(kernel.sizes)
            run = f"part({', '.join([*values, '&bad', 'begin', 'end'])});"
            shared = bool(nest.collapsed) or (nest.split is not None and nest.split in nest.outer)
            with lines.indented("{", "}"):
                if nest.parallel and shared:
                    lines.add("Released others;")
                    lines.add(f"constexpr int N = {nest.lanes};")
                    with lines.indented("const auto units = [&](int k) -> i64 {", "};"):
                        self.sizes()
                        lines.add(f"return {self.units()};")
                    opening = "over_members<MEMBERS>(units, [&](int k, i64 begin, i64 end) {"
                    with lines.indented(opening, "});"):
                        lines.add("const auto& member = members[k];")
                        lines.add(run)
                else:
                    lines.add("constexpr i64 begin = 0, end = 1;")
                    lines.add(f"for (const auto& member : members) {run}")
            lines.add("return done(NAME, bad);")

    def sizes(self) -> None:
        """Declares the names from which the number of units is computed."""
        for size in self.kernel.sizes:
            self.lines.add(f"const i64 {size.name} = members[k].points;")
