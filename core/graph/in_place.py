"""In-place operators whose functional form lays its result out differently from the tensor that is written to.

A functional graph uses that form, so `as_strided` or the caller would see the wrong layout.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from armature.torch_abi.fake import enable_python_dispatcher
from armature.torch_abi.pytree import tree_leaves
from armature.torch_abi.wrappers import fake_mode_of


def loses_layout(graph: fx.Graph) -> bool:
    """Whether the functional form of a write changes a tensor's layout from the one in eager mode."""
    return any(_loses_layout(node) for node in graph.nodes if node.op in ("call_method", "call_function"))


def _loses_layout(node: fx.Node) -> bool:
    form, made = functional_form(node), node.meta.get("example_value")
    if form is None or not isinstance(made, torch.Tensor) or made.layout is not torch.strided:
        return False
    if made.is_contiguous():  # likewise results of operators that ignore layouts
        return False
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda used: used.meta.get("example_value"))
    mode = fake_mode_of(tree_leaves((args, kwargs)))
    with mode or contextlib.nullcontext(), enable_python_dispatcher(), torch.no_grad():
        try:
            found = form(*args, **kwargs)
        except Exception:  # there is no functional form, or it takes other arguments
            return True
    changes = isinstance(found, torch.Tensor) and found.stride() != made.stride()
    return changes and not (made._is_view() and _is_written_only(node))


def _is_written_only(node: fx.Node) -> bool:
    """Whether the view that a call writes to is only read to copy its elements. Its base keeps its layout, because the
    functional graph writes the elements there."""
    view = node.args[0]
    if not isinstance(view, fx.Node) or view.op == "placeholder":
        return False
    later = [*node.users, *(user for user in view.users if node < user)]
    return all(_copies_numbers(user, (node, view)) for user in later)


def _copies_numbers(user: fx.Node, sources: tuple[fx.Node, fx.Node]) -> bool:
    """Whether a call uses one of `sources` only to copy its elements, as in `x[i] = source`."""
    return user.target is operator.setitem and user.args[2] in sources and user.args[0] not in sources


def functional_form(node: fx.Node) -> Callable[..., Any] | None:
    """The functional form of an in-place call; None for other calls."""
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if not isinstance(target, str) and getattr(target, "__module__", "") == "_operator":
        return getattr(operator, name[1:], None) if name.startswith("i") and hasattr(operator, f"__{name}__") else None
    if not name.endswith("_") or name.endswith("__"):
        return None
    return getattr(torch.Tensor, name[:-1], None)
