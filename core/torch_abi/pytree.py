"""torch's trees of containers: flattens, maps and rebuilds nested tuples, lists and dicts as torch itself does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs
from torch.utils._pytree import SUPPORTED_NODES, tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = ["NodeType", "registered_class", "tree_flatten", "tree_leaves", "tree_map", "tree_unflatten"]


@attrs.frozen
class NodeType:
    """How objects of a class are flattened, `flatten(obj) -> (children, context)`, and rebuilt."""

    flatten: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten: Callable[[Iterable[Any], Any], Any]


def registered_class(cls: type) -> NodeType | None:
    """The registration of a class with torch.utils._pytree, None when there is none."""
    found = SUPPORTED_NODES.get(cls)
    return None if found is None else NodeType(found.flatten_fn, found.unflatten_fn)
