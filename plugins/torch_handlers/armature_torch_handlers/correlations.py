"""`torch.cov` and `torch.corrcoef`, which check whether weights add up to zero: decomposed if there are none."""

from __future__ import annotations

import torch

from armature.plugin_api import Call, NotConstant, TracedTensor, Value, handles
from armature_torch_handlers.number_tensors import with_numbers


@handles(torch.cov, torch.Tensor.cov)
def covariance(call: Call, input: Value, *, correction: Value | None = None, **weights: Value) -> Value | None:
    """Decompose if eager mode neither raises nor warns."""
    if not all(weight.is_constant and weight.as_constant() is None for weight in weights.values()):
        return None
    try:
        taken = 1 if correction is None else with_numbers(call.tracing, correction).as_constant()
    except NotConstant:
        return None
    return call.polyfill(covariances, input, call.constant(taken)) if is_plain(input, taken) else None


@handles(torch.corrcoef, torch.Tensor.corrcoef)
def correlation(call: Call, input: Value) -> Value | None:
    """Decompose if eager mode neither raises nor warns."""
    return call.polyfill(coefficients, input) if is_plain(input, 1) else None


def is_plain(input: Value, correction: object) -> bool:
    """Whether the input is a matrix or a single row, whose rows are longer than the correction that is subtracted from
    their length."""
    if not isinstance(input, TracedTensor) or type(correction) is not int:
        return False
    fake = input.fake
    return fake.dim() <= 2 and fake.dtype is not torch.bool and (fake.shape[-1] if fake.dim() else 1) > correction


def covariances(x: torch.Tensor, correction: int) -> torch.Tensor:
    """The covariances of rows."""
    rows = x if x.dim() == 2 else x.view(1, -1)
    count = torch.full((), rows.shape[1], dtype=torch.int64, device=x.device)
    centred = rows - (rows.sum(1) / count).unsqueeze(1)
    return (torch.mm(centred, centred.t().conj()) / (count - correction)).squeeze()


def coefficients(x: torch.Tensor) -> torch.Tensor:
    """The covariances of rows, divided by their standard deviations."""
    found = covariances(x, 1)
    if found.dim() == 0:
        return found / found
    variances = found.diag()
    deviations = (variances.real if variances.is_complex() else variances).sqrt()
    found = found / deviations.view(-1, 1) / deviations.view(1, -1)
    if found.is_complex():
        return torch.complex(found.real.clip(-1, 1), found.imag.clip(-1, 1))
    return found.clip(-1, 1)
