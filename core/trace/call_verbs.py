"""The verbs of calls, handed to modules that come before `calls` in the import order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from armature.trace import calls
from armature.trace.semantics import inlining

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace


class Calls:
    """Implements `protocols.CallVerbs`, which documents each verb."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.call_object = partial(calls.call_object, trace)
        self.call_class = partial(calls.call_class, trace)
        self.instantiate = partial(calls.instantiate, trace)
        self.inline_closure = partial(inlining.inline_closure, trace)
        self.inline_python = partial(calls.inline_python, trace)
        self.call_whole = partial(calls.call_whole, trace)
        self.resume = partial(inlining.run_frame, trace)
        self.handled = partial(calls.handled_by_plugins, trace)
        self.handled_as = partial(calls.handled_as, trace)
        self.has_handler = partial(calls.has_handler, trace)
        self.goes_first = partial(calls.goes_first, trace)
        self.read_in_c = partial(calls.read_in_c, trace)
