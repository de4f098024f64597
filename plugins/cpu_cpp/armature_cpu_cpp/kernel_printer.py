"""One kernel in C++: its part function (a thread's share of the loops) and the function called by Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import attrs

from armature.backend_api import (
    Accumulate,
    Buffer,
    Guarded,
    Index,
    IndexValue,
    Let,
    Lines,
    Load,
    Node,
    Op,
    PassBody,
    Reduce,
    Scan,
    Statement,
    Var,
    Write,
    heading,
    hint,
    numel,
    origin_of,
    place,
    stride_of,
    variables,
)
from armature_cpu_cpp import reduce, scans
from armature_cpu_cpp.loops import Nest
from armature_cpu_cpp.pairs import WritePair, paired
from armature_cpu_cpp.scratch import plan_scratch
from armature_cpu_cpp.segments import Segment, cut
from armature_cpu_cpp.values import ValuePrinter, identifier
from armature_cpu_cpp.vector import accumulator, cpp_type, literal

# values that one accumulator of a float sum takes before it is added to a total, to limit rounding errors
SUM_BLOCK = 512


@attrs.frozen
class Range:
    """The range of a loop, in C++: points, or blocks of lanes for the vector's loop, from `begin` to before `end`."""

    begin: str
    end: str


class KernelPrinter(ValuePrinter):
    """Prints one kernel."""

    def __init__(self, nest: Nest, buffers: Mapping[str, Buffer], lines: Lines) -> None:
        super().__init__(nest, buffers, lines)
        self.targets: dict[Reduce, str] = {}  # accumulators of the current loop
        self.ways = 1  # how many of them are used in turn
        self.scratch = plan_scratch(self.body, nest)
        self.step = 0  # the current pass
        self.in_lanes = False  # whether the vector's loop is being printed

    # Statements.

    def note(self, statement: Statement) -> str:
        """The user's line."""
        return place(origin_of(statement))

    def statement(self, statement: Statement) -> None:
        """Print one statement."""
        if isinstance(statement, Let):
            self._let(statement)
        elif isinstance(statement, Guarded):
            self._guarded(statement)
        elif isinstance(statement, Accumulate):
            self.accumulate(statement)
        else:
            self.write(statement)

    def _let(self, statement: Let) -> None:
        node = statement.node
        if node in self.decided:
            return
        if self.scratch.first.get(node, self.step) < self.step:
            self.lines.add(
                f"const {self.value_type(node)} {statement.name} = {self._row(node, '')};", self.note(statement)
            )
            return
        if isinstance(node, Op):
            value = self.operation(node)
        elif isinstance(node, Load):
            value = self.load(node)
        elif isinstance(node, IndexValue):
            value = self.index_value(node)
        elif isinstance(node, Scan):
            value = self.scan(statement.name, node)
        else:
            raise TypeError(f"no statement for {type(node).__name__}")
        self.lines.add(f"const {self.value_type(node)} {statement.name} = {value};", self.note(statement))
        if node in self.scratch.rows:
            self.lines.add(f"{self._row(node, statement.name)};")

    def scan(self, name: str, node: Scan) -> str:
        """The expression of a scan's next value."""
        value = self.spread(node.value) if self.lanes_vary(node) else self.text(node.value)
        return scans.step_of(name, node, value, self.nest.vector in self.nest.inner)

    def _row(self, node: Node, value: str) -> str:
        """Access to the scratch of a saved value: a load if `value` is empty, else the store of it."""
        row = self.scratch.rows[node]
        at = self.index.print(row.position)
        if not self.in_lanes_of(node):
            return f"{row.name}[{at}] = {value}" if value else f"{row.name}[{at}]"
        if value:  # store all lanes, even if they are known to be equal here, because other passes may not know that
            return f"store(l, {row.name} + {at}, {self.spread(node)})"
        return f"load(l, {row.name} + {at})" if self.lanes_vary(node) else f"{row.name}[{at}]"

    def in_lanes_of(self, node: Node) -> bool:
        """Whether a saved value differs between the inner vector's lanes, so that each has an element of its own."""
        return self.nest.vector in self.nest.inner and self.nest.vector in self.body.depends[node]

    def _declare_rows(self) -> None:
        """The scratch of saved values, for one outer point."""
        for node, row in self.scratch.rows.items():
            across = self.nest.vector in self.nest.inner
            kind = cpp_type(node.dtype) if across else self.value_type(node)
            self.lines.add(f"alignas(64) {kind} {row.name}[{row.length}];")

    def _guarded(self, statement: Guarded) -> None:
        node, outside = statement.node, self.mask
        kind = self.value_type(node)
        self.lines.add(f"{kind} {statement.name} = {kind}({literal(node.other.value, node.dtype)});")
        known = set(self.spilled)
        if self.decided.get(node.cond) is False:
            return
        if self.lanes_vary(node.cond):
            mask = f"{statement.name}_mask"
            self.lines.add(f"const Vec<bool, N> {mask} = {self.text(node.cond)} & {outside or 'active(l)'};")
            opening, self.mask = f"if (any({mask})) {{", mask
            value = f"where({mask}, {self.spread(node.value)}, {statement.name})"
        else:
            opening = f"if ({self.text(node.cond)}) {{"
            value = self.spread(node.value) if self.lanes_vary(node) else self.text(node.value)
        with self.lines.indented(opening, "}"):
            for inner in statement.body:
                self.statement(inner)
            self.lines.add(f"{statement.name} = {value};")
        self.mask, self.spilled = outside, known

    def write(self, statement: Write) -> None:
        store = statement.store
        note = self.note(statement)
        index, pointer = store.index[0], self.pointers[store.buffer]
        dtype = self.buffers[store.buffer].dtype
        stride = self.stride(index, store.indirect)
        # One store of a value that is the same in all lanes suffices; an addition counts once for each lane.
        wide = stride != 0 or self.lanes_vary(store.value) or (store.atomic and self.in_lanes)
        value = self.spread(store.value) if wide else self.text(store.value)
        if store.value.dtype != dtype:
            value = f"cast<{cpp_type(dtype)}>({value})"
        combine = reduce.FORMS[store.combine].combine
        if not wide:
            at = f"{pointer}[{self.indexer(store.indirect, False).print(index)}]"
            self.lines.add(f"{at} = {combine.format(at, value) if store.atomic else value};", note)
        elif stride == 1:
            at = f"{pointer} + {self.indexer(store.indirect, False).print(index)}"
            value = combine.format(f"load(l, {at})", value) if store.atomic else value
            self.lines.add(f"store(l, {at}, {value});", note)
        else:
            where, name = self.lane_place(index, store.indirect), "scatter"
            if store.atomic:
                name, value = "scatter_into", f"{value}, {reduce.function(store.combine)}"
            self.lines.add(f"{name}(l, {pointer}, {where}, {value});", note)

    def write_pair(self, pair: WritePair) -> None:
        """Print two stores as one."""
        store = pair.first.store
        kind = cpp_type(self.buffers[store.buffer].dtype)
        values = [f"cast<{kind}>({self.spread(write.store.value)})" for write in (pair.first, pair.second)]
        at = f"{self.pointers[store.buffer]} + {self.index.print(store.index[0])}"
        self.lines.add(f"store_pairs(l, {at}, {', '.join(values)});", self.note(pair.second))

    # Loops.

    def innermost(self, statements: Sequence[Statement]) -> None:
        """Print the statements inside all loops."""
        for statement in paired(statements, self.nest.vector):
            if isinstance(statement, WritePair):
                self.write_pair(statement)
            else:
                self.statement(statement)

    def _changes_with(self, statement: Statement, loops: Sequence[Var]) -> bool:
        """Whether the statement belongs inside one of the loops."""
        if isinstance(statement, (Write, Accumulate)):
            return True
        return bool(self.body.depends[statement.node] & frozenset(loops))

    def run(self, loops: Sequence[Var], ranges: Mapping[Var, Range], inside: Sequence[Statement], last: Loop) -> None:
        """Print the statements in the loops, each in the outermost loop possible."""
        early = [s for s in inside if loops and not self._changes_with(s, loops)]
        for statement in early:
            self.statement(statement)
        rest = [s for s in inside if s not in early]
        if not loops:
            self.innermost(rest)
            last.inside(self)
            return
        outside = self.decided, self.uniform
        with last.around(self, loops, ranges.get(loops[0])) as limit:
            for piece in self.pieces(loops[0], rest):
                with self.loop(loops[0], limit, piece):
                    self.run(loops[1:], ranges, rest, last)
                self.decided, self.uniform = outside

    def pieces(self, var: Var, statements: Sequence[Statement]) -> list[Segment | None]:
        """The vector's loop split where conditions on it change; None: all of the loop, with nothing known."""
        if var is not self.nest.vector or not isinstance(var.extent, int):
            return [None]
        nodes: list[Node] = [s.node for s in statements if isinstance(s, (Let, Guarded))]
        found = cut(nodes, var, var.extent, self.nest.lanes, self.lanes_vary)
        return [None] if len(found) == 1 and not found[0].conditions else [*found]

    @contextmanager
    def loop(self, var: Var, limit: Range | None, piece: Segment | None) -> Iterator[None]:
        """The loop over one variable, or a piece of it."""
        name, spilled = self.index.names[var], set(self.spilled)
        extent = self.index.print(var.extent)
        if var is not self.nest.vector:
            begin, end = (limit.begin, limit.end) if limit else ("0", extent)
            with self.lines.indented(f"for (i64 {name} = {begin}; {name} < {end}; ++{name}) {{", "}"):
                yield
        else:
            begin, end = (f"{limit.begin} * N", f"least({limit.end} * N, {extent})") if limit else ("0", extent)
            walk = self.walk(var.extent, limit)
            if piece is not None:
                self.decided, self.uniform = {**self.decided, **piece.conditions}, self.uniform | piece.uniform
                walk = self.walk(piece.end - piece.begin, limit)
                begin = f"most({piece.begin}, {begin})" if limit else str(piece.begin)
                end = f"least({piece.end}, {end})" if limit else str(piece.end)
                if limit and "full" in walk:  # a thread's share may begin inside the piece
                    walk = "vectors<N>"
            body = "LANES_OF" if self.ways > 1 else "LANES"
            with self.lines.indented(f"{walk}({begin}, {end}, {body}(l, {name}) {{", "});"):
                self.in_lanes = True
                self.one_lane = piece is not None and piece.end - piece.begin == 1
                yield
                self.in_lanes = self.one_lane = False
        self.spilled = spilled

    def walk(self, extent: Index, limit: Range | None) -> str:
        """The header's function for the vector's loop; cases known not to occur are not compiled."""
        lanes, ways = self.nest.lanes, self.ways
        known = extent if isinstance(extent, int) else None
        if ways > 1:
            exact = known is not None and not limit and known % (lanes * ways) == 0
            tail = "NONE" if exact else "WHOLE" if known is not None and known % lanes == 0 else "ALL"
            return f"interleaved<N, {ways}, {tail}>"
        if known is None:
            return "vectors<N>"
        return "full_vectors<N>" if known % lanes == 0 else "part_vector<N>" if known < lanes else "vectors<N>"

    def blocks(self, var: Var) -> str:
        """The loop's number of iterations: points, or vectors."""
        if var is not self.nest.vector:
            return self.index.print(var.extent)
        if isinstance(var.extent, int):
            return str(-(-var.extent // self.nest.lanes))
        return f"(({self.index.print(var.extent)} + {self.nest.lanes - 1}) / {self.nest.lanes})"

    def body_loops(self) -> None:
        """The loops of the part function, with all passes inside."""
        nest = self.nest
        shared = nest.outer[: nest.collapsed]
        ranges = {nest.split: Range("begin", "end")} if nest.split in nest.outer and nest.split is not None else {}
        if len(shared) == 1:
            ranges[shared[0]] = Range("begin", "end")
        first, *more = self.body.passes
        if more or first.before or first.inside:
            self._share_loops(shared, ranges, (), _Passes())
        else:
            self._share_loops(shared, ranges, first.after, _Points())

    def _share_loops(
        self, shared: Sequence[Var], ranges: Mapping[Var, Range], inside: Sequence[Statement], last: Loop
    ) -> None:
        if len(shared) < 2:
            self.run(self.nest.outer, ranges, inside, last)
            return
        *leading, running = shared
        first, total = f"first_{self.index.names[running]}", self.blocks(running)
        with self.lines.indented("for (i64 unit = begin, run; unit < end; unit += run) {", "}"):
            self.lines.add(f"i64 rest = unit / {total};")
            for var in reversed(leading):
                extent = self.blocks(var)
                take = "rest" if var is leading[0] else f"rest % {extent}"
                step = "" if var is leading[0] else f" rest /= {extent};"
                self.lines.add(f"const i64 {self.index.names[var]} = {take};{step}")
            self.lines.add(f"const i64 {first} = unit % {total};")
            self.lines.add(f"run = least({total} - {first}, end - unit);")
            ranges = {**ranges, running: Range(first, f"({first} + run)")}
            self.run(self.nest.outer[len(leading) :], ranges, inside, last)

    # Passes and reductions.

    def passes(self) -> None:
        """All passes of one outer point."""
        self._declare_rows()
        for number, step in enumerate(self.scratch.passes):
            self.step = number
            for statement in step.before:
                self.statement(statement)
            if step.inside:
                if self.nest.split in self.nest.inner and self.nest.split is not None:
                    self._shared_pass(step, number)
                else:
                    self._whole_pass(step)
            for statement in step.after:
                self.statement(statement)

    def _whole_pass(self, step: PassBody) -> None:
        """A pass whose inner loop is run by a single thread."""
        self.start(step.reductions)
        across = self.nest.vector not in self.nest.inner
        found = step.scans()
        running = [scans.declaration(name, node, across and self.lanes_vary(node)) for name, node in found]
        with self.lines.indented("{", "}") if running else self.lines.indented():
            for line in running:
                self.lines.add(line)
            self.inner_loops(step, {})
        self.finish(step.reductions, "")

    def inner_loops(self, step: PassBody, ranges: Mapping[Var, Range]) -> None:
        """The loops over the inner variables."""
        blocked = [a for a in step.reductions if a.node.op == "sum" and accumulator(a.node.dtype).is_floating_point]
        count = hint(numel(v.extent for v in self.nest.inner))
        ways = self.nest.unroll if step.reductions else 1
        if self.nest.vector in self.nest.inner:
            count //= self.nest.lanes * ways
        symbolic = any(not isinstance(v.extent, int) for v in self.nest.inner)
        long = bool(blocked) and (symbolic or count > 2 * SUM_BLOCK)
        last = _Inner(step.reductions if ways > 1 else blocked if long else (), long, ways)
        self.run(self.nest.inner, ranges, step.inside, last)

    def is_wide(self, node: Reduce) -> bool:
        """Whether the accumulator is a vector: lanes are partial results, or separate results."""
        return self.nest.vector in self.nest.inner or self.lanes_vary(node)

    def accumulator_types(self, item: Accumulate) -> list[tuple[str, str, str]]:
        """Name, type and initial value of the reduction's accumulators."""
        node = item.node
        kind = accumulator(node.value.dtype if node.op in reduce.POSITIONS else node.dtype)
        name = cpp_type(kind)
        wide = self.is_wide(node)
        spell = (lambda t: f"Vec<{t}, N>") if wide else str
        if node.op in reduce.POSITIONS:
            start = reduce.POSITIONS[node.op][0](kind)
            return [(f"{item.name}_best", spell(name), start), (f"{item.name}_place", spell("i64"), "NOWHERE")]
        return [(f"{item.name}_acc", spell(name), reduce.FORMS[node.op].start(kind))]

    def start(self, items: Sequence[Accumulate]) -> None:
        """Declare the accumulators."""
        for item in items:
            for name, kind, start in self.accumulator_types(item):
                self.lines.add(f"{kind} {name} = {kind}({start});")

    def accumulate(self, item: Accumulate) -> None:
        node = item.node
        kind = accumulator(node.value.dtype if node.op in reduce.POSITIONS else node.dtype)
        value = self.spread(node.value) if self.is_wide(node) else self.text(node.value)
        if node.value.dtype != kind:
            value = f"cast<{cpp_type(kind)}>({value})"
        note = self.note(item)
        if node.op in reduce.POSITIONS:
            larger = reduce.POSITIONS[node.op][1]
            at = self._place_text() if self.is_wide(node) else f"i64({self.index.print(self.nest.place)})"
            lanes = "l" if self.nest.vector in self.nest.inner else "Full<N>{}"
            self.lines.add(f"keep_best<{larger}>({lanes}, {item.name}_best, {item.name}_place, {value}, {at});", note)
            return
        name = self.targets.get(node, f"{item.name}_acc")
        text = reduce.FORMS[node.op].combine.format(name, value)
        if self.nest.vector in self.nest.inner:
            text = f"keep(l, {text}, {name})"
        self.lines.add(f"{name} = {text};", note)

    def _place_text(self) -> str:
        """The position within the reduction, as a vector."""
        vector, index = self.nest.vector, self.nest.place
        if vector is None or vector not in variables(index):
            return f"Vec<i64, N>(i64({self.index.print(index)}))"
        stride = stride_of(index, vector)
        if stride is None:
            return f"index_lanes<i64>(l, {self.lane_place(index, ())})"
        return f"index_steps<i64>(l, {self.index.print(index)}, {self.index.print(stride)})"

    def finish(self, items: Sequence[Accumulate], owner: str) -> None:
        """Assign the reductions' values."""
        across = self.nest.vector in self.nest.inner
        for item in items:
            node = item.node
            kind = accumulator(node.dtype)
            if node.op in reduce.POSITIONS:
                larger = reduce.POSITIONS[node.op][1]
                best, where = f"{owner}{item.name}_best", f"{owner}{item.name}_place"
                text = f"best_place<{larger}>({best}, {where})" if across or not self.is_wide(node) else where
                kind_name = "i64"
            else:
                text, kind_name = f"{owner}{item.name}_acc", cpp_type(kind)
                text = reduce.FORMS[node.op].across.format(text) if across else text
            if kind_name != cpp_type(node.dtype):
                text = f"cast<{cpp_type(node.dtype)}>({text})"
            self.lines.add(f"const {self.value_type(node)} {item.name} = {text};", self.note(item))

    def _shared_pass(self, step: PassBody, number: int) -> None:
        """A pass whose inner loop is divided among threads, each with accumulators of its own."""
        split = self.nest.split
        if split is None:
            return
        ranges = {split: Range("begin", "end")}
        if not step.reductions:
            with self.lines.indented(f"parallel({self.blocks(split)}, [&](i64 begin, i64 end) {{", "});"):
                self.inner_loops(step, ranges)
            return
        kept = [row for item in step.reductions for row in self.accumulator_types(item)]
        with self.lines.indented(f"struct Kept{number} {{", "};"):
            for name, kind, start in kept:
                self.lines.add(f"{kind} {name} = {kind}({start});")
        opening = (
            f"const Kept{number} all{number} = parallel_reduce({self.blocks(split)}, Kept{number}{{}}, "
            f"[&](Kept{number}& mine, i64 begin, i64 end) {{"
        )
        with self.lines.indented(opening, f"}}, [](Kept{number}& a, const Kept{number}& b) {{"):
            self.start(step.reductions)
            self.inner_loops(step, ranges)
            for name, _, _ in kept:
                self.lines.add(f"mine.{name} = {name};")
        with self.lines.indented("", "});"):
            for item in step.reductions:
                self.join(item)
        self.finish(step.reductions, f"all{number}.")

    def join(self, item: Accumulate) -> None:
        """Combine the accumulators of two threads."""
        node, name = item.node, item.name
        if node.op in reduce.POSITIONS:
            larger = reduce.POSITIONS[node.op][1]
            self.lines.add(f"join_best<{larger}>(a.{name}_best, a.{name}_place, b.{name}_best, b.{name}_place);")
        else:
            text = reduce.FORMS[node.op].combine.format(f"a.{name}_acc", f"b.{name}_acc")
            self.lines.add(f"a.{name}_acc = {text};")

    # Functions.

    def print(self) -> None:
        """The part function and the function called by Python. No name in the text is specific to the kernel."""
        kernel, nest, lines = self.kernel, self.nest, self.lines
        overlaid = {name for pair in kernel.overlaid for name in pair}
        alone = {n: "" if n in overlaid else "__restrict " for n in (*kernel.reads, *kernel.writes)}
        reads = [f"const {cpp_type(self.buffers[n].dtype)}* {alone[n]}{self.pointers[n]}" for n in kernel.reads]
        writes = [f"{cpp_type(self.buffers[n].dtype)}* {alone[n]}{self.pointers[n]}" for n in kernel.writes]
        sizes = [f"i64 {identifier(s.name)}" for s in kernel.sizes]
        signature = ", ".join([*reads, *writes, *sizes, "bool* bad", "i64 begin", "i64 end"])
        with lines.indented(f"static void part({signature}) {{", "}"):
            lines.add(f"constexpr int N = {nest.lanes};")
            self.body_loops()
        self.entry()

    def heading(self) -> list[str]:
        """Comments above the kernel: its origin, and the buffers of its pointers."""
        buffers = [f"{pointer}: {name}" for name, pointer in self.pointers.items()]
        return [*heading(self.kernel.origins), ", ".join(buffers)]

    def units(self) -> str:
        """The number of units of work for threads: the argument of `parallel`."""
        nest = self.nest
        if nest.collapsed:
            return " * ".join(f"i64({self.blocks(v)})" for v in nest.outer[: nest.collapsed])
        return self.blocks(nest.split) if nest.split in nest.outer and nest.split is not None else "1"

    def entry(self) -> None:
        """The function called by Python: reads the arguments, runs the kernel, and raises errors."""
        kernel, nest, lines = self.kernel, self.nest, self.lines
        count = len(kernel.arguments)
        opening = "static PyObject* call(PyObject*, PyObject* const* args, Py_ssize_t count) {"
        with lines.indented(opening, "}"):
            lines.add(f"Arguments given(NAME, args, count, {count});")
            values = []
            for at, buffer in enumerate((*kernel.reads, *kernel.writes)):
                kind = ("const " if buffer in kernel.reads else "") + cpp_type(self.buffers[buffer].dtype)
                values.append(self.pointers[buffer])
                lines.add(f"{kind}* {values[-1]} = given.tensor<{kind}>({at});")
            for at, size in enumerate(kernel.sizes, len(values)):
                values.append(identifier(size.name))
                lines.add(f"const i64 {values[-1]} = given.integer({at});")
            lines.add("if (given.failed) return nullptr;")
            lines.add("bool bad = false;")
            arguments = ", ".join([*values, "&bad"])
            for name in kernel.sums:
                lines.add(f"clear({self.pointers[name]}, {self.index.print(numel(self.buffers[name].shape))});")
            whole = numel(v.extent for v in nest.outer)
            with lines.indented("{", "}") if whole != 0 else lines.indented():
                if nest.parallel:
                    lines.add("Released others;")
                if whole == 0:
                    pass
                elif nest.collapsed or (nest.split in nest.outer and nest.split is not None):
                    call = f"[&](i64 begin, i64 end) {{ part({arguments}, begin, end); }}"
                    lines.add(f"parallel({self.units()}, {call});")
                else:
                    lines.add(f"part({arguments}, 0, {self.units()});")
            lines.add("return done(NAME, bad);")


class Loop:
    """Customises what `KernelPrinter.run` prints around and inside its innermost loop."""

    def inside(self, printer: KernelPrinter) -> None:
        """Print at the innermost place."""

    @contextmanager
    def around(self, printer: KernelPrinter, loops: Sequence[Var], limit: Range | None) -> Iterator[Range | None]:
        """Print around the first of the remaining loops, which runs over `limit` (None: all); returns its range."""
        yield limit


class _Points(Loop):
    """No customisation: only statements."""


class _Passes(Loop):
    """The passes of one outer point."""

    def inside(self, printer: KernelPrinter) -> None:
        printer.passes()


class _Inner(Loop):
    """Inner loops. The innermost has accumulators of its own, combined after it, if several are used in turn, or if a
    long float sum is computed in blocks."""

    def __init__(self, items: Sequence[Accumulate], blocks: bool, ways: int) -> None:
        self.items = items
        self.blocks = blocks
        self.ways = ways

    @contextmanager
    def around(self, printer: KernelPrinter, loops: Sequence[Var], limit: Range | None) -> Iterator[Range | None]:
        if len(loops) > 1 or not self.items:
            yield limit
            return
        block = f"{printer.index.names[loops[0]]}_block"
        begin, end = (limit.begin, limit.end) if limit else ("0", printer.blocks(loops[0]))
        if self.blocks:
            opening = f"for (i64 {block} = {begin}; {block} < {end}; {block} += {SUM_BLOCK}) {{"
            with printer.lines.indented(opening, "}"), self.partial_accumulators(printer):
                yield Range(block, f"least({block} + {SUM_BLOCK}, {end})")
        else:
            with printer.lines.indented("{", "}"), self.partial_accumulators(printer):
                yield limit

    @contextmanager
    def partial_accumulators(self, printer: KernelPrinter) -> Iterator[None]:
        """Accumulators of the innermost loop, and the code after it that combines them into the reduction's."""
        for item in self.items:
            ((_, kind, start),) = printer.accumulator_types(item)
            several = f"Several<{kind}, {self.ways}>" if self.ways > 1 else kind
            printer.lines.add(f"{several} {item.name}_part = {several}({start});")
            printer.targets[item.node] = f"{item.name}_part[way]" if self.ways > 1 else f"{item.name}_part"
        printer.ways = self.ways
        yield
        printer.ways = 1
        for item in self.items:
            del printer.targets[item.node]
            combine = reduce.FORMS[item.node.op].combine
            part = f"{item.name}_part"
            if self.ways > 1:
                part = f"{part}.joined([](auto a, auto b) {{ return {combine.format('a', 'b')}; }})"
            printer.lines.add(f"{item.name}_acc = {combine.format(f'{item.name}_acc', part)};")
