"""Prints the kernels of flexible attention: templates contain the loops over blocks, and the program's functions of a
score and its position are printed into them as in all other kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import attrs
import torch

from armature.backend_api import Buffer, Expression, Kernel, Lines, Load, Node, Op, Pass, Store, Var, Write, walk_kernel
from armature_gpu_triton import autotune
from armature_gpu_triton.kernel_printer import KernelPrinter
from armature_gpu_triton.loops import Tile
from armature_gpu_triton.ops import HALVES, TYPES, cast_text
from armature_gpu_triton.product_printer import engine, precision

SCORE, GRADIENT = "score", "grad"  # names of pseudo-buffers that represent values of a block
FORWARD, DELTA, OF_QUERY, OF_KEYS = "forward", "delta", "query", "keys"
TENSORS: Mapping[str, tuple[str, ...]] = {
    FORWARD: ("query", "key", "value", "out", "logsumexp", "largest_score"),
    DELTA: ("out", "grad_out", "delta_of_rows"),
    OF_QUERY: ("query", "key", "value", "grad_out", "logsumexp", "delta_of_rows", "grad_query"),
    OF_KEYS: ("query", "key", "value", "grad_out", "logsumexp", "delta_of_rows", "grad_key", "grad_value"),
}
IN_FLOAT32 = frozenset(("logsumexp", "largest_score", "delta_of_rows"))
STRIDES = {kind: tuple(name for name in names if name not in IN_FLOAT32) for kind, names in TENSORS.items()}
"""The tensors of which a kernel takes the strides of batches and heads, in elements."""
NUMBERS = {kind: tuple(f"{name}_{axis}" for name in names for axis in "bh") for kind, names in STRIDES.items()}

LISTS = ("count", "places", "count_full", "places_full")
SIZES = ("rows", "keys", "heads", "key_heads", "group", "blocks", "columns", "steps", "mask_batches", "mask_heads")
"""What all kernels but `delta` take besides: lists of blocks, and numbers."""


@attrs.frozen
class Rows:
    """How a kernel reads a tensor's rows: strides along and within them, elements of a row, and of the block that
    holds it. masked: there may be fewer rows than a block has."""

    row: int
    column: int
    size: int
    masked: bool

    @property
    def width(self) -> int:
        """Elements of a block's row: a power of two, and large enough for matrix units."""
        return max(16, 1 << (self.size - 1).bit_length())

    def mask(self, rows: str, columns: str, store: bool = False) -> str:
        """The mask of an access to a block, and the value that is read where it is false."""
        found = [f"{rows}_in"] if self.masked else []
        found += [f"({columns} < {self.size})"] if self.width != self.size else []
        other = "" if store else ", 0.0"
        return f", {' & '.join(found)}{other}" if found else ""


@attrs.frozen
class Text:
    """Statements, and the value that they compute."""

    text: str
    value: str


@attrs.frozen(eq=False)
class Form:
    """What determines the text of a kernel besides the functions. views: how it reads and writes tensors. own_keys:
    each batch has keys of its own. full: some blocks need no mask. m_masked, n_masked: the last blocks reach past the
    end. steps: blocks of scores in a block of the mask; None: the mask is a single block."""

    kind: str
    dtype: torch.dtype
    views: Mapping[str, Rows]
    own_keys: bool
    full: bool
    m_masked: bool
    n_masked: bool
    scale: float
    steps: int | None


class Body(KernelPrinter):
    """Prints expressions over a block of scores."""

    def __init__(self, of: Expression, names: Mapping[str, str], prefix: str, place: Sequence[Var], form: Form) -> None:
        _, _, m, n = place
        results = [f"result{at}" for at in range(len(of.values))]
        dtypes = {
            **dict.fromkeys(LEAVES, torch.float32),
            **dict(zip(results, (v.dtype for v in of.values), strict=True)),
        }
        shape, strides = (m.extent, n.extent), (n.extent, 1)
        block = {name: Buffer(name, dtype, DEVICE, shape, strides) for name, dtype in dtypes.items()}
        stores = tuple(Store(name, (m, n), value) for name, value in zip(results, of.values, strict=True))
        kernel = Kernel(
            "scores", DEVICE, tuple(place), (), (Pass((), (), stores),), (*of.buffers, *LEAVES), tuple(results)
        )
        # The template has its own tile sizes, so nothing may depend on those of the configuration.
        config = autotune.Config(1, 1, 1, persistent=True)
        super().__init__(Tile(kernel, m, n, config, form.m_masked, form.n_masked, False), {**of.buffers, **block})
        self.body = walk_kernel(kernel, prefix)
        self.kernel = self.body.kernel
        self.arguments = {**{name: name for name in LEAVES}, **names}
        self.index = attrs.evolve(self.index, names={})
        self.rounded = False
        self.halves = form.dtype in HALVES  # query, key and value have 16-bit elements

    def conditions(self, depends: frozenset[Var]) -> tuple[str, frozenset[Var]]:
        """Overrides the base printer, with the names of this kernel's masks."""
        masks = {self.tile.x: ("m_in", self.tile.x_masked), self.tile.r: ("n_in", self.tile.r_masked)}
        found = {var: name for var, (name, masked) in masks.items() if var in depends and masked and var is not None}
        names = [*found.values(), *(guard.name for guard in self.guards)]
        return " & ".join(names), frozenset(found).union(*(guard.depends for guard in self.guards))

    def load(self, node: Load) -> str:
        """Overrides the base printer: a score is a value in registers, not a load from memory."""
        return node.buffer if node.buffer in LEAVES else super().load(node)

    def operation(self, node: Op) -> str:
        """Overrides the base printer for quotients: with 16-bit scores, a division need not be correctly rounded as in
        eager mode."""
        if node.op == "div" and node.dtype == torch.float32 and self.halves:
            return " / ".join(map(self.value, node.args))
        return super().operation(node)

    def texts(self) -> list[Text]:
        """For each value, the statements that the earlier ones did not need, and the value itself as float32 or
        bool."""
        (item,) = self.body.passes
        found: list[Text] = []
        for statement in (*item.before, *item.inside, *item.after):
            if isinstance(statement, Write):
                found.append(self.take_text(statement.store.value))
            else:
                self.statements([statement], persistent=False)
        return found

    def take_text(self, node: Node) -> Text:
        """The statements added since the last call of `take_text`, with a value."""
        text = str(self.lines) if self.lines.lines else ""
        self.lines = Lines()
        plain = node.dtype in (torch.bool, torch.float32)
        return Text(text, self.value(node) if plain else cast_text(self.value(node), node.dtype, torch.float32))

    @property
    def unchanged(self) -> bool:
        """Whether the first value is the score itself."""
        value = self.kernel.stores[0].value
        return isinstance(value, Load) and value.buffer == SCORE


DEVICE = torch.device("cuda")
LEAVES = (SCORE, GRADIENT)


def start_of_step(form: Form, places: str) -> str:
    """The first row or column of a step's block of scores. places: the list of the mask's blocks."""
    block, sparse = ("BLOCK_M", "SPARSE_M") if form.kind == OF_KEYS else ("BLOCK_N", "SPARSE_N")
    if form.steps is None:
        return f"step * {block}"
    return f"tl.load({places} + row * columns + step // {form.steps}) * {sparse} + step % {form.steps} * {block}"


def parameters(form: Form, buffers: Sequence[str]) -> list[str]:
    """The kernel's parameters: tensors, the program's own tensors, numbers."""
    if form.kind == DELTA:
        return [*TENSORS[DELTA], *NUMBERS[DELTA], "rows", "heads"]
    return [*TENSORS[form.kind], *LISTS, *buffers, *NUMBERS[form.kind], *SIZES]


def print_kernel(
    form: Form, texts: Mapping[str, Text], unchanged: bool, buffers: Sequence[str], sizes: Sequence[str]
) -> str:
    """The function's parameters and body. texts: the printed functions of the program. unchanged: they do nothing but
    mask. sizes: names of the constants."""
    kinds = [(True, "count", "places")] + ([(False, "count_full", "places_full")] if form.full else [])
    body = (
        engine()
        .get_template(f"attention_{form.kind}.py.j2")
        .render(
            **form.views,
            **texts,
            kinds=kinds,
            precision=precision(form.dtype),
            stored=TYPES[form.dtype],
            unchanged=unchanged,
            factor=repr(math.log2(math.e) * (form.scale if unchanged else 1)),
            scale=repr(form.scale),
            steps=form.steps or "steps",
            start=partial(start_of_step, form),
            m_masked=form.m_masked,
            n_masked=form.n_masked,
            own_keys=form.own_keys,
        )
    )
    names = [*parameters(form, buffers), *(f"{name}: tl.constexpr" for name in sizes)]
    return f"({', '.join(names)}):\n{body}"
