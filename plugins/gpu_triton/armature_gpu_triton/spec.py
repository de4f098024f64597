"""The data for building and launching a generated kernel, besides its text; picklable. Compiler processes import this
module too, and start faster without torch."""

from __future__ import annotations

import attrs

MOST_ARGUMENTS = 250  # limit per kernel: below the launcher's (MAX_ARGS)


@attrs.frozen
class KernelSpec:
    """One Triton function.

    signature: Triton type per argument, "*fp32", "i64" or "fp64". aligned: positions of pointers assumed to be
    multiples of 16 bytes. constants: tile sizes. grid: the number of programs, a tuple of three numbers; with symbolic
    sizes, the text of a Python lambda over the arguments that returns it. device: index, None for the current one.
    asserts: the kernel checks indices, and traps if one is out of range.
    """

    name: str
    signature: tuple[str, ...]
    aligned: tuple[int, ...]
    constants: tuple[tuple[str, int], ...]
    grid: tuple[int, int, int] | str
    num_warps: int = 4
    num_stages: int = 2
    device: int | None = None
    asserts: bool = False

    def unaligned(self) -> KernelSpec:
        """The same kernel without any assumption about pointers."""
        return attrs.evolve(self, aligned=())
