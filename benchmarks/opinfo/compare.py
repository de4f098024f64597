"""Compares a result with eager mode: exactly the same form, and no farther from float64 than rounding explains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from armature.testing.differential import Mismatch, difference, leaves

FACTOR = 8.0  # how much farther from float64 than eager mode a number may be
CLOSE: Mapping[torch.dtype, float] = {  # relative to the largest number of a tensor
    torch.float64: 1e-10,
    torch.float32: 1e-5,
    torch.bfloat16: 1.6e-2,
    torch.float16: 2e-3,
    torch.complex64: 1e-5,
    torch.complex128: 1e-10,
}
WIDE = {torch.complex64: torch.complex128, torch.complex32: torch.complex128}


def fresh(value: Any) -> Any:
    """A copy of arguments with the same layout, so that an operator's writes to them only affect one call."""
    return pytree.tree_map_only(torch.Tensor, _copied, value)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    storage = tensor.detach().untyped_storage().clone()
    copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    copy.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    return copy.requires_grad_(tensor.requires_grad)


def in_double(value: Any) -> Any:
    """Arguments in float64 or complex128."""
    return pytree.tree_map(_wide, value)


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
        wide = torch.complex128 if value.is_complex() else torch.float64
        return value.detach().to(wide).requires_grad_(value.requires_grad)
    if isinstance(value, torch.dtype) and value in CLOSE:
        return WIDE.get(value, torch.float64) if not value.is_complex else torch.complex128
    return value


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of a result."""
    return (leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor))


def with_weights(value: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Every differentiable tensor of a result, and the gradient to send back through it: varying numbers in the
    tensor's layout. Compiled backward graphs expect that layout: others are copied first."""
    found, weights = [], []
    for tensor in tensors(value):
        if not tensor.requires_grad or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor
        wide = torch.complex128 if dense.is_complex() else torch.float64
        steps = torch.arange(dense.numel(), device=dense.device, dtype=torch.float64).reshape(dense.shape)
        waves = torch.complex(steps.cos(), steps.sin()) if dense.is_complex() else steps.cos()
        found.append(dense)
        weights.append(torch.empty_like(dense.detach()).copy_(waves.to(wide)))
    return found, weights


CANCELLED = 1e-3  # a tensor this much smaller than others of a result may be the remainder of a sum of such numbers


def largest(tensor: torch.Tensor) -> float:
    """The largest finite number of a floating or complex tensor; 0 for others."""
    values = _dense(tensor.detach())
    if not (values.is_floating_point() or values.is_complex()):
        return 0.0
    sizes = values.abs().double()
    sizes = sizes[sizes.isfinite()]
    return float(sizes.max()) if sizes.numel() else 0.0


def wrong(found: Any, eager: Any, exact: Callable[[], Any]) -> str:
    """What is wrong with a result; "" if nothing is. `exact`: computes the result in float64, called only if needed."""
    try:
        difference(_dense(eager), _dense(found))
    except Mismatch as error:
        if not (error.facts["what"] == "positions of NaN" and _nans_are(found, eager, exact)):
            return " ".join(str(error).split("\n")[0].split())[:300]
    pairs = list(zip(tensors(found), tensors(eager), strict=True))
    worst = [(_error(ours, theirs), k) for k, (ours, theirs) in enumerate(pairs)]
    far = [(error, k) for error, k in worst if error > CLOSE.get(pairs[k][1].dtype, 0.0)]
    if not far:
        return ""
    known = _reference(exact, [theirs for _, theirs in pairs])
    for error, k in far:
        ours, theirs = pairs[k]
        close = CLOSE.get(theirs.dtype, 0.0)
        if theirs.dtype in (torch.float64, torch.complex128):  # nothing tells how inaccurate eager mode itself is
            error = _error(ours, theirs, CANCELLED * max(largest(one) for _, one in pairs))
            if error <= close:
                continue
        if known is None or theirs.dtype in (torch.float64, torch.complex128):
            return f"tensor {k}: {error:.1e} off eager mode, {close:.1e} allowed"
        mine, eagers = _error(ours, known[k]), _error(theirs, known[k])
        allowed = close + FACTOR * (eagers if math.isfinite(eagers) else 0.0)
        if mine > allowed:
            return f"tensor {k}: {mine:.1e} off float64, {allowed:.1e} allowed"
    return ""


def _nans_are(found: Any, eager: Any, exact: Callable[[], Any]) -> bool:
    """Whether the NaNs of a result are float64's, so that those of eager mode come of its kernel: fmod's for vectors
    gives NaN for divisors near the smallest float32."""
    known = _reference(exact, list(tensors(eager)))
    return known is not None and all(
        torch.equal(ours.isnan(), theirs.isnan()) for ours, theirs in zip(tensors(found), known, strict=True)
    )


def _reference(exact: Callable[[], Any], like: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    try:
        made = list(tensors(exact()))
    except Exception:  # there is no float64 kernel, or it refuses these arguments
        return None
    return made if [t.shape for t in made] == [t.shape for t in like] else None


def _dense(value: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda t: t if t.layout is torch.strided else t.to_dense(), value)


def _error(found: torch.Tensor, wanted: torch.Tensor, least: float = 1e-30) -> float:
    """The largest difference relative to the largest number, where both are finite; infinite where only one is.

    least: a lower bound of the scale.
    """
    found, wanted = _dense(found.detach()), _dense(wanted.detach())
    if not wanted.is_floating_point() and not wanted.is_complex():
        return 0.0 if torch.equal(found.resolve_conj(), wanted.to(found.dtype)) else float("inf")
    wide = torch.complex128 if wanted.is_complex() else torch.float64
    found, wanted = found.to(wide), wanted.to(wide)
    finite = found.isfinite() & wanted.isfinite()
    same = finite | (found == wanted) | (found.isnan() & wanted.isnan())
    if wanted.is_complex():
        same |= ~found.isfinite() & ~wanted.isfinite()
    if not bool(same.all()):
        return float("inf")
    gap = (found - wanted)[finite].abs()
    scale = wanted[finite].abs()
    return float(gap.max()) / max(float(scale.max()), least, 1e-30) if gap.numel() and float(gap.max()) else 0.0
