"""Hand-built kernels that every device back end must run: the input of `backend_kit`.

A case is a function of the device and the back end's features; it returns a `Sketch`: buffers with values, one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs
import torch
from torch import Tensor

from armature.lower.data import Buffer, BufferKind, Const, Load, Masked, Node, Op, Origin, Reduce, Scan, Store
from armature.lower.features import Features
from armature.lower.float8 import FORMATS
from armature.lower.index import Index, Size, Var, add, contiguous_strides, hint, mul
from armature.lower.ops import FAMILIES, FLOATS, INTEGERS, OPS, POLYNOMIALS
from armature.schedule.data import Kernel, Pass

F32, F64, I32, I64 = torch.float32, torch.float64, torch.int32, torch.int64
BF16, F16, BOOL = torch.bfloat16, torch.float16, torch.bool
ORIGIN = Origin("aten.example.default", "model.py", 41, "forward", "y = example(x)")


class Skip(Exception):
    """The back end's features do not support the case."""


@attrs.define(eq=False)
class Sketch:
    """A kernel being built by hand, with its buffers and their initial memory."""

    name: str
    device: torch.device
    buffers: dict[str, Buffer] = attrs.field(factory=dict)
    memory: dict[str, Tensor] = attrs.field(factory=dict)
    sizes: dict[str, int] = attrs.field(factory=dict)
    tolerance: dict[str, float] = attrs.field(factory=dict)
    kernel: Kernel | None = None
    raises: type[Exception] | None = None

    def size(self, name: str, value: int) -> Size:
        """A symbolic size, with `value` at run time (its hint differs, to catch code that relies on it)."""
        self.sizes[name] = value
        return Size(name, value + 3)

    def number(self, index: Index) -> int:
        """Value of an index composed of the case's sizes."""
        if isinstance(index, Size):
            return self.sizes[index.name]
        return index if isinstance(index, int) else hint(_at(index, self.sizes))

    def buffer(
        self, name: str, dtype: torch.dtype, shape: Sequence[Index], values: Tensor | None = None,
        strides: Sequence[Index] | None = None,
    ) -> str:  # fmt: skip
        """Declare a buffer. `values`: its storage, flat; default zeros."""
        steps = contiguous_strides(shape) if strides is None else tuple(strides)
        self.buffers[name] = Buffer(name, dtype, self.device, tuple(shape), steps, BufferKind.INPUT)
        reach = [(self.number(n) - 1) * self.number(s) for n, s in zip(shape, steps, strict=True)]
        span = 0 if any(self.number(n) == 0 for n in shape) else 1 + sum(reach)
        flat = torch.zeros(span, dtype=dtype) if values is None else values.reshape(-1).to(dtype)
        self.memory[name] = flat.to(self.device)
        return name

    def load(self, name: str, *index: Index, indirect: Sequence[tuple[Var, Node]] = ()) -> Load:
        """Read a buffer."""
        return Load(name, index, self.buffers[name].dtype, tuple(indirect))

    def pointwise(self, outer: Sequence[Var], *stores: Store) -> Sketch:
        """Finish as a kernel without inner loop."""
        return self.finish(outer, (), [Pass((), (), stores)])

    def finish(
        self, outer: Sequence[Var], inner: Sequence[Var], passes: Sequence[Pass], sums: Sequence[str] = ()
    ) -> Sketch:
        """Finish the kernel: its reads, writes and sizes follow from the passes."""
        reads: dict[str, None] = {}
        writes: dict[str, None] = {}
        for step in passes:
            for store in (*step.inner_stores, *step.outer_stores):
                writes[store.buffer] = None
                _loads(store.value, reads)
                for _, node in store.indirect:
                    _loads(node, reads)
            for reduce in step.reductions:
                _loads(reduce, reads)
        sizes = tuple(Size(n, v + 3) for n, v in self.sizes.items())
        names = tuple(n for n in reads if n not in writes)
        self.kernel = Kernel(
            self.name, self.device, tuple(outer), tuple(inner), tuple(passes), names, tuple(writes), sizes, (ORIGIN,),
            sums=tuple(sums),
        )  # fmt: skip
        return self


def _at(index: Index, sizes: dict[str, int]) -> Index:
    if isinstance(index, int):
        return index
    if isinstance(index, Size):
        return sizes[index.name]
    factors = getattr(index, "factors", None)
    if factors is not None:
        return math.prod(int(hint(_at(f, sizes))) for f in factors)
    return add(getattr(index, "const"), *(mul(_at(f, sizes), c) for f, c in getattr(index, "terms")))  # noqa: B009


def _loads(node: Node, found: dict[str, None]) -> None:
    if isinstance(node, Load):
        found[node.buffer] = None
        for _, child in node.indirect:
            _loads(child, found)
    elif isinstance(node, Op):
        for child in node.args:
            _loads(child, found)
    elif isinstance(node, Masked):
        _loads(node.cond, found)
        _loads(node.value, found)
    elif isinstance(node, (Reduce, Scan)):
        _loads(node.value, found)


def op(name: str, *args: Node, dtype: torch.dtype | None = None) -> Op:
    """An operation; its dtype defaults to that of its last argument."""
    return Op(name, args, args[-1].dtype if dtype is None else dtype, ORIGIN)


def cast(value: Node, dtype: torch.dtype) -> Op:
    """A conversion."""
    return Op("cast", (value,), dtype, ORIGIN)


def randn(*shape: int, dtype: torch.dtype = F32, seed: int = 0) -> Tensor:
    """Reproducible values, integers between -9 and 9."""
    made = torch.Generator().manual_seed(seed + sum(shape))
    if dtype == BOOL:
        return torch.randint(0, 2, shape, generator=made).bool()
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -9
        return torch.randint(low, 10, shape, generator=made).to(dtype)
    return torch.randn(shape, generator=made).to(dtype)


Make = Callable[[torch.device, Features], Sketch]


@attrs.frozen
class Case:
    """A named case; cases of one group are built together."""

    group: str
    name: str
    make: Make


# Single operations.

SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    math.inf,
    -math.inf,
    math.nan,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    1e-30,
    -3e-5,
    87.5,
    -87.5,
    1e5,
)


def _operands(family: str, dtype: torch.dtype, count: int) -> tuple[Tensor, Tensor]:
    a, b = randn(count, dtype=dtype, seed=1), randn(count, dtype=dtype, seed=2)
    if dtype.is_floating_point:
        a = a * 3
        pairs = torch.tensor(SPECIAL, dtype=dtype)
        if family != "division":  # eager is not consistent there: its vector and scalar remainders of infinities differ
            a[: len(SPECIAL)] = pairs
            b[2 : len(SPECIAL) + 2] = pairs.flip(0)
    if family == "division":
        b = torch.where(b == 0, torch.ones_like(b), b)
    if family in ("bits", "shifts") and dtype != BOOL:
        b = b.abs() % 7
    return a, b


def family_case(family: str, dtype: torch.dtype) -> Case:
    """Every operation of a family on one dtype: 77 elements, so that vectorised loops have a tail."""

    def make(device: torch.device, features: Features) -> Sketch:
        names = [n for n, info in OPS.items() if info.family == family and n in features.ops]
        if not names or dtype not in features.dtypes or (BOOL not in features.dtypes):
            raise Skip
        sketch = Sketch(f"{family}_{str(dtype).removeprefix('torch.')}", device)
        i = Var("i", 77)
        a, b = _operands(family, dtype, 77)
        held = {"a": a, "b": b}
        if family == "series":
            # C++ leaves open which integers the others become: on ARM, torch counts to 2**63.
            held["degrees"] = torch.where(b.isfinite(), b, torch.ones_like(b))
        x, y, *degrees = (sketch.load(sketch.buffer(n, dtype, (77,), v), i) for n, v in held.items())
        stores = []
        for name in names:
            operands: list[Node] = [x, degrees[0] if name in POLYNOMIALS else y, x]
            info = OPS[name]
            given = [op("abs", x)] if info.positive else operands[: info.arity]
            out = BOOL if info.gives_bool else dtype
            sketch.buffer(f"out_{name}", out, (77,))
            sketch.tolerance[f"out_{name}"] = info.tolerance
            stores.append(Store(f"out_{name}", (i,), op(name, *given, dtype=out)))
        return sketch.pointwise((i,), *stores)

    return Case(
        f"operations of {str(dtype).removeprefix('torch.')}", f"{family}_{str(dtype).removeprefix('torch.')}", make
    )


def cast_case(source: torch.dtype) -> Case:
    """Casts from one dtype to every other."""

    def make(device: torch.device, features: Features) -> Sketch:
        if source not in features.dtypes:
            raise Skip
        sketch = Sketch(f"cast_{str(source).removeprefix('torch.')}", device)
        i = Var("i", 67)
        values = randn(67, dtype=source) * 3 if source != BOOL else randn(67, dtype=source)
        if source.is_floating_point:
            values = values.abs()  # negative to unsigned is undefined
        x = sketch.load(sketch.buffer("a", source, (67,), values), i)
        stores = []
        for dtype in (*FLOATS, *INTEGERS, BF16, F16, BOOL):
            if dtype in features.dtypes:
                name = sketch.buffer(f"to_{str(dtype).removeprefix('torch.')}", dtype, (67,))
                stores.append(Store(name, (i,), cast(x, dtype)))
        return sketch.pointwise((i,), *stores)

    return Case("casts", f"cast_{str(source).removeprefix('torch.')}", make)


def bits_case(dtype: torch.dtype) -> Case:
    """Floats of 8 bits, which are only moved: read as bits, changed, and stored as they are or as bits."""
    name = f"bits_of_{str(dtype).removeprefix('torch.')}"

    def make(device: torch.device, features: Features) -> Sketch:
        if not {dtype, torch.uint8} <= features.dtypes:
            raise Skip
        sketch = Sketch(name, device)
        i = Var("i", 256)
        x = sketch.load(sketch.buffer("a", dtype, (256,), torch.arange(256, dtype=torch.uint8).view(dtype)), i)
        turned = op("bit_xor", op("bitcast", x, dtype=torch.uint8), Const(0x80, torch.uint8))
        sketch.buffer("bits", torch.uint8, (256,))
        sketch.buffer("moved", dtype, (256,))
        sketch.buffer("negated", dtype, (256,))
        stores = (("bits", turned), ("moved", x), ("negated", op("bitcast", turned, dtype=dtype)))
        return sketch.pointwise((i,), *(Store(buffer, (i,), value) for buffer, value in stores))

    return Case("floats of 8 bits", name, make)


OPERATION_CASES = (
    *(family_case(f, dtype) for f, dtypes in FAMILIES.items() for dtype in dtypes),
    *(cast_case(dtype) for dtype in (*FLOATS, *INTEGERS, BF16, F16, BOOL)),
    *(bits_case(dtype) for dtype in FORMATS),
)
