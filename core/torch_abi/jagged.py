"""Seam to nested tensors of the jagged layout: wrappers with one special size, the ragged one.

That size represents the tensor of offsets (or lengths) that it was made for: two are equal if they were made for the
same tensor object.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import is_nested_int
from torch.nested._internal.nested_tensor import NestedTensor, _tensor_symint_registry

REGISTRY: Any = _tensor_symint_registry  # the ragged size of each offsets tensor, by identity

__all__ = [
    "NestedTensor",
    "is_jagged",
    "is_ragged",
    "meets_jagged",
    "ragged_axis",
    "ragged_name",
    "ragged_number",
    "stands_for_ragged",
]


def is_jagged(tensor: object) -> bool:
    """Whether it is a nested tensor of the jagged layout."""
    return type(tensor) is NestedTensor


def meets_jagged(graph: fx.Graph) -> bool:
    """Whether a captured graph has such tensors."""
    return any(is_jagged(node.meta.get("example_value")) for node in graph.nodes)


def ragged_name(tensor: Any) -> str:
    """The attribute that holds the tensor behind the ragged size."""
    return "_offsets" if tensor._lengths is None else "_lengths"


def ragged_axis(tensor: Any) -> int:
    """The axis along which the parts differ in size."""
    return int(tensor._ragged_idx)


def ragged_number(tensor: torch.Tensor) -> int | None:
    """The number of the ragged size of an offsets tensor of the program; None if it has none."""
    found = REGISTRY.get(tensor)
    return None if found is None else int(found.node.nested_int())


def stands_for_ragged(fake: Any) -> bool:
    """Whether a ragged size was made for a fake tensor."""
    return getattr(fake, "nested_int_memo", None) is not None


def is_ragged(number: object) -> bool:
    """Whether a size is a ragged one."""
    asked: Any = number
    return bool(is_nested_int(asked))
