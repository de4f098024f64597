"""Kernel names: readable, short and the same in every process."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from armature.lower.data import Origin

_LONGEST = 40


def kernel_name(origins: Iterable[Origin], number: int, taken: Container[str] = ()) -> str:
    """`add_relu_0`: the operators in order, each once, as many as fit; then the kernel's number in its graph.

    `taken`: names of buffers in the same generated code.
    """
    words: list[str] = []
    for origin in origins:
        parts = origin.op.split(".")
        word = re.sub(r"\W", "_", parts[1] if len(parts) > 1 else parts[0]).strip("_") or "op"
        if word not in words and len("_".join([*words, word])) <= _LONGEST:
            words.append(word)
    name = "_".join([*(words or ["kernel"]), str(number)])
    return f"{'_'.join(words)}_kernel_{number}" if name in taken else name
