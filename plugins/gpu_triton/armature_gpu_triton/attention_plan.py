"""Plans for flexible attention: the kernels that compute it for a layout of the arguments, with sizes and strides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import attrs
import torch

from armature.backend_api import Expression, IndexValue, KernelSource, Load, Node, Op, Var, postorder
from armature_gpu_triton import attention_printer as printer
from armature_gpu_triton.attention_printer import DELTA, FORWARD, OF_KEYS, OF_QUERY, Body, Form, Rows, Text
from armature_gpu_triton.kernel_printer import print_module
from armature_gpu_triton.launch import Launch
from armature_gpu_triton.ops import POINTERS
from armature_gpu_triton.spec import KernelSpec

DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32))
WIDEST = 256  # longest row that a program can hold, in elements
SMALLEST = 16  # side of a block: that of a matrix unit's operand
BITS = 31
ALIGNED = 16
# number of arguments of a score function (score, batch, head, row, column), and of a mask function (the last four)
SCORE_INPUTS, MASK_INPUTS = 5, 4
Build = Callable[[KernelSource, Sequence[KernelSpec]], Mapping[KernelSpec, Launch]]


@attrs.frozen
class Blocks:
    """The sizes of a block of scores, and the resources of a program."""

    m: int
    n: int
    num_warps: int
    num_stages: int


# For elements of two bytes, by the longest row that they suit; measured on an H100 with 4096 rows, a causal mask and
# rows of 64 and 128 elements.
SHAPES: Mapping[str, tuple[tuple[int, Blocks], ...]] = {
    FORWARD: ((64, Blocks(128, 64, 4, 3)), (128, Blocks(128, 64, 4, 2)), (WIDEST, Blocks(64, 32, 4, 2))),
    DELTA: ((WIDEST, Blocks(64, 16, 4, 1)),),
    OF_QUERY: ((64, Blocks(64, 64, 4, 3)), (128, Blocks(64, 64, 4, 2)), (WIDEST, Blocks(32, 32, 4, 1))),
    OF_KEYS: ((64, Blocks(64, 64, 4, 3)), (128, Blocks(64, 64, 4, 2)), (WIDEST, Blocks(32, 32, 4, 1))),
}
IN_FLOAT32: Mapping[str, Blocks] = {
    FORWARD: Blocks(64, 32, 4, 2),
    DELTA: Blocks(64, 16, 4, 1),
    OF_QUERY: Blocks(32, 32, 4, 1),
    OF_KEYS: Blocks(32, 32, 4, 1),
}


class Unfit(Exception):
    """A call that is left to torch's own operator."""


@attrs.frozen(eq=False)
class Mask:
    """A block mask. of_rows: for each block of rows, which blocks of columns are computed; of_columns: the other way
    round. Each holds counts and positions of the blocks where the mask function is applied, then of those that need no
    mask; None: there are no such blocks. m, n: rows and columns of a block."""

    of_rows: tuple[torch.Tensor | None, ...]
    of_columns: tuple[torch.Tensor | None, ...]
    m: int
    n: int

    @classmethod
    def of(cls, flat: Sequence[object]) -> Mask:
        """Make a Mask from the operator's flattened block mask. Errors: Unfit if the size of blocks is a symbol."""
        lists = [one if isinstance(one, torch.Tensor) else None for one in flat[2:10]]
        m, n = flat[-3], flat[-2]
        if not isinstance(m, int) or not isinstance(n, int):
            raise Unfit
        return cls(tuple(lists[:4]), tuple(lists[4:]), m, n)

    @property
    def lists(self) -> list[torch.Tensor]:
        """All lists that exist."""
        return [one for one in (*self.of_rows, *self.of_columns) if one is not None]


@attrs.frozen(eq=False)
class AttentionInputs:
    """The tensors of a call. own: the tensors that the program's functions read, those of the score function first."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: Mask
    own: tuple[torch.Tensor, ...]

    @property
    def layout(self) -> tuple[object, ...]:
        """The key of a plan: everything that it depends on."""
        every = (self.query, self.key, self.value, *self.own)
        lists = (*self.mask.of_rows, *self.mask.of_columns)
        return (
            *((one.shape, one.stride(), one.dtype) for one in every),
            *(None if one is None else one.shape for one in lists),
            self.query.device,
            self.mask.m,
            self.mask.n,
        )

    @property
    def is_static(self) -> bool:
        """Whether all sizes are numbers."""
        every = (self.query, self.key, self.value, *self.own, *self.mask.lists)
        return all(isinstance(size, int) for one in every for size in (*one.shape, *one.stride()))


@attrs.frozen(eq=False)
class Plan:
    """The launches for a layout. numbers: the arguments of each launch that are not tensors. strides: those of the
    result tensors."""

    launches: Mapping[str, Launch]
    numbers: Mapping[str, tuple[int, ...]]
    strides: Mapping[str, tuple[int, ...]]


@attrs.frozen(eq=False)
class Functions:
    """The program's functions as graphs. shared: how many of the tensors that they read belong to the score
    function."""

    score: object
    mask: object
    shared: int
    scale: float
    expression: Callable[..., Expression | None]


@attrs.frozen
class Tiles:
    """How blocks of scores cover the rows and columns that a kernel walks over. steps: blocks of scores in a block of
    the mask. single: the mask is a single block."""

    blocks: Blocks
    m_masked: bool
    n_masked: bool
    steps: int
    single: bool

    @classmethod
    def of(cls, kind: str, blocks: Blocks, given: AttentionInputs) -> Tiles:
        """Make the tiles of a kernel. It walks over columns, or over rows if it computes gradients of the keys."""
        rows, keys, mask = given.query.shape[2], given.key.shape[2], given.mask
        down = kind == OF_KEYS
        block, sparse, extent = (blocks.m, mask.m, rows) if down else (blocks.n, mask.n, keys)
        steps = -(-min(sparse, extent) // block)
        m_span, n_span = (block * steps, blocks.n) if down else (blocks.m, block * steps)
        return cls(blocks, bool(rows % m_span), bool(keys % n_span), steps, sparse > extent)


def blocks_for(kind: str, given: AttentionInputs) -> Blocks:
    """The size of a block of scores: a power of two that divides the blocks of the mask. Errors: Unfit."""
    longest = max(given.query.shape[-1], given.value.shape[-1])
    if given.query.dtype == torch.float32:
        found = IN_FLOAT32[kind]
    else:
        found = next(blocks for most, blocks in SHAPES[kind] if longest <= most)
    few = max(SMALLEST, 1 << (given.query.shape[2] - 1).bit_length())
    m, n = math.gcd(min(found.m, few), given.mask.m), math.gcd(found.n, given.mask.n)
    if min(m, n) < SMALLEST:
        raise Unfit
    return attrs.evolve(found, m=m, n=n)


def ordered(shape: Sequence[int], like: Sequence[int]) -> tuple[int, ...]:
    """Dense strides in the order of others, with neighbours along the last axis: those of the operator's results."""
    axes = sorted(range(len(shape) - 1), key=lambda axis: (like[axis], -axis))
    strides, step = [0] * len(shape), 1
    for axis in (len(shape) - 1, *axes):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def strides_of(given: AttentionInputs) -> dict[str, tuple[int, ...]]:
    """The strides of all tensors, by their names in kernels."""
    query, key, value = given.query, given.key, given.value
    out = ordered((*query.shape[:3], value.shape[3]), query.stride())
    return {
        "query": query.stride(),
        "key": key.stride(),
        "value": value.stride(),
        "out": out,
        "grad_out": out,
        "grad_query": ordered(query.shape, query.stride()),
        "grad_key": ordered((query.shape[0], *key.shape[1:]), key.stride()),
        "grad_value": ordered((query.shape[0], *value.shape[1:]), value.stride()),
    }


def check(given: AttentionInputs) -> None:
    """Check that the kernels support the call. Errors: Unfit."""
    query, key, value = given.query, given.key, given.value
    fits = (
        query.dtype in DTYPES
        and {key.dtype, value.dtype} == {query.dtype}
        and max(query.shape[-1], value.shape[-1]) <= WIDEST
        and 0 not in (*query.shape, *key.shape, *value.shape)
        and value.shape[:3] == key.shape[:3]
        and key.shape[0] in (1, query.shape[0])
        and all(one.dtype == torch.int32 for one in given.mask.lists)
    )
    if not fits:
        raise Unfit


@attrs.define(eq=False)
class Planning:
    """Makes a plan: prints the kernels, has them built, and records the arguments of their launches."""

    functions: Functions
    inputs: AttentionInputs
    place: tuple[Var, ...]
    traced: tuple[Expression, Expression]
    strides: Mapping[str, tuple[int, ...]]
    bodies: dict[str, str] = attrs.field(factory=dict)
    texts: list[str] = attrs.field(factory=list)
    numbers: dict[str, tuple[int, ...]] = attrs.field(factory=dict)

    @classmethod
    def of(cls, functions: Functions, given: AttentionInputs, learns: bool) -> Planning:
        """Start a plan for a layout. Errors: Unfit."""
        check(given)
        extents = (*given.query.shape[:3], given.key.shape[2])
        place = tuple(map(Var, ("b", "h", "m", "n"), extents))
        return cls(functions, given, place, traced(functions, given, place, learns), strides_of(given))

    @property
    def asserts(self) -> bool:
        """Whether the program's functions use an index that may be out of range."""
        every = postorder([value for found in self.traced for value in found.values])
        return any(isinstance(one, Op) and one.op == "check_index" for one in every)

    def run(self, build: Build, learns: bool) -> Plan:
        """Make the plan. Errors: Unfit, BackendError."""
        kinds = (FORWARD, DELTA, OF_QUERY, OF_KEYS) if learns else (FORWARD,)
        specs = {kind: self.spec(kind) for kind in kinds}
        meta = {"groups": (), "bodies": self.bodies}
        source = KernelSource("gpu_triton", "python", print_module(self.texts), {}, meta=meta)
        launches = build(source, list(specs.values()))
        return Plan({kind: launches[spec] for kind, spec in specs.items()}, self.numbers, self.strides)

    def spec(self, kind: str) -> KernelSpec:
        """Print a kernel. Returns the data for building it."""
        given = self.inputs
        tiles = Tiles.of(kind, blocks_for(kind, given), given)
        form = self.form(kind, tiles)
        numbers = self.numbers[kind] = self.called_with(kind, tiles)
        if self.reaches_far(form):
            raise Unfit
        blocks, mask = tiles.blocks, given.mask
        constants = {"BLOCK_M": blocks.m, "BLOCK_N": blocks.n, "SPARSE_M": mask.m, "SPARSE_N": mask.n}
        texts, unchanged = ({}, False) if kind == DELTA else self.sections(kind, form)
        own = [f"given{at}" for at in range(len(given.own))]
        name = f"attention_{kind}"
        self.bodies[name] = text = printer.print_kernel(form, texts, unchanged, own, list(constants))
        self.texts.append(f"@triton.jit\ndef {name}{text}")
        pointers = self.pointers(kind)
        wide = len(printer.NUMBERS[kind])
        whole = (*(None for _ in pointers), *numbers)
        return KernelSpec(
            name,
            (*pointers, *["i64"] * wide, *["i32"] * (len(numbers) - wide)),
            tuple(at for at, number in enumerate(whole) if number is None or number % ALIGNED == 0),
            tuple(constants.items()),
            self.grid(kind, blocks),
            blocks.num_warps,
            blocks.num_stages,
            given.query.device.index,
            self.asserts,
        )

    def grid(self, kind: str, blocks: Blocks) -> tuple[int, int, int]:
        """The grid: programs along rows or columns, times batches and heads."""
        (batches, heads, rows, _), (_, key_heads, keys, _) = self.inputs.query.shape, self.inputs.key.shape
        if kind == OF_KEYS:
            return -(-keys // blocks.n), batches * key_heads, 1
        return -(-rows // blocks.m), batches * heads, 1

    def called_with(self, kind: str, tiles: Tiles) -> tuple[int, ...]:
        """The numbers that a launch passes: strides of batches and heads, then sizes. Errors: Unfit."""
        (_, heads, rows, _), (_, key_heads, keys, _) = self.inputs.query.shape, self.inputs.key.shape
        strides = [self.strides[name][axis] for name in printer.STRIDES[kind] for axis in (0, 1)]
        if kind == DELTA:
            return (*strides, rows, heads)
        count, places, *_ = self.inputs.mask.of_columns if kind == OF_KEYS else self.inputs.mask.of_rows
        if count is None or places is None:
            raise Unfit
        mask_batches, mask_heads, blocks = count.shape
        sizes = (rows, keys, heads, key_heads, heads // key_heads, blocks, places.shape[3], tiles.steps)
        return (*strides, *sizes, mask_batches, mask_heads)

    def reaches_far(self, form: Form) -> bool:
        """Whether offsets within a head need more than 32 bits."""
        longest = max(self.inputs.query.shape[2], self.inputs.key.shape[2])
        return any(abs(step) * longest >> BITS for view in form.views.values() for step in (view.row, view.column))

    def form(self, kind: str, tiles: Tiles) -> Form:
        """Everything besides the program's functions that determines the kernel's text."""
        given, m, n = self.inputs, tiles.m_masked, tiles.n_masked
        wide, long = given.query.shape[-1], given.value.shape[-1]
        rows = {
            "q": ("query", wide, m), "k": ("key", wide, n), "v": ("value", long, n), "o": ("out", long, m),
            "g": ("grad_out", long, m), "dq": ("grad_query", wide, m), "dk": ("grad_key", wide, n),
            "dv": ("grad_value", long, n),
        }  # fmt: skip
        views = {
            name: Rows(self.strides[of][2], self.strides[of][3], size, masked)
            for name, (of, size, masked) in rows.items()
        }
        lists = given.mask.of_columns if kind == OF_KEYS else given.mask.of_rows
        own_keys = given.key.shape[0] == given.query.shape[0]
        scale = self.functions.scale
        steps = None if tiles.single else tiles.steps
        return Form(kind, given.query.dtype, views, own_keys, lists[2] is not None, m, n, scale, steps)

    def pointers(self, kind: str) -> list[str]:
        """The types of the tensors."""
        stored = POINTERS[self.inputs.query.dtype]
        found = ["*fp32" if name in printer.IN_FLOAT32 else stored for name in printer.TENSORS[kind]]
        if kind != DELTA:
            found += ["*i32"] * len(printer.LISTS) + [POINTERS[one.dtype] for one in self.inputs.own]
        return found

    def sections(self, kind: str, form: Form) -> tuple[dict[str, Text], bool]:
        """The printed functions, by the template's section that they go into, and whether they do nothing but mask."""
        of_score, of_mask = self.traced
        if kind == FORWARD:
            of_score = attrs.evolve(of_score, values=of_score.values[:1])
        names = {name: f"given{at - SCORE_INPUTS}" for name, at in of_score.positions.items()}
        scores = Body(of_score, names, "post", self.place, form)
        before = MASK_INPUTS - self.functions.shared
        names = {name: f"given{at - before}" for name, at in of_mask.positions.items()}
        (mask,) = Body(of_mask, names, "mask", self.place, form).texts()
        texts = dict(zip(("score", "gradient"), scores.texts(), strict=False))
        return {**texts, "mask": mask}, scores.unchanged and self.functions.scale > 0


def traced(
    functions: Functions, given: AttentionInputs, place: Sequence[Var], learns: bool
) -> tuple[Expression, Expression]:
    """The functions of scores, with the gradient if it `learns`, and of the mask. Errors: Unfit."""
    device = given.query.device
    number, spot = (torch.empty((), dtype=dtype, device=device) for dtype in (torch.float32, torch.int32))
    inputs = [number, *[spot] * MASK_INPUTS, *given.own[: functions.shared]]
    block = tuple(place[2:])
    spots: list[Node] = [IndexValue(var, torch.int32) for var in place]
    nodes: dict[int, Node] = dict(enumerate([Load(printer.SCORE, block, torch.float32), *spots]))
    if learns:
        nodes[len(inputs)] = Load(printer.GRADIENT, block, torch.float32)
    of_score = functions.expression(functions.score, inputs, nodes, learns)
    inputs = [*[spot] * MASK_INPUTS, *given.own[functions.shared :]]
    of_mask = functions.expression(functions.mask, inputs, dict(enumerate(spots)))
    if of_score is None or of_mask is None:
        raise Unfit
    return of_score, of_mask
