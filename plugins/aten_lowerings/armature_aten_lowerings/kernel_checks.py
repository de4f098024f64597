"""Checks of operands' dtypes and sizes that torch's kernels make but its fake tensors don't; and rewrites of arguments
that its meta functions treat wrongly or refuse.

A refused call breaks the graph, and the kernel then reports the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from armature.plugin_api import is_unbacked
from armature_aten_lowerings.kernel_layouts import NARROW, Arguments

aten = torch.ops.aten
Overload = torch._ops.OpOverload
Check = Callable[[Arguments], bool]
INDICES = frozenset((torch.int32, torch.int64))
STANDS_FOR: Mapping[type, object] = {torch.SymInt: 0, torch.SymFloat: 0.0, torch.SymBool: False}


def axes_from_front(args: Arguments) -> Sequence[object]:
    """The arguments of a vector norm, with axes counted from the front: torch 2.11 fails to drop an axis of size 1 that
    is counted from the back."""
    if len(args) < 3 or not args[2] or min(args[2]) >= 0:
        return args
    rank = max(args[0].dim(), 1)
    if any(not -rank <= axis < rank for axis in args[2]):  # torch will refuse it
        return args
    return (*args[:2], [axis % rank for axis in args[2]], *args[3:])


def axes_in_order(args: Arguments) -> Sequence[object]:
    """The arguments of a Fourier transform with its axes in ascending order, because torch 2.11 takes the result's
    sizes in that order. `kernel_layouts` corrects the strides."""
    return (args[0], sorted(args[1]), *args[2:])


def axes_but_last_in_order(args: Arguments) -> Sequence[object]:
    """Like `axes_in_order`, but the axis along which the result is real stays last."""
    return (args[0], [*sorted(args[1][:-1]), *args[1][-1:]], *args[2:])


def known_numbers(args: Arguments) -> Sequence[object]:
    """The arguments with known numbers in place of those that vary, where the result's size and dtype are those of any
    number. torch's meta function refuses to convert one to a dtype, as vmap does; and that of a power asks in torch
    2.11 whether it is 1, 2 or 0.5, which would be guarded."""
    return [STANDS_FOR.get(type(one), one) for one in args]


UNDERSTOOD: Mapping[Overload, Callable[[Arguments], Sequence[object]]] = {
    aten.linalg_vector_norm.default: axes_from_front,
    aten._fft_c2c.default: axes_in_order,
    aten._fft_c2r.default: axes_but_last_in_order,
    **dict.fromkeys((aten._to_copy.default, aten.pow.Tensor_Scalar, aten.pow.Scalar, aten.pow_.Scalar), known_numbers),
}
"""Arguments that mean the same, in the form that torch's meta functions treat rightly."""


def same(*places: int) -> Check:
    """Check that the given arguments at these positions have the same dtype."""

    def check(args: Arguments) -> bool:
        given = (args[place] for place in places if place < len(args))
        return len({one.dtype for one in given if isinstance(one, torch.Tensor)}) < 2

    return check


def as_input(*places: int) -> Check:
    """Check that the parameters at these positions have the first argument's dtype, or float32 next to a 16-bit one.
    Kernels of other devices than the CPU check this themselves."""

    def check(args: Arguments) -> bool:
        allowed = {args[0].dtype, torch.float32} if args[0].dtype in NARROW else {args[0].dtype}
        given = (args[place] for place in places if place < len(args))
        return args[0].device.type != "cpu" or all(
            one.dtype in allowed for one in given if isinstance(one, torch.Tensor)
        )

    return check


def values_to_put(args: Arguments) -> bool:
    """Check that values have the dtype of their target; a single number under a mask may have any. Where there is no
    mask, check that they fit the part that the indices select, which decides which sizes that vary are equal."""
    target, indices, values = args[:3]
    given = [one for one in indices if isinstance(one, torch.Tensor)]
    if any(one.dtype in (torch.bool, torch.uint8) for one in given):
        return bool(target.dtype == values.dtype or (values.dim() <= 1 and values.numel() == 1))
    if target.dtype != values.dtype:
        return False
    if any(is_unbacked(size) for one in (*given, values) for size in one.shape):
        return True
    try:
        part = aten.index.Tensor(target, indices)
        return bool(torch.broadcast_shapes(part.shape, values.shape) == part.shape)
    except (IndexError, RuntimeError):
        return False


def index_is_integer(args: Arguments) -> bool:
    """Check that the third argument is an integer index."""
    return args[2].dtype in INDICES


def fills(part: Callable[..., torch.Tensor]) -> Check:
    """Whether the second argument has the sizes of the part of the first that it replaces."""

    def check(args: Arguments) -> bool:
        target, source, *place = args
        return bool(part(target, *place).shape == source.shape)

    return check


def index_in_range(args: Arguments) -> bool:
    """Whether the number after the axis is an index of that axis. torch 2.11 selects with any number that varies."""
    target, axis, index = args[:3]
    if not target.dim() or is_unbacked(index) or not -target.dim() <= axis < target.dim():
        return True  # torch refuses the first and the last itself, and asserts the other when the value is known
    size = target.shape[axis]
    return bool(-size <= index < size)


def slice_fits(args: Arguments) -> bool:
    """Whether the second argument has the sizes of one index along an axis of the first."""
    return index_in_range((args[0], *args[2:])) and fills(aten.select.int)(args)


def axis_in_range(args: Arguments) -> bool:
    """Whether the second argument is an axis of the first. torch 2.11 doesn't check that of a softmax."""
    rank = max(args[0].dim(), 1)
    return bool(-rank <= args[1] < rank)


def is_wide(args: Arguments) -> bool:
    """Whether numbers have more than 16 bits, or are no floats, which are converted."""
    return not args[0].is_floating_point() or args[0].dtype.itemsize > 2


def are_wide(args: Arguments) -> bool:
    """Whether two numbers or tensors together have more than 16 bits, or are no floats, which are converted."""
    dtype = torch.result_type(args[0], args[1])
    return not dtype.is_floating_point or dtype.itemsize > 2


def are_floats(args: Arguments) -> bool:
    """Whether the first two arguments together are floats."""
    return torch.result_type(args[0], args[1]).is_floating_point


SPECIAL = (
    aten.special_bessel_j0,
    aten.special_bessel_j1,
    aten.special_bessel_y0,
    aten.special_bessel_y1,
    aten.special_modified_bessel_i0,
    aten.special_modified_bessel_i1,
    aten.special_modified_bessel_k0,
    aten.special_modified_bessel_k1,
    aten.special_scaled_modified_bessel_k0,
    aten.special_scaled_modified_bessel_k1,
    aten.special_spherical_bessel_j0,
    aten.special_erfcx,
    aten.special_ndtri,
    aten.special_airy_ai,
)
POLYNOMIALS = (
    aten.special_chebyshev_polynomial_t, aten.special_chebyshev_polynomial_u, aten.special_chebyshev_polynomial_v,
    aten.special_chebyshev_polynomial_w, aten.special_shifted_chebyshev_polynomial_t,
    aten.special_shifted_chebyshev_polynomial_u, aten.special_shifted_chebyshev_polynomial_v,
    aten.special_shifted_chebyshev_polynomial_w, aten.special_hermite_polynomial_h, aten.special_hermite_polynomial_he,
    aten.special_laguerre_polynomial_l, aten.special_legendre_polynomial_p,
)  # fmt: skip
OF_TWO = (
    aten.special_zeta.default, aten.special_zeta.other_scalar, aten.special_zeta.self_scalar,
    *(op for packet in POLYNOMIALS for op in (packet.default, packet.n_scalar, packet.x_scalar)),
)  # fmt: skip
CHECKS: Mapping[Overload, Check] = {
    **{packet.default: is_wide for packet in SPECIAL},
    **dict.fromkeys(OF_TWO, are_wide),
    **dict.fromkeys((aten.igamma.default, aten.igammac.default), are_floats),
    **dict.fromkeys((aten.index_put.default, aten.index_put_.default, aten._unsafe_index_put.default), values_to_put),
    **dict.fromkeys((aten.index_add.default, aten.index_add_.default), same(0, 3)),
    **dict.fromkeys((aten.index_copy.default, aten.index_copy_.default), same(0, 3)),
    aten.select.int: index_in_range,
    **dict.fromkeys((aten._softmax.default, aten._log_softmax.default), axis_in_range),
    aten.select_scatter.default: slice_fits,
    aten.slice_scatter.default: fills(aten.slice.Tensor),
    aten.diagonal_scatter.default: fills(aten.diagonal.default),
    aten.index_select.default: index_is_integer,
    aten.huber_loss.default: same(0, 1),  # the operator's backward refuses them
    aten.binary_cross_entropy.default: same(0, 1),
    aten.nll_loss_forward.default: same(0, 2),
    aten.nll_loss2d_forward.default: same(0, 2),
    aten.native_layer_norm.default: as_input(2, 3),
    **dict.fromkeys(
        (
            aten.native_batch_norm.default,
            aten._native_batch_norm_legit.default,
            aten._native_batch_norm_legit_functional.default,
            aten._native_batch_norm_legit.no_stats,
            aten._native_batch_norm_legit_no_training.default,
        ),
        as_input(1, 2, 3, 4),
    ),
}
"""Whether the kernel of an operator takes arguments of these dtypes and sizes."""
