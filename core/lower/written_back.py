"""Writes to part of an input: in a functional graph, a new tensor that is copied back into the input at the end."""

from __future__ import annotations

import torch
from torch import fx

aten = torch.ops.aten
PARTS = frozenset((
    aten.slice_scatter.default, aten.select_scatter.default, aten.index_put.default, aten._unsafe_index_put.default,
    aten.scatter.src, aten.scatter.value, aten.scatter_add.default,
))  # fmt: skip
"""Operators whose result is their first argument with other numbers in part of it."""
MOST_WRITES = 64  # longest sequence of writes that is followed


def is_written_back(node: fx.Node) -> bool:
    """Whether the result of one of PARTS, perhaps after more such writes, is copied back into the input that it was
    made from, and nothing after the node needs the input's old value."""
    if node.target not in PARTS:
        return False
    last = node
    for _ in range(MOST_WRITES):
        back = next((u for u in last.users if u.target is aten.copy_.default and u.args[1] is last), None)
        if back is not None:
            return back.args[0] is _begin(node) and _is_free(back.args[0], node)
        onward = next((u for u in last.users if u.target in PARTS and u.args[0] is last), None)
        if onward is None:
            return False
        last = onward
    return False


def _begin(node: fx.Node) -> object:
    """The tensor that the first write of a sequence writes to."""
    begin: object = node
    while isinstance(begin, fx.Node) and begin.target in PARTS:
        begin = begin.args[0]
    return begin


def _is_free(given: object, node: fx.Node) -> bool:
    """Whether nothing after a node reads an input's elements, apart from the copy back."""
    if not isinstance(given, fx.Node) or given.op != "placeholder":
        return False
    readers = [reader for user in given.users for reader in (user, *user.users)]
    return all(
        reader < node or reader is node or reader.target is aten.copy_.default or _takes_no_numbers(reader)
        for reader in readers
        if reader not in node.users
    )


def _takes_no_numbers(reader: fx.Node) -> bool:
    """Whether the reader only needs the layout of its first argument: `copy`, or a view for it."""
    if reader.target is aten.copy.default:
        return True
    views = reader.target in (aten.slice.Tensor, aten.select.int)
    return views and all(user.target is aten.copy.default and user.args[0] is reader for user in reader.users)
