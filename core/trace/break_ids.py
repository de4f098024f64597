"""Types of graph breaks that depend on what was met: the class of an error, a layout."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

# Of operators that refuse what they are given, by the class of the error; of the others.
OPERATOR_ERRORS: Mapping[type[Exception], str] = MappingProxyType(
    {
        TypeError: "operator-type-error",
        RuntimeError: "operator-runtime-error",
        IndexError: "operator-index-error",
        ValueError: "operator-value-error",
    }
)
OPERATOR_ERROR = "operator-failed"

# Of tensors whose numbers do not stand in memory in the plain way, by their layout; of the others.
LAYOUTS: Mapping[torch.layout, str] = MappingProxyType(dict.fromkeys(
    (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc), "sparse-tensor"
))  # fmt: skip
LAYOUT = "tensor-layout"
