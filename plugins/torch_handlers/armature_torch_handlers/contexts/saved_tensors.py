"""`torch.autograd.graph.disable_saved_tensors_hooks`: saved-tensor hooks are an error inside."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch.autograd.graph import disable_saved_tensors_hooks

from armature.plugin_api import Call, Value, handles
from armature_torch_handlers.contexts.generators import context_value, leave_entered


def enter_without_hooks(message: str) -> AbstractContextManager[object]:
    """Forbid hooks; returns the entered context manager. Errors: RuntimeError if there are hooks already."""
    entered: AbstractContextManager[object] = disable_saved_tensors_hooks(message)
    entered.__enter__()
    return entered


def has_no_hooks() -> bool:
    """Whether no saved-tensor hooks are active."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is None


@handles(disable_saved_tensors_hooks)
def without_hooks(call: Call, error_message: Value) -> Value | None:
    """The context manager; if the caller has hooks, eager mode reports it."""
    if not error_message.is_constant or not has_no_hooks():
        return None
    call.tracing.guards.answers(has_no_hooks, (), {}, True)
    arguments = (error_message.as_constant(),)
    return context_value(enter_without_hooks, arguments, leave_entered)
