"""Calls that the generated code makes before it calls the graph, in the program's order.

They draw numbers from Python's generators, which must differ from call to call, and compute with them. Where one of
them raises, or the graph does, their changes are undone and the frame runs again in eager mode.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from armature.torch_abi.eval_frame import skip_code

if TYPE_CHECKING:
    from armature.trace.base import Rebuilding


def run(function: Callable[..., Any], *operands: Any) -> Any:
    """Make the call without tracing it."""
    return function(*operands)


skip_code(run.__code__, below=True)


@attrs.define(eq=False)
class PrecallWriter:
    """Writes the precalls. names: the variables of their results. states: each changed object, with the variable of its
    saved state and the function that restores it."""

    names: list[str] = attrs.field(factory=list)
    states: list[tuple[str, str, Callable[[Any, Any], Any]]] = attrs.field(factory=list)

    def save(self, out: Rebuilding) -> None:
        """Save the state of the objects that the calls change."""
        for value, (read, write) in out.tracer.precalls.changed.items():
            owner = out.keep(value)
            self._call(out, read, self._loaded(out, owner))
            self.states.append((owner, self._store(out), write))

    def calls(self, out: Rebuilding) -> None:
        """Make the calls."""
        for call in out.tracer.precalls.calls:
            self._call(out, call.function, *(functools.partial(out.load, value) for value in call.operands))
            self.names.append(self._store(out))

    def undo(self, out: Rebuilding) -> None:
        """Restore the state of the changed objects."""
        for owner, state, write in self.states:
            self._call(out, write, self._loaded(out, owner), self._loaded(out, state))
            out.emit("POP_TOP")

    def _loaded(self, out: Rebuilding, name: str) -> Callable[[], None]:
        return functools.partial(out.emit, "LOAD_FAST", name)

    def _call(self, out: Rebuilding, function: Callable[..., Any], *operands: Callable[[], None]) -> None:
        out.null_function(run)
        out.constant(function)
        for load in operands:
            load()
        out.call(1 + len(operands))

    def _store(self, out: Rebuilding) -> str:
        name = out.temporary()
        out.emit("STORE_FAST", name)
        return name
