"""Results of tensors without numbers lie as those of torch's kernels do."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import armature
from armature.plugins import manager
from armature.torch_abi.fake import FakeWorld
from armature_aten_lowerings.kernel_layouts import LAYOUTS, view_strides

aten = torch.ops.aten
INPUTS: dict[str, Callable[[], Tensor]] = {
    "row-major": lambda: torch.rand(2, 4, 3, 5),
    "transposed": lambda: torch.rand(5, 4, 3, 2).transpose(0, 3),
    "permuted": lambda: torch.rand(4, 3, 5, 2).permute(3, 0, 1, 2),
    "channels last": lambda: torch.rand(2, 4, 3, 5).contiguous(memory_format=torch.channels_last),
    "every second": lambda: torch.rand(2, 4, 3, 10)[..., ::2],
    "one of a batch, transposed": lambda: torch.rand(1, 15, 4).transpose(1, 2).reshape(1, 4, 3, 5),
    "one of a batch, far apart": lambda: torch.rand(120).as_strided((1, 4, 3, 5), (7, 15, 5, 1)),
    "expanded": lambda: torch.rand(1, 4, 3, 5).expand(2, 4, 3, 5),
}
PAD3D = [1, 1, 1, 1, 0, 0]
CALLS: dict[Any, Callable[[Tensor], Any]] = {
    aten.angle.default: lambda x: aten.angle.default(x.to(torch.complex64)),
    aten.pow.Scalar: lambda x: aten.pow.Scalar(2, x),
    aten.normal.Tensor_Tensor: lambda x: aten.normal.Tensor_Tensor(x, x),
    aten.normal.float_Tensor: lambda x: aten.normal.float_Tensor(0.0, x),
    aten.poisson.default: aten.poisson.default,
    aten.rrelu_with_noise.default: lambda x: aten.rrelu_with_noise.default(x, torch.empty_like(x), training=True),
    aten.rrelu_with_noise_functional.default: lambda x: aten.rrelu_with_noise_functional.default(
        x, torch.empty_like(x, memory_format=torch.contiguous_format), training=True
    ),
    aten.copysign.Tensor: lambda x: aten.copysign.Tensor(x, x.new_ones(5)),
    aten.floor_divide.default: lambda x: aten.floor_divide.default(x, x.new_ones(3, 5)),
    aten.div.Tensor_mode: lambda x: aten.div.Tensor_mode(x, x.new_ones(()), rounding_mode="floor"),
    aten.nll_loss2d_forward.default: lambda x: aten.nll_loss2d_forward.default(
        x, torch.ones_like(x[:, 0], dtype=torch.int64), None, 0, -100
    ),
    aten.max_unpool2d.default: lambda x: aten.max_unpool2d.default(x, torch.zeros_like(x, dtype=torch.int64), [6, 9]),
    aten.channel_shuffle.default: lambda x: aten.channel_shuffle.default(x, 2),
    aten.native_dropout_backward.default: lambda x: aten.native_dropout_backward.default(x, x > 0.5, 2.0),
    aten.native_batch_norm.default: lambda x: aten.native_batch_norm.default(
        x, None, None, x.new_ones(4), x.new_ones(4), True, 0.1, 1e-5
    ),
    aten._native_batch_norm_legit.default: lambda x: aten._native_batch_norm_legit.default(
        x, None, None, x.new_ones(4), x.new_ones(4), True, 0.1, 1e-5
    ),
    aten._native_batch_norm_legit.no_stats: lambda x: aten._native_batch_norm_legit.no_stats(
        x, None, None, True, 0.1, 1e-5
    ),
    aten._native_batch_norm_legit_no_training.default: lambda x: aten._native_batch_norm_legit_no_training.default(
        x, None, None, x.new_ones(4), x.new_ones(4), 0.1, 1e-5
    ),
    aten._native_batch_norm_legit_functional.default: lambda x: aten._native_batch_norm_legit_functional.default(
        x, None, None, x.new_ones(4), x.new_ones(4), True, 0.1, 1e-5
    ),
    aten._fft_r2c.default: lambda x: aten._fft_r2c.default(x, [3, 0, 1], 0, False),
    aten._fft_c2c.default: lambda x: aten._fft_c2c.default(x.to(torch.complex64), [3, 1], 0, True),
    aten._fft_c2r.default: lambda x: aten._fft_c2r.default(x.to(torch.complex64), [3, 0, 1], 0, 6),
    aten._to_copy.default: lambda x: aten._to_copy.default(x, dtype=torch.float64),
    aten._log_softmax.default: lambda x: aten._log_softmax.default(x, 1, False),
    aten.masked_fill.Tensor: lambda x: aten.masked_fill.Tensor(x, x > 0.5, x.new_ones(())),
    aten.tril.default: aten.tril.default,
    aten.triu.default: aten.triu.default,
    aten.native_layer_norm.default: lambda x: aten.native_layer_norm.default(x, [5], None, None, 1e-5),
    aten.roll.default: lambda x: aten.roll.default(x, [1, 1], [0, 1]),
    aten.flip.default: lambda x: aten.flip.default(x, [1]),
    aten.binary_cross_entropy.default: lambda x: aten.binary_cross_entropy.default(
        x, torch.ones_like(x, memory_format=torch.contiguous_format), None, 0
    ),
    aten.binary_cross_entropy_backward.default: lambda x: aten.binary_cross_entropy_backward.default(
        torch.ones_like(x, memory_format=torch.contiguous_format), x, torch.ones_like(x), None, 0
    ),
    aten.view.default: lambda x: aten.view.default(x, [*x.shape[:2], 1, *x.shape[2:]]),
    aten.add.Tensor: lambda x: aten.add.Tensor(x, 2),
    aten.sub.Tensor: lambda x: aten.sub.Tensor(x, x.new_ones(())),
    aten.mul.Tensor: lambda x: aten.mul.Tensor(x, x.new_ones(4, 1, 5)),
    aten.div.Tensor: lambda x: aten.div.Tensor(x.new_ones(x.shape), x),
    **{
        op: functools.partial(lambda op, x: op(x, 2), op)
        for op in (
            aten.eq.Scalar,
            aten.ne.Scalar,
            aten.lt.Scalar,
            aten.le.Scalar,
            aten.gt.Scalar,
            aten.ge.Scalar,
            aten.fmod.Scalar,
            aten.remainder.Scalar,
        )
    },
    **{
        op: functools.partial(lambda op, x: op(x, [1, 1, 1, 1]), op)
        for op in (aten.reflection_pad2d.default, aten.replication_pad2d.default)
    },
    **{
        op: functools.partial(lambda op, x: op(x[:, :, None], PAD3D), op)
        for op in (aten.reflection_pad3d.default, aten.replication_pad3d.default)
    },
    **{
        op: functools.partial(lambda op, x: op(x.new_ones(2, 4, 5, 7)[: x.shape[0]], x, [1, 1, 1, 1]), op)
        for op in (aten.reflection_pad2d_backward.default, aten.replication_pad2d_backward.default)
    },
    **{
        op: functools.partial(lambda op, x: op(x.new_ones(2, 4, 5, 7)[: x.shape[0], :, None], x[:, :, None], PAD3D), op)
        for op in (aten.reflection_pad3d_backward.default, aten.replication_pad3d_backward.default)
    },
    aten.where.self: lambda x: aten.where.self(x > 0.5, x, x.new_ones(x.shape)),
    aten.clamp.Tensor: lambda x: aten.clamp.Tensor(x, x.new_ones(x.shape)),
}

# What the program called, where that lies otherwise than the functional form of it gives.
PROGRAMS = {aten.rrelu_with_noise_functional.default: CALLS[aten.rrelu_with_noise.default]}


def first(result: Any) -> Tensor:
    found = result[0] if isinstance(result, tuple) else result
    assert isinstance(found, Tensor)
    return found


def test_every_rule_has_a_call() -> None:
    swept = {op for op in LAYOUTS if torch.Tag.pointwise in op.tags}  # test_kernel_layouts_of_pointwise.py
    made_alike = {op for op in LAYOUTS if op.name().partition(".")[0].endswith("_like")}
    assert CALLS.keys() >= LAYOUTS.keys() - swept - made_alike


@pytest.mark.parametrize("layout", INPUTS)
@pytest.mark.parametrize("op", CALLS, ids=str)
def test_layouts_are_those_of_the_kernels(op: Any, layout: str) -> None:
    x = INPUTS[layout]()
    real = first(PROGRAMS.get(op, CALLS[op])(x))
    world = FakeWorld(rules=manager().tables().fake_rules)
    fake = world.of(x)
    with world.mode:
        told = first(CALLS[op](fake))
    assert (told.shape, told.stride(), told.dtype) == (real.shape, real.stride(), real.dtype)


@settings(deadline=None)  # a transform's first call makes its plan
@given(st.data())
def test_strides_of_fourier_transforms(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(2, 5), min_size=1, max_size=4))
    axes = list(range(len(sizes)))
    order = data.draw(st.permutations(axes))
    x = torch.rand([sizes[axis] for axis in order]).permute([order.index(axis) for axis in axes])
    along = data.draw(st.lists(st.sampled_from(axes), min_size=1, unique=True))
    calls: list[Callable[[Tensor], Tensor]] = [
        lambda x: torch.fft.fftn(x, dim=along),
        lambda x: torch.fft.rfftn(x, dim=along),
        lambda x: torch.fft.ifftn(x.to(torch.complex64), dim=along),
        lambda x: torch.fft.irfftn(x.to(torch.complex64), dim=along),
    ]
    world = FakeWorld(rules=manager().tables().fake_rules)
    for call in calls:
        with world.mode:
            told = call(world.of(x))
        real = call(x)
        assert (told.shape, told.stride(), told.dtype) == (real.shape, real.stride(), real.dtype)


@given(st.data())
def test_strides_of_views_are_those_of_torch(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from((1, 2, 3)), min_size=1, max_size=5))
    order = data.draw(st.permutations(range(len(sizes))))
    dense = torch.empty([sizes[axis] for axis in order]).permute([order.index(k) for k in range(len(sizes))])
    ones = st.sampled_from((1, 2, 7, 30))
    strides = [data.draw(ones) if size == 1 else step for size, step in zip(sizes, dense.stride(), strict=True)]
    a = torch.empty_strided(sizes, strides)
    merged = data.draw(st.integers(0, len(sizes) - 1))
    wanted = [*sizes[:merged], 1, math.prod(sizes[merged : merged + 2]), *sizes[merged + 2 :]]
    found = view_strides(tuple(sizes), a.stride(), tuple(wanted))
    if found is None:
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            a.view(wanted)
    else:
        assert found == a.view(wanted).stride()


BATCH_NORMS: tuple[Callable[..., Any], ...] = (
    lambda x, p, training: aten.native_batch_norm.default(x, p, p, p, p, training, 0.1, 1e-5),
    lambda x, p, training: aten._native_batch_norm_legit.default(x, p, p, p, p, training, 0.1, 1e-5),
    lambda x, p, training: aten._native_batch_norm_legit_functional.default(x, p, p, p, p, training, 0.1, 1e-5),
    lambda x, p, training: aten._native_batch_norm_legit_functional.default(x, None, p, p, p, training, 0.1, 1e-5),
    lambda x, p, training: aten._native_batch_norm_legit.no_stats(x, p, p, True, 0.1, 1e-5),
    lambda x, p, training: aten._native_batch_norm_legit_no_training.default(x, p, p, p, p, 0.1, 1e-5),
)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("call", BATCH_NORMS)
@pytest.mark.parametrize(
    "dtypes",
    [(torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32), (torch.float16, torch.float32)],
    ids=str,
)
def test_statistics_are_of_torchs_dtypes(
    call: Callable[..., Any], dtypes: tuple[torch.dtype, torch.dtype], training: bool
) -> None:
    x, parameter, world = (
        torch.rand(3, 2, 4).to(dtypes[0]),
        torch.rand(2).to(dtypes[1]),
        FakeWorld(rules=manager().tables().fake_rules),
    )
    expected = call(x, parameter.clone(), training)
    with world.mode:
        found = call(world.of(x), world.of(parameter), training)
    assert [(one.dtype, one.shape) for one in found] == [(one.dtype, one.shape) for one in expected]


class GroupNormAfterAttention(torch.nn.Module):
    """What comes of an attention of one picture: its axes of size 1 decide in which layout the norm gives its result."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = torch.nn.GroupNorm(2, 4), torch.nn.Conv2d(4, 3, 3, padding=1)

    def forward(self, tokens: Tensor, before: Tensor) -> Tensor:
        x = tokens.transpose(-1, -2).reshape(before.shape) + before
        return self.conv(self.norm(x / 1.0))


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_a_convolution_after_an_attention_of_one_picture(backend: str) -> None:
    module, args = GroupNormAfterAttention().eval(), (torch.rand(1, 64, 4), torch.rand(1, 4, 8, 8))
    with torch.no_grad():
        found, expected = armature.compile(module, backend=backend)(*args), module(*args)
    torch.testing.assert_close(found, expected, check_stride=True)


def test_a_number_in_vmap_has_no_layout() -> None:
    """torch converts it to the dtype of the tensor beside it, by an operator that gets the number itself."""

    def times_zero(x: Tensor) -> Tensor:
        return torch.vmap(lambda row: row[0] * 0 + row)(x)

    x = torch.rand(3, 4)
    assert torch.equal(armature.compile(times_zero, fullgraph=True, backend="eager")(x), times_zero(x))


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("trains", [False, True])
def test_numbers_in_vmap(backend: str, dtype: torch.dtype, trains: bool) -> None:
    """Written, of sizes, and given by the caller, who changes them: torch's meta function refuses the latter two."""

    def scaled(x: Tensor, factor: float) -> Tensor:
        return torch.vmap(lambda row: 2.5 * row[0] + row[1] * factor - row[2] * x.shape[0] + row)(x)

    compiled = armature.compile(scaled, fullgraph=True, dynamic=True, backend=backend)
    if trains and not dtype.is_floating_point:
        pytest.skip("integers have no gradients")
    for rows, factor in ((3, 2), (4, 3), (5, 1.25), (6, -3.5)):
        x = torch.arange(rows * 3).reshape(rows, 3).to(dtype)
        results = []
        for run in (compiled, scaled):
            given = x.clone().requires_grad_(trains)
            found = run(given, factor)
            results.append((found.detach(), *(torch.autograd.grad(found.sum(), given) if trains else ())))
        torch.testing.assert_close(*results)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize(("dims", "layout"), [(2, torch.channels_last), (3, torch.channels_last_3d)])
def test_padded_images_keep_their_layout(dims: int, layout: torch.memory_format, mode: str, trains: bool) -> None:
    def padded(x: Tensor) -> Tensor:
        return torch.nn.functional.pad(x, (1, 1) * dims, mode)

    x = torch.randn(2, 4, *[6] * dims).contiguous(memory_format=layout).requires_grad_(trains)
    results = []
    for run in (armature.compile(padded, fullgraph=True), padded):
        found = run(x)
        results.append((found.detach(), *(torch.autograd.grad(found.square().sum(), x) if trains else ())))
    torch.testing.assert_close(*results, check_stride=True)
