"""Operators that torch's own decompositions replace while the graph is traced.

These have no loops of their own here, but are composed of operators that have. Not included are operators for which a
library has a better kernel than loops (matrix products, convolutions, attention), and those that draw random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn import functional

from armature.plugin_api import Decomposition, overload, torch_decompositions
from armature_aten_lowerings import computed_places, randomness
from armature_aten_lowerings.interpolation import unless_on_a_cpu, unless_rows_of_a_cpu

NAMES = (
    # losses
    "multi_margin_loss",
    "huber_loss", "huber_loss_backward", "smooth_l1_loss", "smooth_l1_loss_backward", "binary_cross_entropy",
    "binary_cross_entropy_backward", "soft_margin_loss", "_nll_loss",
    "l1_loss", "margin_ranking_loss",
    # activations
    "glu", "glu_backward", "log_sigmoid_forward", "log_sigmoid_backward", "mish", "mish_backward", "prelu",
    "_prelu_kernel", "_prelu_kernel_backward", "hardshrink", "softshrink", "softshrink_backward", "celu", "selu",
    "rrelu_with_noise_functional", "sinc", "xlogy.Tensor", "special_entr",
    "special_log_ndtr", "special_xlog1py", "_safe_softmax", "native_dropout_backward", "isposinf",
    "heaviside", "isneginf", "logaddexp", "logaddexp2", "logsumexp", "nan_to_num", "deg2rad", "rad2deg", "frac",
    "trace", "mvlgamma", "ldexp.Tensor", "rrelu_with_noise_backward",
    "special_xlog1py.other_scalar", "special_xlog1py.self_scalar", "xlogy.Scalar_Other", "xlogy.Scalar_Self",
    "bitwise_and.Scalar_Tensor", "bitwise_or.Scalar_Tensor", "bitwise_xor.Scalar_Tensor",
    "bitwise_left_shift.Scalar_Tensor", "bitwise_right_shift.Scalar_Tensor", "remainder.Scalar_Tensor",
    # operators that the partitioner does not recognise as cheap by name
    "elu_backward", "hardsigmoid_backward", "hardswish_backward", "hardtanh_backward", "leaky_relu_backward",
    "softplus_backward", "hardswish",
    # norms and reductions
    "native_group_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward", "rms_norm",
    "norm.Scalar", "norm.ScalarOpt_dim", "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim_dtype", "renorm",
    "count_nonzero.dim_IntList", "aminmax", "nansum", "count_nonzero", "dist", "std_mean.correction",
    "_batch_norm_with_update_functional", "_batch_norm_no_update", "batch_norm_backward",
    # shapes
    "unsqueeze_copy", "narrow_copy", "view_copy", "permute_copy", "transpose_copy.int", "t_copy", "alias_copy",
    "diagonal_copy", "unfold_copy", "unbind_copy.int", "split_with_sizes_copy", "squeeze_copy", "squeeze_copy.dim",
    "squeeze_copy.dims", "diag_embed", "slice_backward", "select_backward", "diagonal_backward", "unfold_backward",
    "unsafe_chunk", "unsafe_split.Tensor", "unsafe_split_with_sizes",
    "rot90", "tile", "block_diag", "pixel_shuffle", "pixel_unshuffle", "meshgrid",
    "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate",
    "isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor", "_chunk_cat",
    "logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor",
    "masked_scatter", "logspace",
    "zero", "tril_indices", "triu_indices",
    # sampling
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
    "im2col", "col2im", "max_unpool2d", "max_unpool3d", "affine_grid_generator",
    # products that are no library calls
    "addr", "outer",
)  # fmt: skip


def rows() -> Iterable[Decomposition]:
    """A row for each listed operator that this torch has and can decompose."""
    wanted = dict.fromkeys(found for name in NAMES if (found := overload(name)))
    return [Decomposition(op, fn) for op, fn in {**torch_decompositions(wanted), **OWN}.items()]


def take(self: Tensor, index: Tensor) -> Tensor:
    """Elements by row-major position. torch's own decomposition reads the value of a 0-d index."""
    found: Tensor = torch.ops.aten.index.Tensor(self.reshape(-1), [index])
    return found


def native_dropout(input: Tensor, p: float, train: bool | None) -> object:
    """Dropout with probability 1, into which `torch.dropout` is traced, but which draws no random numbers."""
    if p != 1 or train is False:
        return NotImplemented  # it stays an ATen call
    return input.mul(input.new_zeros(())), torch.zeros_like(input, dtype=torch.bool)


def channel_shuffle(self: Tensor, groups: int) -> Tensor:
    """Interleave the channels of all groups. torch's own result is always row-major, even for channels last."""
    count, channels, *sizes = self.shape
    if self.numel() == 0:
        return self.clone()
    apart = self.reshape(count, groups, channels // groups, *sizes).transpose(1, 2)
    last = self.dim() == 4 and not self.is_contiguous() and self.is_contiguous(memory_format=torch.channels_last)
    return apart.reshape(self.shape).clone(memory_format=torch.channels_last if last else torch.contiguous_format)


def index_add(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> object:
    """torch's decomposition, restricted to the shapes of sources that the operator accepts."""
    axis = dim % max(self.dim(), 1)
    alike = self.dim() == source.dim() and index.dim() == 1
    if not alike or any(self.shape[k] != source.shape[k] for k in range(self.dim()) if k != axis):
        return NotImplemented
    added: Tensor = TORCHS_INDEX_ADD(self, dim, computed_places.from_front(index, self, axis), source, alpha=alpha)
    return added


def scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> object:
    """Sums, and means of floats, by scatter additions of values and counts; other reductions have their own loops."""
    sums = reduce == "sum" and self.dtype in (torch.int32, torch.int64)
    if not sums and (reduce not in ("sum", "mean") or not self.dtype.is_floating_point):
        return NotImplemented
    start = self if include_self else self.scatter(dim, index, 0)
    total: Tensor = start.scatter_add(dim, index, src)
    if reduce == "sum":
        return total
    one = torch.ones_like(self)
    counted = one if include_self else one.scatter(dim, index, 0)
    mean: Tensor = total / counted.scatter_add(dim, index, torch.ones_like(src))
    return mean


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> object:
    """The weight and the norms of its slices, the two results of the kernel."""
    if not _has_plain_norms(v, g, dim):
        return NotImplemented
    norm = torch.linalg.vector_norm(v, 2, [k for k in range(v.dim()) if k != dim], keepdim=True)
    return v * (g / norm), norm


def weight_norm_backward(grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int) -> object:
    """The gradients of the weight's direction and of its length."""
    if not _has_plain_norms(saved_v, saved_g, dim):
        return NotImplemented
    axes = [k for k in range(saved_v.dim()) if k != dim]
    along = (grad_w * saved_v).sum(axes, keepdim=True) / saved_norms
    return saved_g / saved_norms * (grad_w - saved_v * (along / saved_norms)), along


def _has_plain_norms(v: Tensor, g: Tensor, dim: int) -> bool:
    """Whether norms are those of contiguous slices, in the weight's own dtype."""
    wide = v.dtype == g.dtype and v.dtype in (torch.float32, torch.float64)
    return wide and v.dim() > 1 and dim in (0, v.dim() - 1) and v.is_contiguous() and g.is_contiguous()


def soft_margin_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    """The kernel's formula. torch's own decomposition subtracts 1 from a sigmoid, which loses all precision near 1."""
    factor = 1 / self.numel() if reduction == 1 and self.numel() else 1.0
    power = torch.exp(-target * self)
    return target * power * -factor / (power + 1) * grad_output


def smooth_l1_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    """The kernel's formula. torch's own decomposition uses the sign of a difference, which is 0 for NaN."""
    factor = 1 / self.numel() if reduction == 1 and self.numel() else 1.0
    difference, scaled = self - target, grad_output * factor
    inside = scaled * difference / beta
    return torch.where(difference <= -beta, -scaled, torch.where(difference >= beta, scaled, inside))


def logit(self: Tensor, eps: float | None = None) -> Tensor:
    """torch's decomposition, with the kernel's bounds."""
    number = self if self.is_floating_point() else self.to(torch.get_default_dtype())
    if eps is not None:
        low, high = _bounds(number, eps)
        number = torch.where(number < low, low, torch.where(number > high, high, number))
    wide = number.to(torch.float32) if number.itemsize == 2 else number
    return torch.log(wide / (1 - wide)).to(number.dtype)


def logit_backward(grad_output: Tensor, self: Tensor, eps: float | None = None) -> Tensor:
    """The formula of the kernel for a single element; a CPU's vectors have the other sign at -0.0, and no NaN if there
    are bounds. torch's own decomposition has what the vectors have."""
    low, high = (0.0, 1.0) if eps is None or eps < 0 else _bounds(self, eps)
    wide = torch.float32 if self.itemsize == 2 else self.dtype
    number, grad = self.to(wide), grad_output.to(wide)
    slope = torch.where((number == 0) | (number == 1), grad * math.inf, grad / (number * (1 - number)))
    outside = math.nan if eps is None or eps < 0 else 0.0
    return torch.where((number < low) | (number > high), outside, slope).to(self.dtype)


def _bounds(self: Tensor, eps: float) -> tuple[float, float]:
    """The bounds of the kernel, which a CPU rounds to the tensor's dtype."""
    if self.device.type != "cpu" or not isinstance(eps, float):
        return eps, 1 - eps
    low = _rounded(eps, self.dtype)
    return low, _rounded(1 - low, self.dtype)


def _rounded(number: float, dtype: torch.dtype) -> float:
    bits = 2 - math.frexp(torch.finfo(dtype).eps)[1]
    fraction, exponent = math.frexp(number)
    return math.ldexp(round(math.ldexp(fraction, bits)), exponent - bits)


aten = torch.ops.aten


def linalg_vector_norm(
    self: Tensor,
    ord: complex = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """torch's decomposition, corrected for torch 2.11, which fails to drop an axis of size 1 counted from the back."""
    axes = None if dim is None else [axis % max(self.dim(), 1) for axis in dim]
    norm: Tensor = TORCHS_VECTOR_NORM(self, ord, axes, keepdim, dtype=dtype)
    return norm


class TensorOptions(TypedDict, total=False):
    """How a new tensor is made, besides its dtype."""

    layout: torch.layout | None
    device: torch.device | None
    pin_memory: bool | None


def linspace(
    start: float | Tensor,
    end: float | Tensor,
    steps: int,
    *,
    dtype: torch.dtype | None = None,
    **options: Unpack[TensorOptions],
) -> Tensor:
    """torch's decomposition, but as the kernels compute it: the element in the middle from the end, and integers from
    those that the ends become, in float64 on a CPU. torch's own takes fractions of the ends, and float32."""
    complex_ends = any(
        one.is_complex() if isinstance(one, Tensor) else isinstance(one, complex) for one in (start, end)
    )
    if complex_ends or steps < 2 or (dtype is not None and dtype.is_complex):
        return _torchs_linspace(start, end, steps, dtype=dtype, **options)
    dtype = dtype or torch.get_default_dtype()
    for one in (start, end):
        if isinstance(one, Tensor):
            options["device"] = options.get("device") or one.device
    place = torch.arange(steps, **options)
    if dtype.is_floating_point:
        first, last, wide = _as_end(start), _as_end(end), place.to(torch.promote_types(dtype, torch.float32))
    else:
        first, last = _as_whole_end(start), _as_whole_end(end)
        wide = place.to(torch.float64 if place.device.type == "cpu" else torch.float32)
    step = (last - first) / (steps - 1)
    return torch.where(place < steps // 2, first + step * wide, last - step * (steps - 1 - wide)).to(dtype)


def _torchs_linspace(start: float | Tensor, end: float | Tensor, *args: object, **options: object) -> Tensor:
    whole: Tensor = TORCHS_LINSPACE[LINSPACES[isinstance(start, Tensor), isinstance(end, Tensor)]](
        start, end, *args, **options
    )
    return whole


def _as_end(value: float | Tensor) -> float | Tensor:
    """An end in double precision, as the number that the kernel reads from a tensor."""
    return value.to(torch.float64) if isinstance(value, Tensor) else value


def _as_whole_end(value: float | Tensor) -> float | Tensor:
    """An end without its fraction."""
    return value.to(torch.int64).to(torch.float64) if isinstance(value, Tensor) else torch.sym_int(value)


def round_to_decimals(self: Tensor, *, decimals: int) -> object:
    """The kernel's formula, whose power of ten is never a fraction. In 16 bits it rounds after each step."""
    if self.dtype not in (torch.float32, torch.float64) or abs(decimals) > MOST_DECIMALS:
        return NotImplemented
    power = float(10 ** abs(decimals))
    return (self / power).round() * power if decimals < 0 else (self * power).round() / power


def shifted(op: torch._ops.OpOverload) -> Callable[[Tensor, Tensor | int], object]:
    """`x << y` of integers, for which ATen has another name."""

    def decomposed(self: Tensor, other: Tensor | int) -> object:
        return op(self, other) if not self.dtype.is_floating_point and self.dtype != torch.bool else NotImplemented

    return decomposed


def random_from(self: Tensor, low: int, high: int | None, *, generator: torch.Generator | None = None) -> object:
    """`Tensor.random_(low, high)`: numbers in the order of the memory. Its own name, `random.from`, is no
    name in Python, so it can't be part of a graph."""
    if generator is not None:
        return NotImplemented
    if high is None:
        return randomness.above()(self, low)
    order = sorted(range(self.dim()), key=self.stride, reverse=True)
    drawn = torch.randint(low, high, [self.size(dim) for dim in order], dtype=self.dtype, device=self.device)
    return drawn.permute([order.index(dim) for dim in range(self.dim())])


def bucketize_number(
    self: float, boundaries: torch.Tensor, *, out_int32: bool = False, right: bool = False
) -> torch.Tensor:
    """The place of a number, which may vary: that of a tensor that holds it in the dtype of the comparison."""
    floats = boundaries.dtype if boundaries.is_floating_point() else torch.get_default_dtype()
    dtype = floats if isinstance(self, float | torch.SymFloat) else torch.int64
    value = torch.full((), self, dtype=dtype, device=boundaries.device)
    return torch.bucketize(value, boundaries, out_int32=out_int32, right=right)


def searchsorted_number(
    sorted_sequence: torch.Tensor,
    self: float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> torch.Tensor:
    """The same among the rows of a tensor, of which there is one."""
    floats = sorted_sequence.dtype if sorted_sequence.is_floating_point() else torch.get_default_dtype()
    dtype = floats if isinstance(self, float | torch.SymFloat) else torch.int64
    value = torch.full((), self, dtype=dtype, device=sorted_sequence.device)
    return torch.searchsorted(sorted_sequence, value, out_int32=out_int32, right=right, side=side, sorter=sorter)


def roll_whole(self: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> object:
    """Without axes, all elements move in row-major order."""
    return self.reshape(-1).roll(shifts, 0).view(self.shape) if not dims else NotImplemented


def multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor, qkv_bias: Tensor,
    proj_weight: Tensor, proj_bias: Tensor, mask: Tensor | None = None, need_weights: bool = True, *rest: object,
) -> object:  # fmt: skip
    """On a CPU, self-attention without a mask whose scores nobody asks for: products of matrices around a kernel that
    never has all scores in memory, as ATen's own operator has."""
    plain = query.device.type == "cpu" and query.dtype in (torch.float32, torch.float64) and query.dim() == 3
    if need_weights or mask is not None or not plain or query is not key or query is not value:
        return NotImplemented  # it stays an ATen call
    batch, length, _ = query.shape
    projected = functional.linear(query, qkv_weight, qkv_bias)
    heads = projected.view(batch, length, 3, num_head, embed_dim // num_head).transpose(1, 3)
    attended = functional.scaled_dot_product_attention(heads[:, :, 0], heads[:, :, 1], heads[:, :, 2])
    joined = attended.transpose(1, 2).reshape(batch, length, embed_dim)
    return functional.linear(joined, proj_weight, proj_bias), None


MOST_DECIMALS = 10  # of which a float32 holds the power of ten exactly
# By which of the ends are tensors.
LINSPACES = {
    (False, False): aten.linspace.default, (True, True): aten.linspace.Tensor_Tensor,
    (True, False): aten.linspace.Tensor_Scalar, (False, True): aten.linspace.Scalar_Tensor,
}  # fmt: skip
TORCHS_LINSPACE = torch_decompositions(LINSPACES.values())
TORCHS_INDEX_ADD = torch_decompositions([aten.index_add.default])[aten.index_add.default]
TORCHS_VECTOR_NORM = torch_decompositions([aten.linalg_vector_norm.default])[aten.linalg_vector_norm.default]
OWN: dict[torch._ops.OpOverload, Callable[..., object]] = {
    aten._native_multi_head_attention.default: multi_head_attention,
    aten.angle.default: computed_places.angle,
    aten.bucketize.Scalar: bucketize_number,
    aten.index_add.default: index_add,
    aten.index_copy.default: computed_places.index_copy,
    aten.index_fill.int_Scalar: computed_places.index_fill_number,
    aten.index_fill.int_Tensor: computed_places.index_fill,
    aten.index_reduce.default: computed_places.index_reduce,
    aten.put.default: computed_places.put,
    aten.roll.default: roll_whole,
    aten.round.decimals: round_to_decimals,
    aten.searchsorted.Scalar: searchsorted_number,
    aten.__lshift__.Scalar: shifted(aten.bitwise_left_shift.Tensor_Scalar),
    aten.__lshift__.Tensor: shifted(aten.bitwise_left_shift.Tensor),
    aten.__rshift__.Scalar: shifted(aten.bitwise_right_shift.Tensor_Scalar),
    aten.__rshift__.Tensor: shifted(aten.bitwise_right_shift.Tensor),
    aten.scatter.reduce: computed_places.scatter_by,
    aten.scatter.value_reduce: computed_places.scatter_number_by,
    aten.linalg_vector_norm.default: linalg_vector_norm,
    **dict.fromkeys(LINSPACES.values(), linspace),
    aten.logit.default: logit,
    aten.logit_backward.default: logit_backward,
    getattr(aten.random, "from"): random_from,
    aten.scatter_reduce.two: scatter_reduce,
    aten.take.default: take,
    aten._weight_norm_interface.default: weight_norm,
    aten._weight_norm_interface_backward.default: weight_norm_backward,
    aten.smooth_l1_loss_backward.default: smooth_l1_loss_backward,
    aten.soft_margin_loss_backward.default: soft_margin_loss_backward,
    aten.native_dropout.default: native_dropout,
    aten.channel_shuffle.default: channel_shuffle,
    aten.grid_sampler_2d.default: unless_on_a_cpu(aten.grid_sampler_2d.default),
    aten.upsample_linear1d.default: unless_rows_of_a_cpu(aten.upsample_linear1d.default),
    aten.upsample_bilinear2d.default: unless_rows_of_a_cpu(aten.upsample_bilinear2d.default),
    aten.upsample_bicubic2d.default: unless_rows_of_a_cpu(aten.upsample_bicubic2d.default),
}
