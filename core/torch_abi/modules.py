"""The effects of calling an nn.Module besides its `forward`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_MODULE: Any = torch.nn.modules.module
_FORWARD, _FORWARD_PRE = _MODULE._global_forward_hooks, _MODULE._global_forward_pre_hooks
_BACKWARD, _BACKWARD_PRE = _MODULE._global_backward_hooks, _MODULE._global_backward_pre_hooks
_PLAIN_CALL = nn.Module.__call__


def calls_forward_only(module: nn.Module) -> bool:
    """Whether `module(...)` is `module.forward(...)` and nothing else: no hooks, no `__call__` of its own. For
    calls that no tool records (`recorders.at_work`)."""
    return not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or _FORWARD
        or _FORWARD_PRE
        or _BACKWARD
        or _BACKWARD_PRE
        or module._compiled_call_impl is not None
        or type(module).__call__ is not _PLAIN_CALL
    )
