"""Prints a tile as a Triton function: the only place that makes the text of a kernel.

Blocks have one dimension in most pointwise kernels, `[XBLOCK]`, and two in a kernel with reductions or with
two-dimensional tiles: values of the outer loop are `[XBLOCK, 1]`, values of the inner one `[1, RBLOCK]` or both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from armature.backend_api import (
    Accumulate,
    Const,
    Guarded,
    IndexValue,
    Kernel,
    Let,
    Load,
    Node,
    Op,
    PassBody,
    Scan,
    Statement,
    Store,
    Var,
    Write,
    heading,
    operands,
    origin_of,
    place,
)
from armature_gpu_triton import reduce, scans
from armature_gpu_triton.online import LOWEST, lane_width
from armature_gpu_triton.ops import TYPES, cast_text
from armature_gpu_triton.values import Guard, ValuePrinter

MOST_LOADED = 256  # bytes of a thread's registers that a kernel's first loads may take
HEADER = """import triton
import triton.language as tl
from armature_gpu_triton import helpers
from triton.language.extra import libdevice
"""


class KernelPrinter(ValuePrinter):
    """Prints one tile."""

    def let(self, node: Node) -> str:
        if isinstance(node, Load):
            return self.load(node)
        if isinstance(node, IndexValue):
            return self.index_value(node)
        if isinstance(node, Op):
            return self.operation(node)
        raise TypeError(f"no statement of its own: {type(node).__name__}")

    def guarded(self, item: Guarded, persistent: bool) -> None:
        cond = self.value(item.node.cond)
        if isinstance(item.node.cond, Const):
            over: frozenset[Var] = frozenset()
        else:
            over = self.body.depends[item.node.cond]
        self.guards.append(Guard(cond, over))
        self.statements(item.body, persistent=False)
        self.guards.pop()
        value, other = self.value(item.node.value), self.constant(item.node.other.value, item.node.dtype)
        self.lines.add(f"{item.name} = tl.where({cond}, {value}, {other})")

    def write(self, store: Store) -> None:
        if store.buffer in self.kernel.sums:
            self.add_up(store)
            return
        inner = self.tile.r is not None and store in self.inner_stores
        needed = frozenset((self.tile.x, self.tile.r)) if inner and self.tile.r else frozenset((self.tile.x,))
        mask, _ = self.conditions(needed)
        target = f"{self.arguments[store.buffer]} + {self.offset(store, needed)}"
        value = cast_text(self.value(store.value), store.value.dtype, self.buffers[store.buffer].dtype)
        end = f", {mask}" if mask else ""
        if store.atomic:
            self.lines.add(f'tl.atomic_add({target}, {value}{end}, sem="relaxed")')
        else:
            self.lines.add(f"tl.store({target}, {value}{end})")

    def add_up(self, store: Store) -> None:
        """Add to a sum across rows, whose lanes past the last row are as if they were not there."""
        value = cast_text(self.value(store.value), store.value.dtype, self.buffers[store.buffer].dtype)
        text = f"tl.where(x_in, {value}, 0.0)" if self.tile.x_masked else value
        self.lines.add(f"{self.arguments[store.buffer]}_all += {text}", place(origin_of(Write(store))))

    def statements(self, items: Iterable[Statement], persistent: bool) -> None:
        """Print statements; a persistent kernel skips values that an earlier pass has computed."""
        for item in items:
            if isinstance(item, (Let, Guarded)):
                if item.name in self.computed_names:
                    continue
                if isinstance(item, Guarded):
                    self.guarded(item, persistent)
                elif isinstance(item.node, Scan):
                    self._scan(item.name, item.node, persistent)
                else:
                    self.lines.add(f"{item.name} = {self.let(item.node)}", place(origin_of(item)))
                if persistent and not self.guards and item.node not in self.fresh:
                    self.computed_names.add(item.name)
            elif isinstance(item, Accumulate):
                self.accumulate(item, persistent)
            else:
                self.write(item.store)

    # Scans and reductions.

    def _scan(self, name: str, node: Scan, persistent: bool) -> None:
        """A scan over the whole row where it is persistent; else over one tile of the loop, on top of those before."""
        text = self.wide(node.value)
        if not {self.tile.x, self.tile.r} <= self.body.depends.get(node.value, frozenset()):
            text = f"tl.broadcast_to({text}, [XBLOCK, RBLOCK])"
        note = place(node.origin)
        if persistent:
            self.lines.add(scans.of_row(name, node, text), note)
            return
        if self.tile.r_masked:
            text = f"tl.where(r_in, {text}, {reduce.identity(node.op, reduce.held_dtype(node.dtype))})"
        own, result, after = scans.step_of(name, node, text)
        self.lines.add(own)
        self.lines.add(result, note)
        self.lines.add(after)

    def running(self, item: Accumulate) -> tuple[str, torch.dtype]:
        """The reduction's value over a whole block, and the dtype in which it is held."""
        node = item.node
        source = node.value.dtype
        held = reduce.held_dtype(source if node.op in reduce.POSITIONS else node.dtype)
        text = cast_text(self.wide(node.value), reduce.held_dtype(source), held)
        if held == torch.bool and node.op in reduce.POSITIONS:
            text, held = f"{text}.to(tl.int32)", torch.int32
        depends = frozenset() if isinstance(node.value, Const) else self.body.depends[node.value]
        if not {self.tile.x, self.tile.r} <= depends:
            text = f"tl.broadcast_to({text}, [XBLOCK, RBLOCK])"
        return text, held

    def position_type(self) -> str:
        return "tl.int64" if self.tile.wide else "tl.int32"

    def accumulate(self, item: Accumulate, persistent: bool) -> None:
        """One step of a reduction: over the whole row if it is persistent, else over one tile of the loop."""
        text, held = self.running(item)
        op, start = item.node.op, reduce.identity(item.node.op, held)
        note = place(item.node.origin)
        if persistent:
            if self.tile.r_masked:
                text = f"tl.where(r_in, {text}, tl.full([1, 1], {start}, {TYPES[held]}))"
            if op in reduce.POSITIONS:
                last = reduce.LAST_POSITION[self.position_type()]
                at = f"tl.where(r_in, r, {last})" if self.tile.r_masked else "r"
                position = f"tl.broadcast_to({at}, [XBLOCK, RBLOCK])"
                self.lines.add(f"{item.name} = helpers.reduce_{op}({text}, {position}).to(tl.int64)", note)
            else:
                done = reduce.finish(op, held, text)
                self.lines.add(f"{item.name} = {cast_text(done, held, item.node.dtype)}", note)
            return
        running = f"{item.name}_all"
        if op in reduce.POSITIONS:
            self.lines.add(f"{item.name}_new = {text}")
            before = f"helpers.before_{op.removeprefix('arg')}({item.name}_new, r, {running}, {running}_at)"
            self.lines.add(f"{item.name}_take = {before}{' & r_in' if self.tile.r_masked else ''}")
            self.lines.add(f"{running} = tl.where({item.name}_take, {item.name}_new, {running})", note)
            self.lines.add(f"{running}_at = tl.where({item.name}_take, r, {running}_at)")
            return
        if item.node in self.online:
            self.take_in(item, self.online[item.node], text)
            return
        both = reduce.combine(op, held, running, text)
        self.lines.add(f"{running} = {f'tl.where(r_in, {both}, {running})' if self.tile.r_masked else both}", note)

    def take_in(self, most: Accumulate, total: Accumulate, value: str) -> None:
        """Update an online softmax with a tile of the loop."""
        if self.tile.r_masked:
            value = f'tl.where(r_in, {value}, float("-inf"))'
        both = f"{most.name}_all, {total.name}_all"
        step = f"helpers.online_softmax({both}, {value}, {lane_width(self.tile.config)})"
        self.lines.add(f"{both} = {step}", place(total.node.origin))

    def start(self, item: Accumulate) -> None:
        """Before the loop: initialise the running block."""
        held = self.running(item)[1]
        if item.node in self.online:
            lanes = f"[XBLOCK, RBLOCK // {lane_width(self.tile.config)}], "
            self.lines.add(f"{item.name}_all = tl.full({lanes}{LOWEST}, tl.float32)")
            self.lines.add(f"{self.online[item.node].name}_all = tl.full({lanes}0.0, tl.float32)")
            return
        first = reduce.identity(item.node.op, held)
        self.lines.add(f"{item.name}_all = tl.full([XBLOCK, RBLOCK], {first}, {TYPES[held]})")
        if item.node.op in reduce.POSITIONS:
            last = reduce.LAST_POSITION[self.position_type()]
            self.lines.add(f"{item.name}_all_at = tl.full([XBLOCK, RBLOCK], {last}, {self.position_type()})")

    def finish(self, item: Accumulate) -> None:
        """After the loop: reduce to one value per row."""
        op, name, held = item.node.op, item.name, self.running(item)[1]
        note = place(item.node.origin)
        if op in reduce.POSITIONS:
            self.lines.add(f"{name} = helpers.reduce_{op}({name}_all, {name}_all_at).to(tl.int64)", note)
            return
        done = reduce.finish(op, held, f"{name}_all")
        self.lines.add(f"{name} = {cast_text(done, held, item.node.dtype)}", note)
        if item.node in self.online:
            total = self.online[item.node].name
            scaled = f"{total}_all * tl.exp({name}_all - {name})"
            self.lines.add(f"{total} = {reduce.finish('sum', held, scaled)}", note)
            # In a row of -inf no lane has seen a value. Eager mode's sum is then that of exp(-inf - -inf), which is
            # NaN.
            self.lines.add(f'{name} = tl.where({total} == 0.0, float("-inf"), {name})')
            self.lines.add(f'{total} = tl.where({total} == 0.0, float("nan"), {total})')

    # The whole function.

    def inner_loop(self, item: PassBody) -> None:
        if self.tile.r is None or not item.inside or any(a in self.online.values() for a in item.reductions):
            return
        if self.tile.config.persistent:
            self.statements(item.inside, persistent=True)
            return
        for name, node in item.scans():
            self.lines.add(scans.declaration(name, node))
        for accumulate in item.reductions:
            self.start(accumulate)
        end = self.index.print(self.tile.r.extent)
        wide = ".to(tl.int64)" if self.tile.wide else ""
        self.start_of_block = "r_start"
        with self.lines.indented(f"for r_start in range(0, {end}, RBLOCK):"):
            self.lines.add(f"r = r_start + tl.arange(0, RBLOCK)[None, :]{wide}")
            if self.tile.r_masked:
                self.lines.add(f"r_in = r < {end}")
            self.statements(item.inside, persistent=False)
        self.start_of_block = ""
        for accumulate in item.reductions:
            self.finish(accumulate)

    def prologue(self) -> None:
        """The block of positions that a program works on."""
        self.block_of("tl.program_id(0)")

    def block_of(self, program: str) -> None:
        """The block of positions of the program with a number."""
        wide = ".to(tl.int64)" if self.tile.wide else ""
        program, first = f"{program}{wide}", ""
        if self.tile.config.tiled:
            across = self.index.print(self.tile.across)
            program, first = f"({program} // {across})", f"({program} % {across}) * RBLOCK + "
        self.start_of_block = f"{program} * XBLOCK" if self.tile.r is None else f"{first}0"
        if self.tile.part is None:
            self.rows_from(f"{program} * XBLOCK")
        else:
            self.lines.add(f"part = tl.full([1, 1], {program}, {self.position_type()})")
        if self.tile.r is not None and self.tile.config.persistent:
            row = f"tl.arange(0, RBLOCK)[None, :]{wide}"
            self.lines.add(f"r = {first}{row}")
            if self.tile.r_masked:
                self.lines.add(f"r_in = r < {self.index.print(self.tile.r.extent)}")

    def rows_from(self, first: str) -> None:
        """A block of positions of the outer loop."""
        column = "[:, None]" if self.tile.r is not None else ""
        self.lines.add(f"x = {first} + tl.arange(0, XBLOCK){column}")
        if self.tile.x_masked:
            self.lines.add(f"x_in = x < {self.index.print(self.tile.x.extent)}")

    def parameters(self) -> str:
        """The function's parameters: buffers, sizes, tile sizes."""
        return ", ".join([*self.arguments.values(), *self.tile_sizes()])

    def tile_sizes(self) -> list[str]:
        """The parameters that are the sizes of a tile."""
        return ["XBLOCK: tl.constexpr"] + (["RBLOCK: tl.constexpr"] if self.tile.r is not None else [])

    def print(self) -> str:
        """The function's body, with comments that cite the user's lines. It does not contain the kernel's name."""
        with self.lines.indented():
            self.prologue()
            if self.tile.part is None:
                self.passes()
            else:
                self.rows_of_part()
        return str(self.lines)

    def passes(self) -> None:
        """All passes over a block of rows."""
        written: set[str] = set()
        self.statements(self.loads_of_rows(), persistent=True)
        for source, item in zip(self.kernel.passes, self.body.passes, strict=True):
            self.inner_stores = source.inner_stores
            if written & {n.buffer for n in self.fresh if isinstance(n, Load)}:
                self.lines.add("tl.debug_barrier()")
            self.statements(item.before, persistent=True)
            self.inner_loop(item)
            self.statements(item.after, persistent=True)
            written |= {s.buffer for s in (*source.inner_stores, *source.outer_stores)}

    def loads_of_rows(self) -> list[Statement]:
        """The loads that a persistent kernel begins with, so that none waits for a reduction: its barrier would hold
        up a load behind it. As many as leave registers for the rest; not what all rows share, which is at hand."""
        config = self.tile.config
        if not config.persistent or not any(item.reductions for item in self.body.passes):
            return []
        left = MOST_LOADED * 32 * config.num_warps // (config.xblock * config.rblock)
        first: list[Statement] = []
        for statement in (s for item in self.body.passes for s in item.inside):
            node = statement.node if isinstance(statement, Let) else None
            if not isinstance(node, Load) or node.indirect or node in self.fresh:
                continue
            if {self.tile.x, self.tile.r} <= self.body.depends[node]:
                left -= node.dtype.itemsize
                if left >= 0:
                    first.append(statement)
        return first

    def rows_of_part(self) -> None:
        """All rows of a part in turn. Each lane of the tile has sums of its own, which are added up at the end."""
        sums = {s.buffer: s for s in self.kernel.stores if s.buffer in self.kernel.sums}
        self.statements(self.same_for_all_rows(), persistent=True)
        for name in sums:
            kind = TYPES[self.buffers[name].dtype]
            self.lines.add(f"{self.arguments[name]}_all = tl.full([XBLOCK, RBLOCK], 0.0, {kind})")
        end, stages = self.index.print(self.tile.x.extent), self.tile.config.num_stages
        ahead = f", num_stages={stages}" if stages > 1 else ""
        with self.lines.indented(f"for x_start in tl.range(0, {end}, XBLOCK{ahead}):"):
            self.rows_from("x_start")
            self.passes()
        for name, store in sums.items():
            argument = self.arguments[name]
            needed = frozenset((self.tile.r,)) if self.tile.r else frozenset()
            mask, _ = self.conditions(needed)
            total = f"helpers.sum_of_rows({argument}_all)"
            self.lines.add(f"tl.store({argument} + {self.offset(store, needed)}, {total}{f', {mask}' if mask else ''})")

    def same_for_all_rows(self) -> list[Statement]:
        """What need not be computed again for each row: weights."""
        found: list[Statement] = []
        known: set[Node] = set()
        for statement in (s for item in self.body.passes for s in (*item.before, *item.inside, *item.after)):
            if not isinstance(statement, Let) or isinstance(statement.node, Scan) or statement.node in self.fresh:
                continue
            own = self.tile.x in self.body.depends[statement.node]
            if not own and all(isinstance(n, Const) or n in known for n in operands(statement.node)):
                found.append(statement)
                known.add(statement.node)
        return found


def print_function(kernel: Kernel, parameters: str, body: str) -> str:
    """The whole function, below a heading with the operators that it computes."""
    lines = [f"# kernel {kernel.name}", *(f"#   {line}" for line in heading(kernel.origins))]
    return "\n".join([*lines, "@triton.jit", f"def {kernel.name}({parameters}):", body])


def print_module(kernels: Sequence[str], imports: str = "") -> str:
    """All functions of one graph as a Python module."""
    return "\n\n".join([imports + HEADER, *(k.rstrip("\n") for k in kernels)]) + "\n"
