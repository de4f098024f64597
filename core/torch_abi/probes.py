"""Seam to the kernels of the CPU that refuse a dtype or a number which torch's meta functions accept, as in
`torch.arange(3, dtype=torch.bool)` and `integers.mul_(0.5)`: they are asked, by a small call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

import torch

from armature.torch_abi.computing import undisturbed
from armature.torch_abi.symbols import SYMBOLIC

aten = torch.ops.aten
OF_LENGTH = (aten.arange, aten.randperm)  # what they accept follows from the length of the result
MOST = 1 << 16  # elements of such a result
# Where the dtype comes from an argument or the numbers, and kernels know fewer of them than meta functions.
PROBED = frozenset(
    getattr(packet, name)
    for packet in (
        aten.arange, aten.bartlett_window, aten.bernoulli, aten.bernoulli_, aten.blackman_window, aten.cauchy_,
        aten.complex, aten.exponential_, aten.eye, aten.fft_fftfreq, aten.fft_rfftfreq, aten.fill, aten.fill_,
        aten.full, aten.full_like, aten.geometric_, aten.hamming_window, aten.hann_window, aten.kaiser_window,
        aten.linspace, aten.log_normal_, aten.logspace, aten.masked_fill, aten.masked_fill_, aten.multinomial,
        aten.native_dropout, aten.new_full, aten.normal, aten.normal_, aten.normal_functional, aten.poisson,
        aten.polar, aten.rand, aten.rand_like, aten.randint, aten.randint_like, aten.randn, aten.randn_like,
        aten.random_, aten.randperm, aten.rrelu_with_noise, aten.scalar_tensor, aten.uniform_,
    )
    for name in packet.overloads()
    if "out" not in name
)  # fmt: skip


def small(value: Any) -> Any:
    """A size as empty as the given one, but not larger than 2: for one element, kernels have shorter ways."""
    return value if value is None else min(value, 2) if type(value) is int else 2


def sizes(value: Any) -> Any:
    """Sizes as empty as the given ones."""
    return [small(size) for size in value]


def plain(value: Any) -> Any:
    """A real tensor of the same kind; anything else unchanged."""
    return torch.ones(sizes(value.shape), dtype=value.dtype) if isinstance(value, torch.Tensor) else value


BY_NAME: Mapping[str, Callable[[Any], Any]] = MappingProxyType({
    "size": sizes, "steps": small, "window_length": small, "n": small, "m": small, "num_samples": small,
})  # fmt: skip


def refused(op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Exception | None:
    """The error that the kernel of an operator raises for the dtypes and numbers of a call on fakes; None: none."""
    if op not in PROBED:
        return _refused_kinds(op, args, kwargs)
    if not on_cpu(args, kwargs):
        return None
    names = [argument.name for argument in op._schema.arguments]
    draws = torch.Tag.nondeterministic_seeded in op.tags
    keeping: AbstractContextManager[Any] = torch.random.fork_rng(devices=()) if draws else nullcontext()
    with undisturbed(), keeping:
        reduced = {} if op.overloadpacket in OF_LENGTH else BY_NAME
        given = [reduced.get(name, plain)(value) for name, value in zip(names, args)]
        named = {name: reduced.get(name, plain)(value) for name, value in kwargs.items() if name != "generator"}
        if any(isinstance(value, SYMBOLIC) for value in (*given, *named.values())):
            return None  # whether a number fits depends on the call
        if op.overloadpacket in OF_LENGTH and any(isinstance(n, (int, float)) and abs(n) > MOST for n in given):
            return None
        try:
            op(*given, **named)
        except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            return error
    return None


def _refused_kinds(op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Exception | None:
    """The error of an elementwise operator with integers, bools or complex numbers, which many kernels refuse. It
    depends on dtypes and plain numbers, so each combination is asked once."""
    if torch.Tag.pointwise not in op.tags or torch.Tag.nondeterministic_seeded in op.tags:
        return None
    if all(one.is_floating_point() for one in args if isinstance(one, torch.Tensor)) or not on_cpu(args, kwargs):
        return None
    values = (*args, *kwargs.values())
    if any(isinstance(value, SYMBOLIC) or not isinstance(value, Hashable) for value in values):
        return None
    found = _of_kinds(op, tuple(map(_kind, args)), tuple((name, _kind(value)) for name, value in kwargs.items()))
    return None if found is None else found[0](found[1])


def _kind(value: Any) -> tuple[Any, Any]:
    """The dtype of a tensor and the sizes of an example of it, or the type of a plain value and the value."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(sizes(value.shape))
    return type(value), value


@functools.lru_cache(maxsize=4096)
def _of_kinds(
    op: Any, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]
) -> tuple[type[Exception], str] | None:
    """The class and text of the error, of small operands."""

    def example(kind: tuple[Any, Any]) -> Any:
        first, second = kind
        return torch.ones(second, dtype=first) if isinstance(first, torch.dtype) else second

    with undisturbed():
        try:
            op(*map(example, args), **{name: example(kind) for name, kind in kwargs})
        except (NotImplementedError, RuntimeError) as error:
            return type(error), str(error)
    return None


def on_cpu(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator runs on a CPU, on plain tensors."""
    tensors = [one for one in args if isinstance(one, torch.Tensor)]
    device = kwargs.get("device") or (tensors[0].device if tensors else torch.get_default_device())
    usual = all(one.layout is torch.strided and not one.is_quantized for one in tensors)
    return torch.device(device).type == "cpu" and kwargs.get("layout") in (None, torch.strided) and usual
