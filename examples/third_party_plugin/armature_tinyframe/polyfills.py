"""Polyfills for the C functions of tinyframe: same arguments, same results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tinyframe

from armature.plugin_api import Polyfill


def width(sequence: Sequence[Any]) -> int:
    """The number of columns."""
    return len(sequence)


def joined(first: Sequence[Any], second: Sequence[Any]) -> Sequence[Any]:
    """The columns of both."""
    return first + second


POLYFILLS = [Polyfill(tinyframe.width, width), Polyfill(tinyframe.joined, joined)]
