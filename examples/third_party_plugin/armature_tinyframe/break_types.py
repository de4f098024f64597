"""The names of tinyframe's graph breaks."""

from __future__ import annotations

from armature.plugin_api import BreakType

BREAK_TYPES = [
    BreakType(
        "tinyframe-file",
        title="Reading or writing a frame",
        explanation="`{call}` works on a file, which a graph can't do.",
        hints=("Load the frame before the compiled function is called, and pass it in.",),
    ),
]
