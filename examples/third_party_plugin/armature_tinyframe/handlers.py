"""How calls of certain functions of tinyframe are traced."""

from __future__ import annotations

import tinyframe
from tinyframe import files

from armature.plugin_api import Call, Value, handles
from armature_tinyframe.values import FrameValue


@handles(tinyframe.option)
def option(call: Call, options: Value, name: Value, default: Value | None = None) -> Value | None:
    """Options do not change: what is read is a constant, as long as the same options come next time."""
    if not name.is_constant or type(options.as_object()) is not tinyframe.Options:
        return None
    call.guard(options)
    found = tinyframe.option(options.as_object(), name.as_constant(), MISSING)
    if found is not MISSING:
        return call.constant(found)
    return call.constant(None) if default is None else default


@handles(tinyframe.Frame)
def make_frame(call: Call, **columns: Value) -> Value | None:
    """A frame made in the traced program: its columns, in a dict."""
    return FrameValue(call.inline(dict, **columns))


@handles(files.load, files.save)
def file(call: Call, *args: Value) -> Value | None:
    """Files are not for a graph."""
    call.graph_break("tinyframe-file", call=f"tinyframe.{call.fn.__name__}")


MISSING = object()
