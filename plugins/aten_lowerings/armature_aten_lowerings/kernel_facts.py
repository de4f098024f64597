"""Further facts about kernels that torch's meta functions don't show: strides along axes of size 1, results that fakes
can't represent, and the dtypes that a kernel accepts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from armature.plugin_api import AxesOfOne, FakeResult, Probed

aten = torch.ops.aten
Overload = torch._ops.OpOverload

# The strides of their results do not depend on those of their arguments.
OF_THEIR_OWN = (
    aten._log_softmax.default, aten.addmm.default, aten.as_strided.default, aten.baddbmm.default, aten.bmm.default,
    aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.mm.default, aten.native_layer_norm.default,
    aten.new_empty.default, aten.new_empty_strided.default, aten.new_full.default, aten.new_ones.default,
    aten.new_zeros.default, aten.tril.default, aten.triu.default,
)  # fmt: skip
# The strides of their fakes follow those of the arguments, as in kernels.
FOLLOWING = (
    aten._softmax.default, aten._unsafe_view.default, aten.amax.default, aten.amin.default,
    aten.argmax.default, aten.cat.default, aten.clone.default, aten.constant_pad_nd.default, aten.cumsum.default,
    aten.embedding.default, aten.gather.default, aten.index_select.default, aten.mean.dim, aten.repeat.default,
    aten.stack.default, aten.sum.dim_IntList,
)  # fmt: skip
# Composed of several operators, so the rule for elementwise ones does not apply.
COMPOSED = (aten.float_power.Tensor_Tensor, aten.mvlgamma.default, aten.view_as_real.default)
AXES_OF_ONE: Mapping[Overload, AxesOfOne] = {
    **dict.fromkeys(OF_THEIR_OWN, AxesOfOne.OWN),
    **dict.fromkeys(FOLLOWING, AxesOfOne.GIVEN),
    **dict.fromkeys(COMPOSED, AxesOfOne.GUESSED),
}

# Which arguments they accept depends on the length of the result.
OF_LENGTH = (aten.arange, aten.randperm)
# Their dtype comes from an argument or the numbers, and kernels know fewer dtypes than meta functions.
OF_ANY_DTYPE = (
    aten.bartlett_window, aten.bernoulli, aten.bernoulli_, aten.blackman_window, aten.cauchy_,
    aten.complex, aten.exponential_, aten.eye, aten.fft_fftfreq, aten.fft_rfftfreq, aten.fill, aten.fill_,
    aten.full, aten.full_like, aten.geometric_, aten.hamming_window, aten.hann_window, aten.kaiser_window,
    aten.linspace, aten.log_normal_, aten.logspace, aten.masked_fill, aten.masked_fill_, aten.multinomial,
    aten.native_dropout, aten.new_full, aten.normal, aten.normal_, aten.normal_functional, aten.poisson,
    aten.polar, aten.rand, aten.rand_like, aten.randint, aten.randint_like, aten.randn, aten.randn_like,
    aten.random_, aten.rrelu_with_noise, aten.scalar_tensor, aten.uniform_,
)  # fmt: skip


def overloads(packet: torch._ops.OpOverloadPacket) -> Iterator[Overload]:
    """All overloads of an operator but those that write to a tensor given as `out`."""
    return (getattr(packet, name) for name in packet.overloads() if "out" not in name)


PROBED: Mapping[Overload, Probed] = {
    **{op: Probed.SMALL for packet in OF_ANY_DTYPE for op in overloads(packet)},
    **{op: Probed.AS_CALLED for packet in OF_LENGTH for op in overloads(packet)},
}

# Their fakes are floats, not quantized; the other operators that make quantized tensors have no fakes.
QUANTIZING = [getattr(aten.quantize_per_tensor, name) for name in aten.quantize_per_tensor.overloads()]
# The size of its result depends on values. Torch 2.11 does not tag it so, and gives its fake one element.
UNSIZED = [op for op in (aten._unique.default,) if torch.Tag.dynamic_output_shape not in op.tags]
FAKES: Mapping[Overload, FakeResult] = {
    **dict.fromkeys(QUANTIZING, FakeResult.WRONG),
    **dict.fromkeys(UNSIZED, FakeResult.UNSIZED),
}
