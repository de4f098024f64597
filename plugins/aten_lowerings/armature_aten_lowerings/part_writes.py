"""Parts of a tensor that are assigned to themselves: the second half of `x[i] += y`.

Python executes `x[i] += y` as an in-place addition to the part, followed by an assignment of the part to its own place.
"""

from __future__ import annotations

import torch
from torch import fx

from armature.plugin_api import Match, Rewrite, rewriting
from armature_aten_lowerings.common import returned
from armature_aten_lowerings.layouts import is_view

aten = torch.ops.aten


def entry_onto_itself(x: object, dim: object, place: object) -> object:
    """`x[place] = x[place]`."""
    part, same = aten.select.int(x, dim, place), aten.select.int(x, dim, place)  # the graph may have it once or twice
    return aten.select_scatter.default(x, aten.copy.default(part, same), dim, place)


def slice_onto_itself(x: object, dim: object, start: object, end: object, step: object) -> object:
    """`x[start:end:step] = x[start:end:step]`."""
    part, same = aten.slice.Tensor(x, dim, start, end, step), aten.slice.Tensor(x, dim, start, end, step)
    return aten.slice_scatter.default(x, aten.copy.default(part, same), dim, start, end, step)


def _can_replace(match: Match) -> bool:
    """Whether the tensor can be read in place of the one that was written to: a result of the graph must not share
    memory with inputs and other results."""
    x: object = match.bound["x"]
    given = returned(match.root.graph)
    apart = isinstance(x, fx.Node) and x.op == "call_function" and x not in given and not is_view(x)
    return apart or match.root not in given


REWRITES = (
    Rewrite(entry_onto_itself, lambda x, dim, place: x, _can_replace),
    Rewrite(slice_onto_itself, lambda x, dim, start, end, step: x, _can_replace),
)
drop_writes_of_the_same = rewriting(REWRITES)
