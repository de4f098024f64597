"""Prints a tile's values as Triton expressions: literals, operations, loads, indices, and the masks of accesses."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Mapping

import attrs
import torch

from armature.backend_api import (
    Buffer,
    Const,
    IndexPrinter,
    IndexValue,
    Kernel,
    KernelBody,
    Lines,
    Load,
    Node,
    Op,
    Reduce,
    Size,
    Store,
    Var,
    operands,
    position,
    print_op,
    rounded,
    stored_early,
    variables,
    walk_kernel,
)
from armature_gpu_triton import draws
from armature_gpu_triton.loops import Tile
from armature_gpu_triton.online import online_sums
from armature_gpu_triton.ops import (
    FORMS,
    HALVES,
    INFIX,
    ROUGH_FORMS,
    TYPES,
    cast_text,
    is_number,
    kind,
    sum_with_one,
    widen,
)

TAKEN = re.compile(
    r"(tmp|red|in|out)\d+(_\w+)?|part|x|r|x_in|r_in|x_start|r_start|fours|tl|triton|helpers|libdevice|float|range|[XR]BLOCK"
)
INDEX = IndexPrinter(
    floordiv="({0} // {1})",
    mod="({0} % {1})",
    signed_floordiv="helpers.floordiv_int({0}, {1})",
    signed_mod="helpers.mod_int({0}, {1})",
)


def size_name(name: str) -> str:
    """The size's own name, with a prefix if a kernel uses that name itself."""
    clean = re.sub(r"\W", "_", name)
    clash = TAKEN.fullmatch(clean) or keyword.iskeyword(clean) or not clean.isidentifier()
    return f"size_{clean}" if clash else clean


def argument_names(kernel: Kernel) -> dict[str, str]:
    """A parameter name per argument. Buffers are `in0`, `out0`, so that equivalent kernels have the same text."""
    names = {n: f"in{at}" for at, n in enumerate(kernel.reads)}
    names.update((n, f"out{at}") for at, n in enumerate(kernel.writes))
    names.update((s.name, size_name(s.name)) for s in kernel.sizes)
    return names


def literal(value: bool | int | float) -> str:
    """The number in Triton's syntax."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return f"({value!r})" if repr(value).startswith("-") else repr(value)


@attrs.frozen
class Guard:
    """A condition for loads, and the loop variables that it varies with."""

    name: str
    depends: frozenset[Var]


class ValuePrinter:
    """Prints the operands of statements of one tile."""

    def __init__(self, tile: Tile, buffers: Mapping[str, Buffer]) -> None:
        self.tile = tile
        self.buffers = buffers
        self.body: KernelBody = walk_kernel(tile.kernel)
        self.kernel = self.body.kernel
        self.lines = Lines()
        self.arguments = argument_names(self.kernel)
        self.index = attrs.evolve(INDEX, names={s: self.arguments[s.name] for s in self.kernel.sizes})
        self.guards: list[Guard] = []
        self.computed_names: set[str] = set()  # names that a persistent kernel has computed and need not recompute
        self.fresh = self.rereads()
        self.rounded = all(
            buffers[name].dtype in HALVES for name in self.kernel.writes
        )  # whether all results have at most 16 bits
        self.inner_stores: tuple[Store, ...] = ()
        self.start_of_block = ""  # the first position of the block along its last dimension; "": not known
        self.online = {} if tile.config.persistent else online_sums(self.body, self.fresh)

    def shape(self) -> str:
        """A block of one element, with the kernel's number of dimensions."""
        return "[1]" if self.tile.r is None else "[1, 1]"

    def rereads(self) -> frozenset[Node]:
        """Nodes that depend on a buffer which an earlier pass may have written; recomputed in each pass."""
        found, early = set[Node](), stored_early(self.kernel)
        for node in self.body.depends:  # operands come first
            if isinstance(node, Reduce):
                continue
            reads = isinstance(node, Load) and node.buffer in early
            if reads or any(child in found for child in operands(node)):
                found.add(node)
        return frozenset(found)

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> str:
        """A literal with a type of its own."""
        if dtype in HALVES:
            return cast_text(self.constant(rounded(value, dtype), torch.float32), torch.float32, dtype)
        if kind(dtype) == "float":
            value = float(value)
        elif dtype == torch.bool:
            value = bool(value)
        else:
            value = int(value)
        return f"tl.full({self.shape()}, {literal(value)}, {TYPES[dtype]})"

    def bare(self, node: Const) -> str:
        """A literal that takes the type of the other operand."""
        if node.dtype in HALVES:
            return literal(rounded(node.value, node.dtype))
        return literal(float(node.value) if kind(node.dtype) == "float" else int(node.value))

    def value(self, node: Node) -> str:
        """The text of a node as an operand."""
        return self.constant(node.value, node.dtype) if isinstance(node, Const) else self.body.names[node]

    def wide(self, node: Node) -> str:
        """The same, with 16-bit floats widened to float32."""
        if isinstance(node, Const) and node.dtype in HALVES:
            return self.constant(rounded(node.value, node.dtype), torch.float32)
        return widen(self.value(node), node.dtype)

    def conditions(self, depends: frozenset[Var]) -> tuple[str, frozenset[Var]]:
        """The mask of an access that varies with `depends` ("" for none), and what the mask varies with."""
        names: list[str] = []
        over: set[Var] = set()
        if self.tile.x in depends and self.tile.x_masked:
            names.append("x_in")
            over.add(self.tile.x)
        if self.tile.r in depends and self.tile.r_masked and self.tile.r is not None:
            names.append("r_in")
            over.add(self.tile.r)
        for guard in self.guards:
            names.append(guard.name)
            over |= guard.depends
        return " & ".join(names), frozenset(over)

    def offset(self, access: Load | Store, needed: frozenset[Var]) -> str:
        """Offset in elements, a block over all of `needed`."""
        where = position(access, self.buffers)
        names: dict[Var | Size, str] = dict(self.index.names)
        names.update((var, self.value(node)) for var, node in access.indirect)
        text = attrs.evolve(self.index, names=names).print(where)
        own = variables(where)
        for var, node in access.indirect:
            if var in own and not isinstance(node, Const):
                own |= self.body.depends[node]
        missing = sorted(v.name for v in needed - own)
        return " + ".join([text, *(f"{name} * 0" for name in missing)])

    def load(self, node: Load) -> str:
        if is_number(self.buffers[node.buffer], self.kernel.device):
            return f"tl.full({self.shape()}, {self.arguments[node.buffer]}, {TYPES[node.dtype]})"
        mask, over = self.conditions(self.body.depends[node])
        offset = self.offset(node, over | self.body.depends[node])
        return f"tl.load({self.arguments[node.buffer]} + {offset}{', ' + mask if mask else ''})"

    def index_value(self, node: IndexValue) -> str:
        if isinstance(node.index, int):
            return self.constant(node.index, node.dtype)
        text = self.index.print(node.index)
        if not text.startswith("("):
            text = f"({text})"
        if node.dtype in HALVES:
            return cast_text(f"{text}.to(tl.float32)", torch.float32, node.dtype)
        return f"({text} != 0)" if node.dtype == torch.bool else f"{text}.to({TYPES[node.dtype]})"

    def operation(self, node: Op) -> str:
        """The text of an operation; one of random numbers may need a statement before it."""
        if node.op == "check_index":
            mask, _ = self.conditions(self.body.depends[node])
            inside = mask or self.constant(True, torch.bool)
            return f"helpers.check_index({self.value(node.args[0])}, {self.value(node.args[1])}, {inside})"
        drawn = (node, None) if node.op == "uniform" else draws.compared(node)
        if drawn is not None:
            number, below = drawn
            names = {arg: self.value(arg) for arg in number.args}
            text, statement = draws.numbers(number, names, self.tile, self.start_of_block, self.index, below)
            if statement:
                self.lines.add(statement)
            return text
        if node.op in ("cast", "bitcast"):
            return print_op(FORMS, node, [self.value(a) for a in node.args])
        if self.rounded and (rough := sum_with_one(node)) is not None:
            function, inner = rough
            return f"helpers.{function}({self.wide(inner)})"
        widened = node
        if any(a.dtype in HALVES for a in node.args):
            args = tuple(attrs.evolve(a, dtype=torch.float32) if a.dtype in HALVES else a for a in node.args)
            widened = attrs.evolve(node, args=args)
        operands = [self.wide(a) for a in node.args]
        constants = [isinstance(a, Const) for a in node.args]
        if node.op in INFIX and sum(constants) == 1:
            at = constants.index(True)
            const = node.args[at]
            if isinstance(const, Const) and const.dtype != torch.bool:
                operands[at] = self.bare(const)
        single = widened.args[0].dtype == torch.float32
        text = print_op(ROUGH_FORMS if self.rounded and single and node.op in ROUGH_FORMS else FORMS, widened, operands)
        return cast_text(f"({text})", torch.float32, node.dtype) if node.dtype in HALVES else text
