"""torch's trees of containers: flatten, map and rebuild nested tuples, lists and dicts as torch itself does."""

from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = ["tree_flatten", "tree_leaves", "tree_map", "tree_unflatten"]
