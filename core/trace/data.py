"""The result of tracing: the captured FX graph, the guards it relies on, and the bytecode that calls it."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any
from weakref import ReferenceType

import attrs
import torch
from torch import fx

from armature.breaks.types import BreakEvent
from armature.frame.guards.guard import Guard
from armature.frame.rerun import Undo
from armature.frame.sources import Source
from armature.torch_abi.fake import FakeTensor
from armature.torch_abi.operators import is_kernel_operator

HANDLED = "handled"  # in the meta of a node within a `try` of the program
REPEATS = "repeats"  # in the meta of a node that eager mode runs again on what it has changed when it raises
LEAVE = "leave"  # in the meta of a node that enters a context: the function that leaves it
# attribute of a function: positions of the arguments it may write to, None if it may write to any
UNCOMPILED = "runs_uncompiled"


def is_uncompiled(node: fx.Node) -> bool:
    """Whether a graph node is a call that isn't passed to a back end (`call_uncompiled` of `plugin_values.py`, or a
    TorchScript function's)."""
    return hasattr(node.target, UNCOMPILED) or is_kernel_operator(node.target)


def uncompiled(function: Callable[..., None], name: str, writes: frozenset[int]) -> Callable[..., None]:
    """Wrap a function as the target of a node that is not passed to a back end. writes: positions it may write to."""

    def call(*args: Any) -> None:
        if not any(type(arg) is FakeTensor for arg in args):  # fake tensors: the graph is only run to learn its results
            function(*args)

    call.__name__ = call.__qualname__ = name
    call.__module__ = function.__module__
    setattr(call, UNCOMPILED, writes)
    return call


class CompiledGraphSlot:
    """Placeholder for the compiled graph in a traced code's `co_consts`; `pipeline` replaces it."""

    def __repr__(self) -> str:
        return "<compiled graph>"


@attrs.frozen(eq=False)
class GraphInput:
    """One placeholder of the captured graph: where its value comes from, and its fake tensor (or SymInt). source: None
    if another piece of the graph computes it. real: the tensor itself, while the program has it."""

    name: str
    source: Source | None
    fake: object
    is_parameter: bool = False  # a parameter or buffer of a module: its address is expected to stay
    real: ReferenceType[torch.Tensor] | None = None


@attrs.frozen(eq=False)
class TracedFrame:
    """A frame traced to its end.

    `graph` takes `inputs` in order (flat) and returns a tuple; it calls torch functions and methods as the user's code
    does, each node with `meta["example_value"]` (fake) and `meta["origin"]` (FrameSummary). It is None when the frame
    computes nothing with tensors.
    `writes`: whether the graph has an in-place operator or something else that changes tensors.
    `undo`: the effects of a graph that raises, and how to revert them.
    `size_guards` returns the guards on symbolic sizes. Call it once the graph is compiled, because compiling may add
    some.
    `code` runs instead of the frame's code: it loads the inputs, calls the graph (a constant, `CompiledGraphSlot`) as
    `slot(*inputs)`, replays side effects, rebuilds the frame's return value and returns it.
    """

    name: str
    graph: fx.GraphModule | None
    inputs: tuple[GraphInput, ...]
    guards: tuple[Guard, ...]
    code: CodeType
    slot: CompiledGraphSlot
    breaks: tuple[BreakEvent, ...] = ()
    writes: bool = False
    undo: Undo = attrs.field(factory=Undo)
    size_guards: Callable[[], tuple[Guard, ...]] = tuple
