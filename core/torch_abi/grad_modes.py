"""Switches of torch's own state that appear in captured graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.amp.autocast_mode

set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled
enter_autocast: Callable[..., Any] = torch.amp.autocast_mode._enter_autocast
exit_autocast: Callable[[Any], Any] = torch.amp.autocast_mode._exit_autocast


def jit_tracing() -> bool:
    """Whether torch.jit.trace is at work on this thread."""
    return torch._C._get_tracing_state() is not None
