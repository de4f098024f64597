"""armature as a backend of torch.compile: its front end captures, and our stages compile from the graph on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from armature import config
from armature.api.options import check_changes, settings_of
from armature.frame.sources import LocalSource
from armature.pipeline.backends import native_backend
from armature.pipeline.session import session
from armature.pipeline.stages import new_context
from armature.plugins.plugin_manager import manager
from armature.trace.data import CompiledGraphSlot, GraphInput, TracedFrame
from armature.trace.show import show as show_captured


def dynamo_backend(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend function: takes a captured graph and example inputs, returns a callable with the same inputs.

    mode, options: those of torch.compile, if they have the meaning of `armature.compile`. Errors: UnknownMode,
    UnknownOption, UnknownPlugin, UnknownPass, BadSetting.
    """
    settings = config.current().changed(dict(check_changes({**settings_of(mode), **(options or {})})))
    code = dynamo_backend.__code__
    record = session().begin(code, "torch.compile")
    record.function, record.module = module.__class__.__name__, module
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    given = tuple(
        GraphInput(
            name=node.name,
            source=LocalSource(node.name),
            fake=node.meta.get("example_value", value),
            is_parameter=isinstance(value, torch.nn.Parameter),
        )
        for node, value in zip(places, inputs, strict=True)
    )
    traced = TracedFrame("graph", module, given, (), code, CompiledGraphSlot())
    record.captured = show_captured(traced)
    ctx = new_context(settings, manager().tables(settings), record.id)
    record.events = ctx.events
    return native_backend(traced, ctx, record)
