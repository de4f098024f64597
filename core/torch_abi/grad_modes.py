"""Switches of torch's own state that appear in captured graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.amp.autocast_mode

set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled
set_default_dtype: Callable[[torch.dtype], None] = torch._C._set_default_dtype
enter_autocast: Callable[..., Any] = torch.amp.autocast_mode._enter_autocast
exit_autocast: Callable[[Any], Any] = torch.amp.autocast_mode._exit_autocast


def jit_tracing() -> bool:
    """Whether torch.jit.trace is at work on this thread."""
    return torch._C._get_tracing_state() is not None


def with_default_dtype(dtype: torch.dtype, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is while `dtype` is torch's default dtype, whichever it is when it runs."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before = torch.get_default_dtype()
        set_default_dtype(dtype)
        try:
            return function(*args, **kwargs)
        finally:
            set_default_dtype(before)

    call.in_default_dtype = function  # type: ignore[attr-defined]
    call.__name__ = f"{getattr(function, '__name__', 'call')}_in_{str(dtype).removeprefix('torch.')}"
    return call
