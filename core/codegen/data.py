"""What code generation gives: one source text per back end and the Python wrapper that calls it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import torch


@attrs.frozen
class KernelSource:
    """The text of all kernels of one graph for one back end, complete: it can be read, kept and built on its own.

    `flags` is what besides `text` decides the built artefact (compiler, options, target); flags and text, which may be
    without its comments, make the cache key. `kernels` maps a kernel's name to the names of its arguments in call
    order. `parts`: the text of each kernel by itself, for reports.
    """

    backend: str
    language: str  # "cpp" or "python"; for highlighting and the file's suffix
    text: str
    kernels: Mapping[str, tuple[str, ...]]
    flags: tuple[str, ...] = ()
    meta: Mapping[str, object] = attrs.field(factory=dict)  # what build() needs besides; plain data that can be pickled
    parts: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Program:
    """Everything needed to make a compiled graph: the sources, and a wrapper `def call(args): ...` in Python.

    The wrapper takes one list (which it empties), allocates, launches and returns a tuple. Names that it uses from
    outside are kernels (from `sources`), `constants` and `bindings` (operators, allocators, dtypes).
    """

    name: str
    sources: tuple[KernelSource, ...]
    wrapper: str
    constants: Mapping[str, torch.Tensor]
    bindings: Mapping[str, object]
    kernel_count: int
    fused_count: int  # ATen operators that ended in a kernel together with another one
    extern_count: int
