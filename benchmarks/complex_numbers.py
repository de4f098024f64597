"""`python -m benchmarks.complex_numbers`: arithmetic with complex numbers, as models write it.

In eager mode, compiled with the operators left as calls (the pass "complex-numbers" off), compiled with loops, and by
torch.compile, which falls back to calls. All run alternately; a time is the median of many calls.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import armature
from benchmarks.narrow_products import microseconds

MANY = 5000.0  # microseconds of a call from which fewer are measured
Case = tuple[Callable[..., Tensor], tuple[Tensor, ...]]


def rotary(x: Tensor, table: Tensor) -> Tensor:
    """Rotary embeddings as in Llama's original code."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table).flatten(3).type_as(x)


def rotary_of_both(q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    """Of queries and keys."""
    return rotary(q, table) + rotary(k, table)


def turns(length: int, half: int) -> Tensor:
    """The table of rotary embeddings."""
    angles = torch.outer(torch.arange(length).float(), 10000 ** -(torch.arange(half).float() / half))
    return torch.polar(torch.ones_like(angles), angles)[None, :, None]


def kernel_of_s4d(rates: Tensor, frequencies: Tensor, weights: Tensor) -> Tensor:
    """The convolution kernel of a diagonal state-space model, of length 256."""
    steps = torch.complex(-rates.exp(), frequencies)
    powers = torch.exp(steps[..., None] * torch.arange(256))
    scaled = torch.view_as_complex(weights) * (torch.exp(steps) - 1) / steps
    return 2 * (scaled[..., None] * powers).sum(1).real


def global_filter(x: Tensor, weight: Tensor) -> Tensor:
    """A layer of GFNet."""
    spectrum = torch.fft.rfft2(x, dim=(1, 2), norm="ortho")
    return torch.fft.irfft2(spectrum * torch.view_as_complex(weight), s=x.shape[1:3], dim=(1, 2), norm="ortho")


def fourier_operator(x: Tensor, weight: Tensor) -> Tensor:
    """A layer of a Fourier neural operator."""
    modes = torch.fft.rfft(x)[..., : weight.shape[-2]]
    mixed = torch.einsum("bim,iom->bom", modes, torch.view_as_complex(weight))
    return torch.fft.irfft(mixed, n=x.shape[-1])


def spectrogram(x: Tensor, window: Tensor) -> Tensor:
    """Powers of a short-time Fourier transform, in decibels."""
    found = torch.stft(x, 512, 128, window=window, return_complex=True)
    return 10 * torch.log10(found.abs() ** 2 + 1e-10)


def rotated_phases(x: Tensor, window: Tensor) -> Tensor:
    """A step of a phase vocoder."""
    found = torch.stft(x, 512, 128, window=window, return_complex=True)
    first, second = found[..., :-1], found[..., 1:]
    phase = (second.angle() - first.angle()).cumsum(-1)
    return torch.view_as_real(torch.polar(0.5 * first.abs() + 0.5 * second.abs(), phase))


def cases() -> dict[str, Case]:
    """Programs and inputs."""
    q, k = torch.randn(2, 2, 512, 8, 64)
    sound = (torch.randn(4, 16000), torch.hann_window(512))
    return {
        "rotary 2x512x8x64": (rotary_of_both, (q, k, turns(512, 32))),
        "rotary 2x1x8x64": (rotary_of_both, (q[:, :1], k[:, :1], turns(1, 32))),
        "rotary, bfloat16": (rotary_of_both, (q.bfloat16(), k.bfloat16(), turns(512, 32))),
        "S4D kernel 64x32": (kernel_of_s4d, (torch.randn(64, 32), torch.randn(64, 32), torch.randn(64, 32, 2))),
        "GFNet filter 8x14x14x64": (global_filter, (torch.randn(8, 14, 14, 64), torch.randn(14, 8, 64, 2))),
        "Fourier operator 8x32x256": (fourier_operator, (torch.randn(8, 32, 256), torch.randn(32, 32, 16, 2))),
        "spectrogram 4x16000": (spectrogram, sound),
        "phase vocoder 4x16000": (rotated_phases, sound),
    }


def trained(fn: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Forward and backward."""
    out = fn(*inputs)
    return torch.autograd.grad(out, [x for x in inputs if x.requires_grad], torch.ones_like(out))[0]


def main() -> None:
    """Measure and print."""
    warnings.filterwarnings("ignore", "Torchinductor does not support code generation for complex")
    table = Table("program", "", "eager us", "calls us", "loops us", "torch.compile us", title="Complex numbers")
    for name, (fn, inputs) in cases().items():
        for training in (False, True):
            given = [x.detach().requires_grad_(training and not x.is_complex()) for x in inputs]
            armature.reset()
            as_calls = armature.compile(fn, fullgraph=True, options={"disabled_passes": {"complex-numbers"}})
            ways = [fn, as_calls, armature.compile(fn, fullgraph=True), torch.compile(fn)]
            calls = [partial(trained if training else _plain, way, *given) for way in ways]
            for call in calls[1:]:
                torch.testing.assert_close(call(), calls[0](), rtol=5e-2, atol=5e-2)
            slow = microseconds(calls[:1], rounds=3)[0] > MANY
            times = microseconds(calls, rounds=20 if slow else 200)
            table.add_row(name, "training" if training else "inference", *(f"{one:.1f}" for one in times))
    Console(width=120).print(table)


@torch.no_grad()
def _plain(fn: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    return fn(*inputs)


if __name__ == "__main__":
    main()
