"""Writes to part of an input: in a functional graph, a new tensor that is copied back into the input at the end."""

from __future__ import annotations

import torch
from torch import fx

from armature.graph.facts import Rows, may_return_view

aten = torch.ops.aten
MOST_WRITES = 64  # longest sequence of writes that is followed


def is_written_back(node: fx.Node, rows: Rows) -> bool:
    """Whether the result of an operator that changes part of an input is finally copied back into that input, perhaps
    after further such operators, and nothing after the node needs the input's old value."""
    if not _changes_part(node, rows):
        return False
    last = node
    for _ in range(MOST_WRITES):
        back = next((u for u in last.users if u.target is aten.copy_.default and u.args[1] is last), None)
        if back is not None:
            return back.args[0] is _begin(node, rows) and _is_free(back.args[0], node, rows)
        onward = next((u for u in last.users if _changes_part(u, rows) and u.args[0] is last), None)
        if onward is None:
            return False
        last = onward
    return False


def _changes_part(node: fx.Node, rows: Rows) -> bool:
    row = rows.get(node.target)
    return row is not None and row.changes_part


def _begin(node: fx.Node, rows: Rows) -> object:
    """The tensor that the first write of a sequence writes to."""
    begin: object = node
    while isinstance(begin, fx.Node) and _changes_part(begin, rows):
        begin = begin.args[0]
    return begin


def _is_free(given: object, node: fx.Node, rows: Rows) -> bool:
    """Whether nothing after a node reads an input's elements, apart from the copy back."""
    if not isinstance(given, fx.Node) or given.op != "placeholder":
        return False
    readers = [reader for user in given.users for reader in (user, *user.users)]
    return all(
        reader < node or reader is node or reader.target is aten.copy_.default or _takes_no_numbers(reader, rows)
        for reader in readers
        if reader not in node.users
    )


def _takes_no_numbers(reader: fx.Node, rows: Rows) -> bool:
    """Whether the reader uses only the layout of its first argument, or is a view of which only the layout is used."""
    if _takes_layout(reader, rows):
        return True
    users = reader.users
    return may_return_view(reader.target, rows) and all(_takes_layout(u, rows) and u.args[0] is reader for u in users)


def _takes_layout(node: fx.Node, rows: Rows) -> bool:
    row = rows.get(node.target)
    return row is not None and row.layout_only
