"""Operators of complex numbers, each as a small function of real and imaginary parts.

A row is given the operator's arguments, with a Pair for each complex tensor and a Real for each other one. It returns a
Pair or a Real. Some operators of ATen are missing, and stay calls: those whose kernels take care of values for which
the textbook's formula is wrong (log, sqrt, trigonometric functions), products of matrices, transforms.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

import attrs
import torch
from torch import Tensor, fx

from armature_aten_lowerings import complex_parts as parts
from armature_aten_lowerings.common import add_call
from armature_aten_lowerings.complex_parts import NotWritten, Pair, Part, Real

aten = torch.ops.aten
PART_DTYPES: Mapping[torch.dtype, torch.dtype] = {torch.complex64: torch.float32, torch.complex128: torch.float64}
SHORT = 1 << 16
"""Elements of vectors whose product loops compute no slower than a library."""


@attrs.frozen(eq=False)
class Call:
    """The call that is written as parts. dtype: of the parts."""

    node: fx.Node
    dtype: torch.dtype

    def pair(self, value: object) -> Pair:
        """An operand, in the dtype of the parts. Errors: NotWritten, if it is none."""
        if isinstance(value, Pair):
            return value.map(lambda part: part.to(self.dtype))
        if isinstance(value, Real):
            return Pair(value.to(self.dtype), 0.0)
        if isinstance(value, complex | float | int):
            return Pair(float(value.real), float(value.imag))
        if isinstance(value, fx.Node):  # a number that varies
            device = first_of(self.node.meta["val"]).device
            number = add_call(self.node, aten.scalar_tensor.default, value, dtype=self.dtype, device=device)
            return Pair(Real(number, self.node), 0.0)
        raise NotWritten


Row: TypeAlias = Callable[..., "Pair | Real"]


def first_of(value: object) -> Tensor:
    """A tensor, or the first of several."""
    return cast(Tensor, value[0] if isinstance(value, (list, tuple)) else value)


# Arithmetic.


def unary(formula: Callable[[Pair], Pair | Real]) -> Row:
    """The row of a formula with one operand."""
    return lambda call, x: formula(call.pair(x))


def binary(formula: Callable[[Pair, Pair], Pair]) -> Row:
    """The row of a formula with two operands."""
    return lambda call, x, y: formula(call.pair(x), call.pair(y))


def scaled(call: Call, x: object, factor: object) -> Pair:
    """An operand times a factor. ATen multiplies by a factor of 1 too, which makes NaN of an infinite number."""
    return parts.multiply(call.pair(x), call.pair(factor))


def add(call: Call, x: object, y: object, *, alpha: object = 1) -> Pair:
    return parts.add(call.pair(x), scaled(call, y, alpha))


def subtract(call: Call, x: object, y: object, *, alpha: object = 1) -> Pair:
    return parts.subtract(call.pair(x), scaled(call, y, alpha))


def reversed_subtract(call: Call, x: object, y: object, alpha: object = 1) -> Pair:
    return parts.subtract(call.pair(y), scaled(call, x, alpha))


def add_product(call: Call, x: object, y: object, z: object, *, value: object = 1) -> Pair:
    return parts.add(call.pair(x), parts.multiply(scaled(call, y, value), call.pair(z)))


def power(call: Call, x: object, exponent: complex) -> Pair:
    return parts.power(call.pair(x), exponent)


def make_complex(call: Call, re: Real, im: Real) -> Pair:
    return Pair(re, im)


def make_polar(call: Call, size: Real, turn: Real) -> Pair:
    return parts.polar(size, turn)


def dot(call: Call, x: Pair, y: Pair) -> Pair:
    if not _is_short(call):
        raise NotWritten
    return _each(parts.multiply(x, y), aten.sum.default)


def dot_conjugated(call: Call, x: Pair, y: Pair) -> Pair:
    return dot(call, parts.conjugate(x), y)


def _is_short(call: Call) -> bool:
    size = call.node.all_input_nodes[0].meta["val"].numel()
    return type(size) is int and size <= SHORT


# Comparison and choice.


def equal(call: Call, x: object, y: object) -> Real:
    return _compared(call, x, y, aten.eq, aten.logical_and.default)


def unequal(call: Call, x: object, y: object) -> Real:
    return _compared(call, x, y, aten.ne, aten.logical_or.default)


def _compared(
    call: Call, x: object, y: object, compare: torch._ops.OpOverloadPacket, join: torch._ops.OpOverload
) -> Real:
    left, right = call.pair(x), call.pair(y)
    if not isinstance(left.re, Real) or not isinstance(left.im, Real):
        left, right = right, left
    re, im = left.tensors()
    return re.with_(compare, right.re).call(join, im.with_(compare, right.im))


def either(test: torch._ops.OpOverload) -> Row:
    """The row of a test that is true if it is true of one of the parts."""

    def row(call: Call, x: Pair) -> Real:
        re, im = x.tensors()
        return re.call(test).call(aten.logical_or.default, im.call(test))

    return row


def where(call: Call, condition: Real, chosen: object, other: object) -> Pair:
    first, second = call.pair(chosen), call.pair(other)
    if not isinstance(first.re, Real) and not isinstance(second.re, Real):
        raise NotWritten  # the result would get the default dtype
    return Pair(parts.where(condition, first.re, second.re), _chosen(condition, first, second))


def _chosen(condition: Real, first: Pair, second: Pair) -> Part:
    if not isinstance(first.im, Real) and not isinstance(second.im, Real):
        if first.im == second.im:
            return first.im
        first = Pair(*first.tensors()) if isinstance(first.re, Real) else first
        second = Pair(*second.tensors()) if isinstance(second.re, Real) else second
    return parts.where(condition, first.im, second.im)


def masked_fill(call: Call, x: object, mask: Real, value: object) -> Pair:
    return where(call, mask, value, x)


# The same for both parts.


def _each(x: Pair, target: Callable[..., object], *args: object, **options: object) -> Pair:
    re, im = x.tensors()
    return Pair(re.call(target, *args, **options), im.call(target, *args, **options))


def both(target: Callable[..., object]) -> Row:
    """The row of an operator that does the same with both parts, and for which a number is the same everywhere."""

    def row(call: Call, x: object, *args: object, **options: object) -> Pair:
        pair = x if isinstance(x, Pair) else call.pair(x)
        return pair.map(lambda part: part.call(target, *args, **options))

    return row


def reduction(target: Callable[..., object]) -> Row:
    """The row of a sum or mean."""

    def row(call: Call, x: object, *args: object, dtype: torch.dtype | None = None, **options: object) -> Pair:
        return _each(call.pair(x), target, *args, **options)

    return row


def scatter(target: Callable[..., object]) -> Row:
    """The row of an operator that replaces a part of its first operand by its second."""

    def row(call: Call, x: object, source: object, *args: object) -> Pair:
        olds, news = call.pair(x).tensors(), call.pair(source).tensors()
        return Pair(*(old.call(target, new, *args) for old, new in zip(olds, news, strict=True)))

    return row


def join(target: Callable[..., object]) -> Row:
    """The row of `cat` and `stack`."""

    def row(call: Call, given: Sequence[object], dim: int = 0) -> Pair:
        pairs = [call.pair(one).tensors() for one in given]
        made = (add_call(call.node, target, [parts.plain(pair[k]) for pair in pairs], dim) for k in range(2))
        return Pair(*(Real(node, call.node) for node in made))

    return row


def pad(call: Call, x: Pair, widths: Sequence[object], value: complex = 0) -> Pair:
    re, im = x.tensors()
    return Pair(
        re.call(aten.constant_pad_nd.default, widths, value.real),
        im.call(aten.constant_pad_nd.default, widths, value.imag),
    )


def reshape(call: Call, x: object, shape: Sequence[object], *strides: object) -> Pair:
    return call.pair(x).map(lambda part: part.call(aten.reshape.default, shape))


def same(call: Call, x: object, **options: object) -> Pair:
    return call.pair(x)


def copy(call: Call, x: object, source: object, non_blocking: bool = False) -> Pair:
    return call.pair(source)


def fill(call: Call, x: object, value: object) -> Pair:
    re, _ = call.pair(x).tensors()
    found = call.pair(value)
    return Pair(*(part if isinstance(part, Real) else parts.filled(re, part) for part in (found.re, found.im)))


def conjugate(call: Call, x: object) -> Pair:
    return parts.conjugate(call.pair(x))


def convert(
    call: Call, x: object, dtype: object = None, device: torch.device | None = None, **options: object
) -> Pair | Real:
    if device is not None and torch.device(device) != call.node.all_input_nodes[0].meta["val"].device:
        raise NotWritten
    if isinstance(x, Pair) and isinstance(dtype, torch.dtype) and not dtype.is_complex:
        re, _ = x.tensors()
        return re.to(dtype)
    return call.pair(x)


def from_real(call: Call, x: Real) -> Pair:
    if x.node.target is aten.stack.default and len(x.node.args) == 2 and x.node.args[1] in (-1, x.value.dim() - 1):
        return Pair(*(Real(part, call.node) for part in cast("Sequence[fx.Node]", x.node.args[0])))
    return Pair(x.call(aten.select.int, -1, 0), x.call(aten.select.int, -1, 1))


# New tensors.


def constant(number: complex | None) -> Row:
    """The row of an operator that makes a tensor of one number; None: an argument."""

    def row(call: Call, *args: object, **options: object) -> Pair:
        made = call.node.meta["val"]
        given = [one for one in args if isinstance(one, complex | float | int)] if number is None else [number]
        value = given[0] if given else None
        if value is None or not all(type(size) is int for size in made.shape):
            raise NotWritten
        re = add_call(
            call.node, aten.full.default, list(made.shape), float(value.real), dtype=call.dtype, device=made.device
        )
        return Pair(Real(re, call.node), float(value.imag))

    return row


FREE: Mapping[Callable[..., object], Row] = {
    **{
        target: both(target)
        for target in (
            aten.permute.default, aten.transpose.int, aten.t.default, aten.expand.default, aten.squeeze.default,
            aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default, aten.slice.Tensor, aten.select.int,
            aten.diagonal.default, aten.unfold.default, aten.alias.default, aten.detach.default,
            aten.split.Tensor, aten.unsafe_split.Tensor, aten.split_with_sizes.default,
            aten.unsafe_split_with_sizes.default, aten.unbind.int, operator.getitem,
        )
    },
    **dict.fromkeys(
        (aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default, aten.reshape.default), reshape
    ),
    **dict.fromkeys(
        (aten.clone.default, aten.contiguous.default, aten.lift_fresh_copy.default, aten.lift_fresh.default), same
    ),
    **dict.fromkeys((aten._conj.default, aten._conj_physical.default, aten.conj_physical.default), conjugate),
    aten.view_as_complex.default: from_real,
    **dict.fromkeys((aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default), constant(0)),
    **dict.fromkeys((aten.ones.default, aten.ones_like.default, aten.new_ones.default), constant(1)),
    **dict.fromkeys(
        (aten.full.default, aten.full_like.default, aten.new_full.default, aten.scalar_tensor.default), constant(None)
    ),
}  # fmt: skip
"""Changes of coordinates and the like, and constants: they cost nothing."""

WORK: Mapping[Callable[..., object], Row] = {
    aten.add.Tensor: add, aten.add.Scalar: add, aten.sub.Tensor: subtract, aten.sub.Scalar: subtract,
    aten.rsub.Tensor: reversed_subtract, aten.rsub.Scalar: reversed_subtract,
    aten.mul.Tensor: binary(parts.multiply), aten.mul.Scalar: binary(parts.multiply),
    aten.div.Tensor: binary(parts.divide), aten.div.Scalar: binary(parts.divide),
    aten.addcmul.default: add_product,
    aten.neg.default: unary(parts.negate),
    aten.reciprocal.default: unary(lambda x: parts.divide(Pair(1.0, 0.0), x)),
    aten.square.default: unary(lambda x: parts.multiply(x, x)),
    aten.abs.default: unary(parts.size_of), aten.angle.default: unary(parts.angle),
    aten.sgn.default: unary(parts.direction), aten.exp.default: unary(parts.exponential),
    aten.pow.Tensor_Scalar: power,
    aten.complex.default: make_complex, aten.polar.default: make_polar,
    aten.dot.default: dot, aten.vdot.default: dot_conjugated,
    aten.eq.Tensor: equal, aten.eq.Scalar: equal, aten.ne.Tensor: unequal, aten.ne.Scalar: unequal,
    aten.isnan.default: either(aten.isnan.default), aten.isinf.default: either(aten.isinf.default),
    aten.where.self: where, aten.where.ScalarOther: where, aten.where.ScalarSelf: where,
    aten.masked_fill.Scalar: masked_fill, aten.masked_fill.Tensor: masked_fill,
    **{target: reduction(target) for target in (
        aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.cumsum.default,
    )},
    **{target: both(target) for target in (
        aten.flip.default, aten.roll.default, aten.repeat.default, aten.index.Tensor, aten.index_select.default,
        aten.gather.default, aten.expand_copy.default,
    )},
    **{target: scatter(target) for target in (
        aten.slice_scatter.default, aten.select_scatter.default, aten.diagonal_scatter.default,
    )},
    aten.cat.default: join(aten.cat.default), aten.stack.default: join(aten.stack.default),
    aten.constant_pad_nd.default: pad, aten.copy.default: copy, aten.fill.Scalar: fill, aten.fill.Tensor: fill,
    aten._to_copy.default: convert, torch.ops.prims.convert_element_type.default: convert,
}  # fmt: skip
"""Arithmetic and copies: loops, each a call of its own if it stays one."""
