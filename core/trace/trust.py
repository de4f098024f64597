"""Modules trusted not to be patched at run time (torch, the standard library): only their containers are guarded."""

from __future__ import annotations

import functools
import sys

TRUSTED_PACKAGES = sys.stdlib_module_names | {"torch", "builtins"}


@functools.lru_cache(maxsize=8192)
def trusted_module(name: str) -> bool:
    """Whether a module of this name belongs to torch or to the standard library."""
    return name.partition(".")[0] in TRUSTED_PACKAGES


def is_trusted(obj: object) -> bool:
    """Whether a function, class or module belongs to torch or to the standard library."""
    name = getattr(obj, "__module__", None)
    if name is None:
        name = getattr(obj, "__name__", None)
    return isinstance(name, str) and trusted_module(name)
