"""Types of graph breaks that depend on what was met: a method of tensors, the class of an error, a layout."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

# Of methods whose result only the numbers tell, by name; of the others.
NUMBER_METHODS: Mapping[str, str] = MappingProxyType({
    "item": "tensor-item",
    "tolist": "tensor-to-list",
    "numpy": "tensor-to-numpy",
    "__array__": "tensor-to-numpy",
    "data_ptr": "tensor-address",
    "const_data_ptr": "tensor-address",
    "is_set_to": "tensor-address",
    "is_nonzero": "compares-tensors",
    "equal": "compares-tensors",
    "allclose": "compares-tensors",
    "__str__": "text-of-tensor",
    "__repr__": "text-of-tensor",
    "__format__": "text-of-tensor",
    "__hash__": "tensor-method",
    "__dir__": "tensor-method",
    "__sizeof__": "tensor-method",
    "type": "tensor-method",
})  # fmt: skip
NUMBER_METHOD = "number-of-tensor"

# Of methods that change what a tensor is, or that leave the graph, by name; of the others.
STATE_METHODS: Mapping[str, str] = MappingProxyType({
    "requires_grad_": "tensor-requires-grad",
    "set_": "tensor-set",
    "resize_": "tensor-resize",
    "resize_as_": "tensor-resize-as",
    "share_memory_": "tensor-share-memory",
    "is_shared": "tensor-share-memory",
    "register_hook": "tensor-hook",
    "register_post_accumulate_grad_hook": "tensor-hook",
    "backward": "tensor-backward",
    "retain_grad": "tensor-retain-grad",
    "detach_": "tensor-detach",
    "storage": "tensor-storage",
    "untyped_storage": "tensor-storage",
    "apply_": "tensor-apply",
    "map_": "tensor-apply",
    "map2_": "tensor-apply",
    "to_sparse": "makes-sparse",
    "to_mkldnn": "makes-other-layout",
    "rename": "named-tensor",
    "rename_": "named-tensor",
    "refine_names": "named-tensor",
    "align_to": "named-tensor",
    "align_as": "named-tensor",
    "unflatten_names": "named-tensor",
    "__reduce_ex__": "pickles",
    "__dlpack__": "exports-memory",
    "pin_memory": "pins-memory",
})  # fmt: skip
STATE_METHOD = "tensor-method"

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
