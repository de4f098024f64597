"""Corrections of fake tensors' results: their layout, and in a few cases their dtype, where torch's meta functions
differ from its kernels. These functions are composed of other operators, and follow those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from armature.plugin_api import fake_layouts

aten = torch.ops.aten
Ints = Sequence[int]
NARROW = frozenset((torch.bfloat16, torch.float16))
Tensor = torch.Tensor
Arguments = Sequence[Any]  # of an operator, whose schema says what each is
Rule = fake_layouts.Rule


def contiguous(args: Arguments, result: Tensor) -> Tensor:
    """Row-major, whatever the arguments' layouts."""
    return in_layout(result, torch.contiguous_format)


def in_layout(result: Tensor, layout: torch.memory_format) -> Tensor:
    """Dense, with the strides of new memory along axes of size 1, which `contiguous` does not change."""
    if 1 not in result.shape and fake_layouts.is_static(result) and result.is_contiguous(memory_format=layout):
        return result
    return torch.empty(result.shape, dtype=result.dtype, device=result.device, memory_format=layout)


def first_contiguous(args: Arguments, result: Sequence[Tensor]) -> object:
    """The first of several results is row-major."""
    return (contiguous(args, result[0]), *result[1:])


def as_sum(args: Arguments, result: Tensor) -> object:
    """The layout of the sum of the first two arguments: the kernel iterates over both at once."""
    like = aten.add.Tensor(args[0], args[1])
    return (
        result
        if like.stride() == result.stride()
        else like.new_empty_strided(like.shape, like.stride(), dtype=result.dtype)
    )


def as_product_with_power(args: Arguments, result: Tensor) -> object:
    """The layout of the product of the first argument and 2 to the power of the second, which is row-major."""
    return as_sum((args[0], contiguous(args, args[1])), result)


def sum_on_cpu(args: Arguments, result: Tensor) -> object:
    """Like `as_sum` on a CPU; torch is right about other devices."""
    return as_sum(args, result) if result.device.type == "cpu" else result


def in_format(args: Arguments, result: Tensor) -> Tensor:
    """The layout on a CPU is channels last if the first argument has it, else row-major."""
    if result.device.type != "cpu":
        return result
    return in_layout(result, fake_layouts.suggested_format(args[0]))


def gradient_in_format(args: Arguments, result: Tensor) -> Tensor:
    """Like `in_format`, of the input, which follows the gradient among the arguments."""
    return in_format(args[1:], result)


def first_in_format(args: Arguments, result: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Like `in_format` for the first of several results; strides of axes of size 1 make no difference."""
    given, formats = args[0], {4: torch.channels_last, 5: torch.channels_last_3d}
    layout = formats.get(given.dim(), torch.contiguous_format)
    if result[0].device.type == "cpu" and not given.is_contiguous() and given.is_contiguous(memory_format=layout):
        return (in_layout(result[0], layout), *result[1:])
    return (in_format(args, result[0]), *result[1:])


def of_batch_norm(args: Arguments, result: Sequence[Tensor]) -> object:
    """Like `in_format` for a batch norm. On a CPU its statistics are in float32 if a parameter of a 16-bit input is,
    and new running statistics have the dtype of the old."""
    given, parameters = args[0], [one for one in args[1:5] if isinstance(one, torch.Tensor)]
    output, mean, inverse, *running = first_in_format(args, result)
    if output.device.type == "cpu":
        wide = given.dtype in NARROW and any(one.dtype == torch.float32 for one in parameters)
        dtype = torch.float32 if wide else given.dtype
        mean, inverse = in_dtype(mean, dtype), in_dtype(inverse, dtype)
    return (output, mean, inverse, *(in_dtype(new, old.dtype) for new, old in zip(running, args[3:5], strict=False)))


def in_dtype(result: Tensor, dtype: torch.dtype) -> Tensor:
    """The same sizes and strides in another dtype."""
    return result if result.dtype == dtype else torch.empty_like(result, dtype=dtype)


def as_viewed(args: Arguments, result: Tensor) -> object:
    """A view: torch's strides for axes of size 1 differ from its kernels'."""
    if not fake_layouts.is_static(args[0]) or not fake_layouts.is_static(result) or 1 not in result.shape:
        return result
    strides = view_strides(args[0].shape, args[0].stride(), result.shape)
    if strides is None or strides == result.stride():
        return result
    return aten.as_strided.default(result, result.shape, strides, result.storage_offset())


def of_angle(args: Arguments, result: Tensor) -> object:
    """The layout of `angle`: for complex numbers the kernel copies it from a complex result to new memory."""
    return contiguous(args, result) if args[0].is_complex() else fake_layouts.as_iterated(args, result)


def as_told(args: Arguments, result: Tensor) -> object:
    """Keep the layout of torch's meta function."""
    return result


def loss_as_first(args: Arguments, result: Tensor) -> object:
    """The first argument's layout, if the loss has one element for each of its own."""
    return fake_layouts.as_first(args, result) if result.shape == args[0].shape else result


def gradient_as_input(args: Arguments, result: Tensor) -> object:
    """The layout of the input, which follows the gradient among the arguments."""
    return fake_layouts.as_first(args[1:], result)


def as_second_and_first(args: Arguments, result: Tensor) -> object:
    """The layout of the sum of the first two arguments, with the second one as first operand of the kernel."""
    return as_sum((args[1], args[0]), result)


def of_spectrum(args: Arguments, result: Tensor) -> object:
    """A transform from real numbers makes the last axis given the innermost one, whatever the order of the others."""
    return _transformed(args[0].stride(), args[1], 1, result)


def of_complex_spectrum(args: Arguments, result: Tensor) -> object:
    """The layout that a transform from complex to complex numbers gives its result."""
    return _transformed(args[0].stride(), args[1], 0, result)


def of_signal(args: Arguments, result: Tensor) -> object:
    """A transform to real numbers runs along the last axis given, after one to complex numbers along the others."""
    spectrum, axes = args[:2]
    strides = spectrum.stride()
    if len(axes) > 1:
        strides = fake_layouts.dense_strides(spectrum.shape, order_of_transform(strides, axes[:-1], 0))
    return _transformed(strides, axes[-1:], 1, result)


def _transformed(strides: Ints, axes: Ints, last: int, result: Tensor) -> object:
    if result.device.type != "cpu" or not torch.backends.mkl.is_available() or not axes:
        return result
    wanted = fake_layouts.dense_strides(result.shape, order_of_transform(strides, axes, last))
    return result if wanted == result.stride() else result.new_empty_strided(result.shape, wanted)


def order_of_transform(strides: Ints, axes: Ints, last: int) -> list[int]:
    """The axes of a transform's result, the outermost first: those that are not transformed, then the others, each in
    the order of the operand's strides, but for the `last` axes, which stay in their place (`_exec_fft` of
    ATen/native/mkl/SpectralOps.cpp)."""
    moved = len(axes) - last

    def by_stride(some: Iterable[int]) -> list[int]:
        return sorted(some, key=lambda axis: -strides[axis])

    return by_stride(k for k in range(len(strides)) if k not in axes) + by_stride(axes[:moved]) + list(axes[moved:])


def view_strides(sizes: Ints, strides: Ints, wanted: Ints) -> tuple[int, ...] | None:
    """The strides of `view` (`computeStride` of ATen/TensorUtils.cpp). None: it needs a copy, or is empty."""
    if not sizes or 0 in sizes:
        return None
    found = [0] * len(wanted)
    place, base, have, seen = len(wanted) - 1, strides[-1], 1, 1
    for axis in range(len(sizes) - 1, -1, -1):
        have *= sizes[axis]
        if axis and (sizes[axis - 1] == 1 or strides[axis - 1] == have * base):
            continue  # the next axis continues in the same contiguous block
        while place >= 0 and (seen < have or wanted[place] == 1):
            found[place] = seen * base
            seen *= wanted[place]
            place -= 1
        if seen != have:
            return None
        if axis:
            base, have, seen = strides[axis - 1], 1, 1
    return tuple(found) if place == -1 else None


# torch composes these of several other operators, and uses the layout of the last of those.
DESCRIBED = (
    aten.heaviside.default, aten.logaddexp.default, aten.logaddexp2.default, aten.logical_and.default,
    aten.logical_or.default, aten.logical_xor.default, aten.logit_backward.default, aten.special_xlog1py.default,
    aten.xlogy.Tensor,
)  # fmt: skip
KEEPING = (
    aten._to_copy.default, aten.deg2rad.default, aten.empty_like.default, aten.flip.default, aten.frexp.Tensor,
    aten.full_like.default, aten.hardtanh.default, aten.nan_to_num.default, aten.ones_like.default,
    aten.rad2deg.default, aten.rand_like.default, aten.randint_like.default, aten.randint_like.low_dtype,
    aten.randn_like.default, aten.zeros_like.default,
)  # fmt: skip
AS_TOLD = (aten.clone.default, aten.mvlgamma.default)
PADDED = (
    aten.reflection_pad2d.default, aten.reflection_pad3d.default, aten.replication_pad2d.default,
    aten.replication_pad3d.default,
)  # fmt: skip
PADDED_BACKWARD = (
    aten.reflection_pad2d_backward.default, aten.reflection_pad3d_backward.default,
    aten.replication_pad2d_backward.default, aten.replication_pad3d_backward.default,
)  # fmt: skip
NUMBER_IN_KERNEL = (aten.lerp.Scalar, aten.pow.Tensor_Scalar)
# They copy what they change, or compute, in row-major order.
ROW_MAJOR = (
    aten._log_softmax.default, aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.tril.default, aten.triu.default,
)  # fmt: skip
LAYOUTS: Mapping[torch._ops.OpOverload, Rule] = {
    aten.angle.default: of_angle,
    aten.pow.Scalar: contiguous,
    aten.normal.Tensor_Tensor: contiguous,
    aten.normal.float_Tensor: contiguous,
    aten.poisson.default: contiguous,
    aten.rrelu_with_noise.default: contiguous,
    aten.rrelu_with_noise_functional.default: first_contiguous,
    aten.copysign.Tensor: as_sum,
    aten.binary_cross_entropy.default: loss_as_first,
    aten.binary_cross_entropy_backward.default: gradient_as_input,
    aten.threshold_backward.default: as_second_and_first,
    aten.ldexp.Tensor: as_product_with_power,
    aten.floor_divide.default: as_sum,
    aten.div.Tensor_mode: as_sum,
    aten.nll_loss2d_forward.default: first_contiguous,
    aten.max_unpool2d.default: in_format,
    aten.channel_shuffle.default: in_format,
    aten.roll.default: in_format,
    aten.native_dropout_backward.default: sum_on_cpu,
    aten.native_batch_norm.default: of_batch_norm,
    aten._native_batch_norm_legit.default: of_batch_norm,
    aten._native_batch_norm_legit.no_stats: of_batch_norm,
    aten._native_batch_norm_legit_no_training.default: first_in_format,
    aten._native_batch_norm_legit_functional.default: of_batch_norm,
    aten.view.default: as_viewed,
    aten._fft_r2c.default: of_spectrum,
    aten._fft_c2c.default: of_complex_spectrum,
    aten._fft_c2r.default: of_signal,
    aten.native_layer_norm.default: first_contiguous,
    **dict.fromkeys(ROW_MAJOR, contiguous),
    **dict.fromkeys(PADDED, in_format),
    **dict.fromkeys(PADDED_BACKWARD, gradient_in_format),
    **dict.fromkeys(DESCRIBED, as_sum),
    **dict.fromkeys(KEEPING, fake_layouts.as_first),
    **dict.fromkeys(NUMBER_IN_KERNEL, fake_layouts.without_numbers),
    **dict.fromkeys(AS_TOLD, as_told),
}
"""What the layout of an operator's results is, given its arguments and what torch says. Called in the fake mode."""
