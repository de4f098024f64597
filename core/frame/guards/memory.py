"""Checks whether tensors share memory as while tracing: one Python test per tree, run after all other guards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from armature.frame.data import FrameRequest
from armature.frame.source import Expressions, Source

Overlaps = tuple[tuple[int, int, int], ...]


def extent(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the last, inclusive; 0 when there is none."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return int((last + 1) * tensor.element_size())


def sharing(starts: Sequence[int], extents: Sequence[int], changed: Sequence[bool]) -> Overlaps:
    """The pairs of tensors whose memory ranges overlap and of which the graph changes at least one, in the order of
    their positions, with the distance of their starts. changed: by position, whether the graph changes the tensor."""
    order = sorted(range(len(starts)), key=starts.__getitem__)
    open_: list[int] = []
    found = []
    for position in order:
        open_ = [other for other in open_ if starts[other] + extents[other] > starts[position]]
        for other in open_ if extents[position] else ():
            first, second = sorted((other, position))
            if changed[first] or changed[second]:
                found.append((first, second, starts[second] - starts[first]))
        open_.append(position)
    return tuple(sorted(found))


class Disjoint:
    """Whether no two ranges of these extents overlap. Addresses that were found disjoint are cached."""

    def __init__(self, *extents: int) -> None:
        self.extents = extents
        self.disjoint_starts: list[int] = []

    def __call__(self, starts: list[int]) -> bool:
        if starts == self.disjoint_starts:
            return True
        found = are_disjoint(starts, self.extents)
        if found:
            self.disjoint_starts = starts
        return found


def are_disjoint(starts: list[int], extents: Sequence[int]) -> bool:
    """Whether no two ranges overlap. `extents` are positive."""
    if len(starts) == 2:
        first, second = starts
        return first + extents[0] <= second or second + extents[1] <= first
    end = 0
    for start, size in sorted(zip(starts, extents)):
        if start < end:
            return False
        end = start + size
    return True


def sharing_condition(
    sources: Sequence[Source],
    extents: Sequence[int | None],
    changed: Sequence[bool],
    overlapping: Overlaps,
    request: FrameRequest,
) -> Callable[[dict[str, Any]], bool]:
    """Build the test for `StorageGuard`, a function of the dict of the frame's locals."""
    writer = _Writer(request)
    names = [writer.variable(source) for source in sources]
    starts = f"[{', '.join(f'{name}.data_ptr()' for name in names)}]"
    fixed = all(size is not None for size in extents)
    sizes = ", ".join(f"extent({n})" if size is None else str(size) for n, size in zip(names, extents))
    test = f"sharing(starts, ({sizes},), {changed!r}) == {overlapping!r}"
    if fixed and all(extents) and not overlapping:  # quick, and enough: usually none share memory
        test = f"apart(starts) or ({test})"
    lines = [f"    {line}\n" for line in (*writer.lines, f"starts = {starts}", f"return {test}")]
    writer.namespace.update(apart=Disjoint(*(size or 0 for size in extents)), sharing=sharing, extent=extent)
    exec(f"def holds(L):\n{''.join(lines)}", writer.namespace)
    found: Callable[[dict[str, Any]], bool] = writer.namespace["holds"]
    return found


def families(tensors: Sequence[torch.Tensor]) -> tuple[tuple[int, int], ...]:
    """Two numbers for each tensor: the first identifies its base, the second its memory. Detached tensors in one memory
    share a version counter."""
    known: dict[int, int] = {}
    memories: dict[int, int] = {}
    bases = [tensor._base if tensor._is_view() else tensor for tensor in tensors]
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    return tuple(
        (known.setdefault(id(base), len(known)), memories.setdefault(storage, len(memories)))
        for base, storage in zip(bases, storages)
    )


def traced_families(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> tuple[tuple[int, int], ...] | None:
    """The families of tensors. pairs: each tensor, and the fake one that it is traced with. None if the fake ones are
    related otherwise to one that acquires a history, which can happen if sizes are symbols."""
    real, fake = families([real for real, _ in pairs]), families([fake for _, fake in pairs])
    changed = [at for at, (before, after) in enumerate(pairs) if before.requires_grad != after.requires_grad]
    return real if all(_relatives(real, at) == _relatives(fake, at) for at in changed) else None


def _relatives(found: tuple[tuple[int, int], ...], at: int) -> list[tuple[bool, bool]]:
    """For each tensor, whether it is a view of the same base as one of them, and whether it is in the same memory."""
    return [(base == found[at][0], held == found[at][1]) for base, held in found]


def family_condition(
    sources: Sequence[Source], known: tuple[tuple[int, int], ...], request: FrameRequest
) -> Callable[[dict[str, Any]], bool]:
    """Build the test for `FamilyGuard`, a function of the dict of the frame's locals."""
    writer = _Writer(request)
    names = [writer.variable(source) for source in sources]
    lines = [f"    {line}\n" for line in (*writer.lines, f"return families(({', '.join(names)},)) == known")]
    writer.namespace.update(families=families, known=known)
    exec(f"def holds(L):\n{''.join(lines)}", writer.namespace)
    found: Callable[[dict[str, Any]], bool] = writer.namespace["holds"]
    return found


class _Writer(Expressions):
    """Writes statements that read sources; common prefixes are read once."""

    def __init__(self, request: FrameRequest) -> None:
        super().__init__(request)
        self.lines: list[str] = []
        self._variables: dict[Source, str] = {}

    def variable(self, source: Source) -> str:
        """The name of the variable that holds the object at the source."""
        if source not in self._variables:
            text = super().of(source)  # `of`, below, handles its base
            self._variables[source] = name = f"v{len(self._variables)}"
            self.lines.append(f"{name} = {text}")
        return self._variables[source]

    def of(self, source: Source) -> str:
        return self.variable(source)
