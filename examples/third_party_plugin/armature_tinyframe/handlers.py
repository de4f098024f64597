"""How calls of certain functions of tinyframe are traced."""

from __future__ import annotations

import tinyframe
from tinyframe import files

from armature.plugin_api import Call, Value, handles
from armature_tinyframe.values import FrameValue


@handles(tinyframe.option)
def option(call: Call, options: Value, name: Value, default: Value | None = None) -> Value | None:
    """Options are immutable, so an option is a constant; the options object is guarded by identity."""
    if not name.is_constant or type(options.as_object()) is not tinyframe.Options:
        return None
    call.guard(options)
    found = tinyframe.option(options.as_object(), name.as_constant(), MISSING)
    if found is not MISSING:
        return call.constant(found)
    return call.constant(None) if default is None else default


@handles(tinyframe.Frame)
def make_frame(call: Call, **columns: Value) -> Value | None:
    """A frame made in the traced program, from a dict of its columns."""
    return FrameValue(call.inline(dict, **columns))


@handles(files.load, files.save)
def file(call: Call, *args: Value) -> Value | None:
    """Break the graph, because a graph can't read files."""
    call.graph_break("tinyframe-file", call=f"tinyframe.{call.fn.__name__}")


MISSING = object()
