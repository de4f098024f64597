"""Type promotion: the dtype in which mixed arguments are compared or computed. Results' dtypes come from the fakes."""

from __future__ import annotations

import torch

from armature.backend_api import ScalarValue, TensorValue

Argument = TensorValue | bool | int | float


def _category(dtype: torch.dtype) -> int:
    if dtype == torch.bool:
        return 0
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1


def _of_number(value: object) -> torch.dtype:
    if isinstance(value, bool):
        return torch.bool
    if isinstance(value, (float, ScalarValue)):
        return torch.get_default_dtype()
    return torch.int64  # an int, or a symbolic size


def _fold(dtypes: list[torch.dtype]) -> torch.dtype | None:
    out: torch.dtype | None = None
    for dtype in dtypes:
        out = dtype if out is None else torch.promote_types(out, dtype)
    return out


def promoted(*values: object) -> torch.dtype:
    """The common dtype. Tensors with axes come before 0-d tensors, which come before numbers; a later group only counts
    if its kind is higher.

    Kinds, in order: bool, integer, float, complex.
    """
    tensors = [v for v in values if isinstance(v, TensorValue)]
    groups = [
        _fold([t.dtype for t in tensors if t.ndim]),
        _fold([t.dtype for t in tensors if not t.ndim]),
        _fold([_of_number(v) for v in values if not isinstance(v, TensorValue)]),
    ]
    out: torch.dtype | None = None
    for dtype in groups:
        if dtype is None:
            continue
        if out is None:
            out = dtype
        elif _category(dtype) > _category(out):
            out = torch.promote_types(out, dtype) if _category(out) else dtype
    return torch.float32 if out is None else out


def floating(*values: object) -> torch.dtype:
    """Like `promoted`, with integers and bools replaced by the default float."""
    dtype = promoted(*values)
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()
