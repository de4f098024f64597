"""What tracing gives: the captured FX graph, the guards it relies on, and the bytecode that calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from armature.torch_abi.operators import is_triton_operator, written_positions

LEAVE = "leave"  # in the meta of a node that enters a context: what leaves it
UNCOMPILED = "runs_uncompiled"  # an attribute of functions: positions of what they may write to; None: of any


def is_uncompiled(node: fx.Node) -> bool:
    """Whether a node of a captured graph is a call that no back end is given (`recording/uncompiled_calls.py`)."""
    return hasattr(node.target, UNCOMPILED) or is_triton_operator(node.target)


def written_uncompiled(node: fx.Node) -> list[fx.Node]:
    """What such a call may write to, also in tuples."""
    found: list[fx.Node] = []
    if isinstance(node.target, torch._ops.OpOverload):
        writes = written_positions(node.target)
        given = tuple(arg for position, arg in enumerate(node.args) if position in writes)
        fx.map_arg((given, dict(node.kwargs) if writes else {}), found.append)
        return found
    writes = getattr(node.target, UNCOMPILED)
    given = tuple(arg for position, arg in enumerate(node.args) if writes is None or position in writes)
    fx.map_arg(given, found.append)
    return found


def uncompiled(function: Callable[..., None], name: str, writes: frozenset[int]) -> Callable[..., None]:
    """A function as the target of a node that no back end is given. writes: positions of what it may write to."""

    def call(*args: Any) -> None:
        if not any(type(arg) is FakeTensor for arg in args):  # as in a graph that is run to learn what it gives
            function(*args)

    call.__name__ = call.__qualname__ = name
    setattr(call, UNCOMPILED, writes)
    return call


def running_graphs(function: Callable[..., Any], graphs: Iterable[fx.GraphModule], writes: bool) -> Callable[..., Any]:
    """A function as the target of a node, which runs graphs: no back end is given it if they have such calls. writes:
    whether it may write to its arguments."""
    if any(is_uncompiled(node) for module in graphs for node in module.graph.nodes):
        setattr(function, UNCOMPILED, None if writes else frozenset())
    return function


class CompiledGraphSlot:
    """Stands in a traced code's `co_consts` where the compiled graph will be; `pipeline` replaces it."""

    def __repr__(self) -> str:
        return "<compiled graph>"


@attrs.frozen(eq=False)
class GraphInput:
    """One placeholder of the captured graph: where its value comes from, and its fake tensor (or SymInt). source: None
    for what another piece of the graph has made. real: the tensor itself, while the program has it."""

    name: str
    source: Source | None
    fake: object
    is_parameter: bool = False  # a parameter or buffer of a module: its address is expected to stay
    real: ReferenceType[torch.Tensor] | None = None


@attrs.frozen(eq=False)
class TracedFrame:
    """A frame traced to its end.

    `graph` takes `inputs` in order (flat) and returns a tuple; it holds torch functions and methods as in user code,
    each node with `meta["example_value"]` (fake) and `meta["origin"]` (FrameSummary). None when the frame computes
    nothing with tensors.
    `writes`: an operator in place is in the graph, or something else that changes tensors.
    `undo`: what the graph has done when it raises, and what sets it back.
    `size_guards` gives the guards on symbolic sizes, once the graph is compiled: compiling it may add to them.
    `code` runs instead of the frame's code: loads the inputs, calls the graph (a constant, `CompiledGraphSlot`) as
    `slot(*inputs)`, replays side effects, rebuilds and returns the frame's value.
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
