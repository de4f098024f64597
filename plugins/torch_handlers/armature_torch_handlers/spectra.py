"""`torch.istft`, which checks whether the windows add up to zero somewhere: decomposed, so that the graph checks it."""

from __future__ import annotations

import torch

from armature.plugin_api import Call, NotConstant, TracedTensor, Value, handles
from armature_torch_handlers.number_tensors import with_numbers

LOWEST = 1e-11
NAMES = (
    "n_fft", "hop_length", "win_length", "window", "center", "normalized", "onesided", "length", "return_complex",
)  # fmt: skip


@handles(torch.istft, torch.Tensor.istft)
def inverse_transform(call: Call, input: Value, *args: Value, **kwargs: Value) -> Value | None:
    """Decompose for known sizes and valid arguments; eager mode reports errors for others."""
    given = {**dict(zip(NAMES, args)), **kwargs}
    window = given.pop("window", None)
    try:
        known = {name: with_numbers(call.tracing, value).as_constant() for name, value in given.items()}
    except NotConstant:
        return None
    if window is not None and window.is_constant and window.as_constant() is None:
        window = None
    if not isinstance(input, TracedTensor) or not isinstance(window, TracedTensor | None):
        return None
    if not all(value.has_static_shape for value in (input, window) if value is not None):
        return None
    plan = planned(input.fake, None if window is None else window.fake, **known)
    if plan is None:
        return None
    lengths = [call.constant(number) for number in plan]
    normalized, complex_result = (call.constant(known.get(name, False)) for name in ("normalized", "return_complex"))
    return call.polyfill(overlap_add, input, window or call.constant(None), *lengths, normalized, complex_result)


def planned(
    input: torch.Tensor,
    window: torch.Tensor | None,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> tuple[int, int, int, int, int] | None:
    """The window length, hop length, number of bins, and the signal's begin and end; None if eager mode raises or
    warns."""
    if not input.is_complex() or input.dim() not in (2, 3) or not input.numel() or input.is_conj():
        return None
    bins, frames = input.shape[-2:]
    hop, width = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    half = n_fft // 2 + 1
    if onesided is None:
        onesided = bins != n_fft
    if bins != (half if onesided else n_fft) or not 0 < hop <= width <= n_fft or (onesided and return_complex):
        return None
    if window is not None and (window.shape != (width,) or window.is_complex() or window.device != input.device):
        return None
    whole = n_fft + hop * (frames - 1)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else whole - n_fft // 2 if center else whole
    return (n_fft, hop, width, start, end) if start < end <= whole else None


def overlap_add(
    input: torch.Tensor,
    window: torch.Tensor | None,
    n_fft: int,
    hop: int,
    width: int,
    start: int,
    end: int,
    normalized: bool,
    as_complex: bool,
) -> object:
    """The signal: frames are added where they overlap, and divided by the sum of the windows."""
    if window is None:
        window = torch.ones(width, dtype=input.real.dtype, device=input.device)
    if width != n_fft:
        left = (n_fft - width) // 2
        window = torch.nn.functional.pad(window, (left, n_fft - width - left))
    whole = n_fft + hop * (input.shape[-1] - 1)
    spectrum = (input if input.dim() == 3 else input.unsqueeze(0)).transpose(1, 2)
    norm = "ortho" if normalized else "backward"
    if as_complex:
        frames = torch.fft.ifft(spectrum, dim=-1, norm=norm)
    else:
        frames = torch.fft.irfft(spectrum[..., : n_fft // 2 + 1], n_fft, dim=-1, norm=norm)
    weighted, squares = frames * window.view(1, 1, n_fft), window.pow(2).expand(1, frames.shape[1], n_fft)
    added = torch.ops.aten.unfold_backward(weighted, [frames.shape[0], whole], 1, n_fft, hop)[:, start:end]
    envelope = torch.ops.aten.unfold_backward(squares, [1, whole], 1, n_fft, hop)[:, start:end]
    if envelope.abs().min() < LOWEST:
        raise RuntimeError("the windows add up to nothing")  # eager mode words the error
    signal = added / envelope
    return signal if input.dim() == 3 else signal.squeeze(0)
