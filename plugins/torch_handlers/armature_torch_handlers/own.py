"""armature's own public functions, when called by a traced program."""

from __future__ import annotations

import torch

from armature.plugin_api import Call, Value, existing, handles


@handles(*existing("armature.api.public.is_compiling"))
def is_compiling(call: Call) -> Value:
    """True while tracing."""
    return call.constant(True)


@handles(torch.compile, *existing("armature.api.public.compile"))
def compile_nested(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """`armature.compile` inside a compiled function: returns the function, which is traced where it is called."""
    return args[0] if len(args) == 1 else None


@handles(*existing("armature.api.public.graph_break"))
def graph_break(call: Call, message: Value | None = None) -> Value | None:
    """Break the graph at the program's request."""
    text = message.as_constant() if message is not None and message.is_constant else ""
    call.graph_break("explicit-break", message=text or "no reason given")


@handles(*existing("armature.api.public.mark_dynamic", "armature.api.public.mark_static"))
def mark(call: Call, *args: Value, **kwargs: Value) -> Value:
    """A mark on a tensor takes effect when it is passed as an argument; here it does nothing."""
    return call.constant(None)
