"""Calls that the generated code makes before it calls the graph, in the program's order: numbers that Python's
generators draw, which must be another one in each call, and arithmetic on them.

Where one of them raises, or the graph does, what they have changed is undone, and the frame runs again in eager mode.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from armature.frame.sources import EarlySource
from armature.torch_abi.eval_frame import skip_code
from armature.trace.recording import graph_calls
from armature.trace.values.base import Value

if TYPE_CHECKING:
    from armature.trace.emit.rebuild import Rebuilder
    from armature.trace.tracer import Tracer


@attrs.frozen(eq=False)
class EarlyCall:
    """`function(*operands)`; the operands can be loaded before the graph is called."""

    function: Callable[..., Any]
    operands: tuple[Value, ...]


@attrs.define(eq=False)
class EarlyCalls:
    """The calls of one trace.

    changed: the objects that they change, each with functions that read its state and set it. taken: a number is taken
    out of a tensor again in the graph.
    """

    calls: list[EarlyCall] = attrs.field(factory=list)
    changed: dict[Value, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = attrs.field(factory=dict)
    taken: bool = False

    def add(self, function: Callable[..., Any], operands: tuple[Value, ...]) -> EarlySource:
        """One more call; where to find what it gives."""
        self.calls.append(EarlyCall(function, operands))
        return EarlySource(len(self.calls) - 1)

    def changes(
        self, tracer: Tracer, value: Value, read: Callable[[Any], Any], write: Callable[[Any, Any], Any]
    ) -> None:
        """A call changes an object of the program: after it, if code of the program that is in the graph may see it."""
        if not all(graph_calls.is_torchs(n.target) for n in tracer.graph.nodes if n.op.startswith("call_")):
            tracer.graph_break(
                "unsupported-mutation", operation="a call after code of the program", type=value.describe()
            )
        self.changed.setdefault(value, (read, write))


def run(function: Callable[..., Any], *operands: Any) -> Any:
    """The call, of which nothing is traced."""
    return function(*operands)


skip_code(run.__code__, below=True)


@attrs.define(eq=False)
class EarlyWriter:
    """Writes the calls. names: the variables of their results. states: of the changed objects, each with the state in
    which it was and what sets it."""

    names: list[str] = attrs.field(factory=list)
    states: list[tuple[str, str, Callable[[Any, Any], Any]]] = attrs.field(factory=list)

    def save(self, out: Rebuilder) -> None:
        """Keep what the calls change."""
        for value, (read, write) in out.tracer.early.changed.items():
            owner = out.keep(value)
            self._call(out, read, self._loaded(out, owner))
            self.states.append((owner, self._store(out), write))

    def calls(self, out: Rebuilder) -> None:
        """Make the calls."""
        for call in out.tracer.early.calls:
            self._call(out, call.function, *(functools.partial(out.load, value) for value in call.operands))
            self.names.append(self._store(out))

    def undo(self, out: Rebuilder) -> None:
        """Bring what was changed to where it was."""
        for owner, state, write in self.states:
            self._call(out, write, self._loaded(out, owner), self._loaded(out, state))
            out.emit("POP_TOP")

    def _loaded(self, out: Rebuilder, name: str) -> Callable[[], None]:
        return functools.partial(out.emit, "LOAD_FAST", name)

    def _call(self, out: Rebuilder, function: Callable[..., Any], *operands: Callable[[], None]) -> None:
        out.null_function(run)
        out.constant(function)
        for load in operands:
            load()
        out.call(1 + len(operands))

    def _store(self, out: Rebuilder) -> str:
        name = out.temporary()
        out.emit("STORE_FAST", name)
        return name
