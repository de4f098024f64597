"""`Elements`: builds the IR nodes for one element of a lowering's result."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import attrs
import torch

from armature.lower import float8, layout
from armature.lower import index as ix
from armature.lower.data import Const, IndexValue, Load, Masked, Node, Op, Origin, Reduce, Scan
from armature.lower.features import Features
from armature.lower.index import Index, Var
from armature.lower.ops import OPS, REDUCTIONS
from armature.lower.reasons import NotSupported
from armature.lower.values import Scalar, ScalarValue, TensorValue
from armature.torch_abi.memory import HOST

if TYPE_CHECKING:
    from armature.context import CompileContext

Position = tuple[Index, ...]
MOST_PLANES = 8  # most elements of a reduction that are unrolled
OF_NOTHING = {"sum": 0, "prod": 1, "any": False, "all": True}  # reductions over no elements
_NARROW_FLOATS = frozenset((torch.float16, torch.bfloat16))


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which elements of `dtype` are computed: float32 for floats of 8 and 16 bits, else the same."""
    return torch.float32 if dtype in _NARROW_FLOATS or dtype in float8.FORMATS else dtype


@attrs.define(eq=False)
class Elements:
    """Makes nodes, checking each against the features of the device's back end."""

    ctx: CompileContext
    origin: Origin | None = None
    device: str = HOST.type  # of the loop being built
    _features: dict[str, Features | None] = attrs.field(factory=dict)

    def features_of(self, device: torch.device) -> Features | None:
        """What the back end of the device can do; None when there is none."""
        if device.type not in self._features:
            backend = self.ctx.tables.device_backend(device.type)
            self._features[device.type] = None if backend is None else backend.features
        return self._features[device.type]

    @property
    def features(self) -> Features:
        """The features of the back end for the loop being built. Errors: NotSupported when there is none."""
        found = self.features_of(torch.device(self.device))
        if found is None:
            raise NotSupported(self.device, "device")
        return found

    def need_dtype(self, dtype: torch.dtype) -> None:
        if dtype not in self.features.dtypes:
            raise NotSupported(str(dtype).removeprefix("torch."), "dtype")

    def need_sizes(self, sizes: Iterable[Index]) -> None:
        """Check that sizes and strides are numbers, or that the back end supports symbols."""
        if not self.features.symbolic_sizes and any(ix.sizes(size) for size in sizes):
            raise NotSupported("sizes in kernels", "changing")

    # -- element values

    def const(self, value: bool | int | float, dtype: torch.dtype) -> Const:
        """A literal, converted to `dtype`; of floats of 8 bits there is zero alone."""
        self.need_dtype(dtype)
        if dtype in float8.FORMATS and value:
            raise NotSupported(f"a literal of {str(dtype).removeprefix('torch.')}", "dtype")
        if dtype == torch.bool:
            return Const(bool(value), dtype)
        return Const(float(value) if dtype.is_floating_point else int(value), dtype)

    def number(self, value: Scalar, dtype: torch.dtype) -> Node:
        """A literal, or a symbolic size or a float only known when the graph runs as a value."""
        if isinstance(value, (bool, int, float)):
            return self.const(value, dtype)
        return self._scalar(value, dtype) if isinstance(value, ScalarValue) else self.index_value(value, dtype)

    def _scalar(self, value: ScalarValue, dtype: torch.dtype) -> Node:
        source = value.tensor
        if torch.device(self.device).type != source.device.type and not self.features.scalars:
            raise NotSupported("a number that is passed by value", "changing")
        self.need_dtype(source.dtype)
        read = Load(source.buffer, layout.at(source, ()), source.dtype)
        return self.cast(read if value.rounded is None else self.cast(read, value.rounded), dtype)

    def index_value(self, value: Index, dtype: torch.dtype = torch.int64) -> Node:
        """An index expression as a value."""
        self.need_dtype(dtype)
        self.need_sizes((value,))
        return self.const(value, dtype) if isinstance(value, int) else IndexValue(value, dtype)

    def op(self, name: str, *args: Node | Scalar, dtype: torch.dtype | None = None) -> Node:
        """An operation of `armature.lower.ops.OPS`. Arguments of one dtype, which numbers among them take on; the
        result's is theirs, or bool for comparisons. Errors: TypeError for an argument of another kind."""
        if name not in OPS or OPS[name].arity != len(args):
            raise TypeError(f"there is no operation {name} of {len(args)} arguments")
        if name not in self.features.ops:
            raise NotSupported(name, "operation")
        values = self._values(name, args)
        if dtype is None:
            dtype = torch.bool if OPS[name].gives_bool else values[1 if name == "where" else 0].dtype
        self.need_dtype(dtype)
        return Op(name, values, dtype, self.origin)

    def _values(self, name: str, args: tuple[Node | Scalar, ...]) -> tuple[Node, ...]:
        """The arguments, with numbers as literals in the dtype of the last value among them: a choice's first argument
        is its condition. Errors: TypeError for other arguments, and for a fraction beside integers."""
        dtype = next((arg.dtype for arg in reversed(args) if isinstance(arg, Node)), None)
        values: list[Node] = []
        for arg in args:
            if isinstance(arg, Node):
                values.append(arg)
            elif (
                dtype is None or not isinstance(arg, Scalar) or (isinstance(arg, float) and not dtype.is_floating_point)
            ):
                raise TypeError(f"{arg!r} as an argument of {name}, beside {dtype}")
            else:
                values.append(self.number(arg, dtype))
        return tuple(values)

    def cast(self, value: Node, dtype: torch.dtype) -> Node:
        """The value in `dtype`; the value itself when it is that already."""
        if value.dtype == dtype:
            return value
        if value.dtype in float8.FORMATS:
            return self.cast(float8.decoded(self, value), dtype)
        if dtype in float8.FORMATS:
            return float8.encoded(self, self.cast(value, torch.float32), dtype)
        if isinstance(value, Const) and dtype not in _NARROW_FLOATS and value.value in (0, 1):
            return self.const(value.value, dtype)
        return self.op("cast", value, dtype=dtype)

    def where(self, cond: Node, then: Node, other: Node) -> Node:
        """`then` where `cond`, else `other`; both are computed."""
        return self.op("where", cond, then, other)

    def masked(self, cond: Node, value: Node, other: bool | int | float) -> Node:
        """`value` where `cond`, else the literal; loads inside `value` are made only where `cond` holds."""
        return Masked(cond, value, self.const(other, value.dtype), value.dtype)

    def within(self, *checks: tuple[Index, Index]) -> Node:
        """The condition `0 <= index < size` for every pair given, without parts that the variables' ranges imply."""
        cond: Node = self.const(True, torch.bool)
        for value, size in checks:
            low, high = ix.bounds(value)
            number = self.index_value(value)
            tests: list[Node] = []
            if low is None or low < 0:
                tests.append(self.op("ge", number, self.const(0, torch.int64)))
            if high is None or not isinstance(size, int) or high >= size:
                tests.append(self.op("lt", number, self.index_value(size)))
            for test in tests:
                cond = test if isinstance(cond, Const) else self.op("logical_and", cond, test)
        return cond

    def load(self, value: TensorValue, position: Sequence[Index], indirect: Iterable[tuple[Var, Node]] = ()) -> Node:
        """The element of `value` at `position`, in the tensor's own dtype."""
        self.need_dtype(value.dtype)
        self.need_sizes((*value.shape, *value.strides))
        if value.device != torch.device(self.device):
            raise NotSupported("a loop over tensors of two devices")
        where = layout.at(value, position)
        used = frozenset().union(*(ix.variables(part) for part in where)) if where else frozenset()
        # Along an axis of one place all positions are the same one, and checked nevertheless.
        bound = tuple((v, n) for v, n in indirect if v in used or (isinstance(n, Op) and n.op == "check_index"))
        return Load(value.buffer, where, value.dtype, bound)

    def read(self, value: TensorValue, position: Sequence[Index], dtype: torch.dtype | None = None) -> Node:
        """The element that broadcasting puts at `position`, in `dtype` (None: the dtype it is computed in)."""
        where = layout.broadcast_position(value, position)
        return self.cast(self.load(value, where), dtype or compute_dtype(value.dtype))

    def indirect(self, number: int, size: Index, position: Node, *, from_end: bool = False) -> tuple[Var, Node]:
        """An index variable bound to a computed position, which the kernel checks against `size`. With `from_end`, a
        negative one counts from the end."""
        if not self.features.check_index:
            raise NotSupported("checked indices", "operation")
        wide, extent = self.cast(position, torch.int64), self.index_value(size)
        if from_end:
            negative = self.op("lt", wide, self.const(0, torch.int64))
            wide = self.where(negative, self.op("add", wide, extent), wide)
        return Var(f"x{number}", size), self.op("check_index", wide, extent)

    def reduce(
        self,
        op: str,
        value: TensorValue,
        gone: Sequence[int],
        position: Position,
        *,
        keepdim: bool = False,
        dtype: torch.dtype | None = None,
        prepare: Callable[[Node, Position], Node] | None = None,
    ) -> Node:
        """The Reduce node over axes `gone` (sorted, not negative) for the output's element at `position`; if these have
        only a few elements, far apart in memory, an unrolled expression."""
        over = {k: Var(f"r{n}", value.shape[k]) for n, k in enumerate(gone)}

        def element(steps: Sequence[Index]) -> Node:
            inner = dict(zip(over, steps, strict=True))
            rest = iter(p for k, p in enumerate(position) if not (keepdim and k in over))
            where = tuple(
                (0 if value.shape[k] == 1 else inner[k]) if k in over else next(rest) for k in range(value.ndim)
            )
            node = self.cast(self.load(value, where), compute_dtype(dtype or value.dtype))
            return prepare(node, where) if prepare else node

        planes = _planes(value, gone)
        combine = REDUCTIONS[op].combine
        if planes and combine and (dtype or value.dtype) != torch.bool:
            return functools.reduce(functools.partial(self.op, combine), map(element, planes))
        return self._combined(op, element(tuple(over.values())), tuple(over.values()))

    def scan(self, op: str, value: TensorValue, axis: int, position: Position, dtype: torch.dtype) -> Node:
        """The elements of `value` up to `position` along `axis`, that one too, combined in `dtype`."""
        node = self.cast(self.load(value, position), dtype)
        return self.scan_of(op, node, position[axis] if position else 0)

    def scan_of(self, op: str, node: Node, along: Index) -> Node:
        """A value combined with those at all points before, along a variable of the loop; `along` may be 0, one
        point."""
        if op not in self.features.scans:
            raise NotSupported(f"scan {op}", "operation")
        return Scan(op, node, (along,), node.dtype, self.origin) if isinstance(along, Var) else node

    def reduce_over(self, op: str, extents: Sequence[Index], element: Callable[[Position], Node]) -> Node:
        """`element(step)` combined over all steps within `extents`."""
        over = tuple(Var(f"r{n}", size) for n, size in enumerate(extents))
        return self._combined(op, element(tuple(0 if v.extent == 1 else v for v in over)), over)

    def _combined(self, op: str, node: Node, over: tuple[Var, ...]) -> Node:
        if any(v.extent == 0 for v in over):
            if op not in OF_NOTHING:
                raise NotSupported("a reduction over no elements")
            return self.const(OF_NOTHING[op], node.dtype)
        if op not in self.features.reductions:
            raise NotSupported(f"reduction {op}", "operation")
        if not over:
            return node
        result = torch.int64 if op.startswith("arg") else node.dtype
        self.need_dtype(result)
        return Reduce(op, node, over, result, self.origin)


def _planes(value: TensorValue, gone: Sequence[int]) -> Sequence[tuple[int, ...]]:
    """The positions along the reduced axes, if they are few and far apart in memory; else none.

    Unrolling them leaves a pointwise loop, which can be fused with its neighbours in any loop order.
    """
    sizes = [size for k in gone if isinstance(size := value.shape[k], int)]
    strides = [stride for k in gone if isinstance(stride := value.strides[k], int)]
    if len(sizes) < len(gone) or len(strides) < len(gone) or not 1 < math.prod(sizes) <= MOST_PLANES:
        return ()
    if any(size > 1 >= stride for size, stride in zip(sizes, strides, strict=True)):
        return ()
    return list(itertools.product(*map(range, sizes)))
