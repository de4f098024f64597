"""Ids of break types that are chosen by a fact met while tracing: the class of an error, the layout of a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

# The break type for an error that an operator raises on fake tensors, by the error's class, and the fallback.
OPERATOR_ERRORS: Mapping[type[Exception], str] = MappingProxyType(
    {
        TypeError: "operator-type-error",
        RuntimeError: "operator-runtime-error",
        IndexError: "operator-index-error",
        ValueError: "operator-value-error",
    }
)
OPERATOR_ERROR = "operator-failed"

# The break type for a tensor that isn't strided, by its layout, and the fallback.
LAYOUTS: Mapping[torch.layout, str] = MappingProxyType(dict.fromkeys(
    (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc), "sparse-tensor"
))  # fmt: skip
LAYOUT = "tensor-layout"
