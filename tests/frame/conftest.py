"""Frames made by hand."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from armature.frame.data import FrameRequest


def request_for(fn: Callable[..., Any], *args: object, **kwargs: object) -> FrameRequest:
    """The request that the hook would make for the call `fn(*args, **kwargs)`."""
    bound = inspect.signature(fn).bind(*args, **kwargs)
    bound.apply_defaults()
    closure = fn.__closure__ or ()
    cells = dict(zip(fn.__code__.co_freevars, closure, strict=True))
    return FrameRequest(
        code=fn.__code__,
        locals={**bound.arguments, **cells},
        globals=fn.__globals__,
        builtins=vars(builtins),
        closure=closure,
    )


@pytest.fixture
def make_request() -> Callable[..., FrameRequest]:
    return request_for
