"""Polyfills for small C functions of os and sys that library code calls."""

from __future__ import annotations

import os
import sys


def fspath(path: str | bytes | os.PathLike[str]) -> str | bytes:
    """A path as text or bytes."""
    if isinstance(path, (str, bytes)):
        return path
    if not hasattr(type(path), "__fspath__"):
        raise TypeError(f"expected str, bytes or os.PathLike object, not {type(path).__name__}")
    return type(path).__fspath__(path)


def intern(string: str, /) -> str:
    """The string itself; its identity is not observable."""
    return string


STAND_INS = ((os.fspath, fspath), (sys.intern, intern))
