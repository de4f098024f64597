"""The result of code generation: one source text per back end and the Python wrapper that calls it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import torch


@attrs.frozen
class Tried:
    """A way to compute a kernel that was considered. seconds: duration of one run; None if it was not measured, for the
    reason given."""

    label: str
    seconds: float | None = None
    problem: str = ""


@attrs.frozen
class KernelChoice:
    """Which of several ways to compute a kernel of the plan a back end has taken.

    how: "measured", "kept" (known from an earlier measurement), or "by rule" with the reason. device: where it was
    measured.
    """

    kernel: str
    chosen: str
    how: str
    device: str
    tried: tuple[Tried, ...] = ()


@attrs.frozen
class KernelSource:
    """The text of all kernels of one graph for one back end, complete: it can be read, stored and built on its own.

    `flags` is everything besides `text` that determines the built artefact (compiler, options, target); flags and text,
    with or without its comments, make the cache key. `kernels` maps a kernel's name to the names of its arguments in
    call order. `parts`: the text of each kernel separately, for reports. `choices`: what `build` has chosen where there
    were several ways to compute a kernel; it appends to it.
    """

    backend: str
    language: str  # "cpp" or "python"; for highlighting and the file's suffix
    text: str
    kernels: Mapping[str, tuple[str, ...]]
    flags: tuple[str, ...] = ()
    meta: Mapping[str, object] = attrs.field(factory=dict)  # other data that build() needs; picklable
    parts: Mapping[str, str] = attrs.field(factory=dict)
    choices: list[KernelChoice] = attrs.field(factory=list, eq=False)


@attrs.frozen
class Program:
    """Everything needed to make a compiled graph: the sources, and a wrapper `def call(...): ...` in Python.

    The wrapper takes the inputs (one by one, or if `boxed` as one list, which it empties), allocates, launches and
    returns a tuple. Its global names are kernels (from `sources`), `constants` and `bindings` (operators, allocators,
    dtypes).
    """

    name: str
    sources: tuple[KernelSource, ...]
    wrapper: str
    constants: Mapping[str, torch.Tensor]
    bindings: Mapping[str, object]
    kernel_count: int
    fused_count: int  # ATen operators that were fused with at least one other into a kernel
    extern_count: int
    boxed: bool = True
